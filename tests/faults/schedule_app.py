"""An app with a schedule. As a program: one worker of it, or as many as the argument gives.

The environment variables STORE and RUN_LOG name the store and the file for the runs.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from onthedot import App, IntervalSchedule, current_task
from tests.faults.run_log import RunLog
from tests.faults.worker_processes import run_forked

app = App("schedules", store=os.environ.get("STORE", "memory://"), stop_timeout=5)


@app.schedule(IntervalSchedule(1, overlap="allow", catch_up="all"), max_crashes=1000)
async def tick() -> None:
    run_log = RunLog(Path(os.environ["RUN_LOG"]))
    context = current_task()
    try:
        run_log.write("begin", context.uuid, context.attempt, context.fence)
        await asyncio.sleep(0.04)
        run_log.write("end", context.uuid, context.attempt, context.fence)
    finally:
        run_log.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_forked(int(sys.argv[1]), app.run)
    else:
        app.run()
