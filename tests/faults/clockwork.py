"""An app with a schedule; as a program, one worker of it, or as many as its argument says.

STORE and LEDGER say where.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from onthedot import App, IntervalSchedule, current_task
from tests.faults.fleet import several
from tests.faults.ledger import Ledger

app = App("clockwork", store=os.environ.get("STORE", "memory://"), stop_timeout=5)


@app.schedule(IntervalSchedule(1, overlap="allow", catch_up="all"), max_crashes=1000)
async def tick() -> None:
    ledger, context = Ledger(Path(os.environ["LEDGER"])), current_task()
    try:
        ledger.write("begin", context.uuid, context.attempt, context.fence)
        await asyncio.sleep(0.04)
        ledger.write("end", context.uuid, context.attempt, context.fence)
    finally:
        ledger.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        several(int(sys.argv[1]), app.run)
    else:
        app.run()
