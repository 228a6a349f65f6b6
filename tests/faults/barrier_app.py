"""An app whose two workers decide about a window of their schedule at the same time. As a program: one worker of it.

The environment variables STORE and RUN_LOG name the store and the file for the runs; the barrier is a folder beside it.
"""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta
from pathlib import Path

from onthedot import App
from tests.faults.run_log import log_run

WORKERS = 2
WAIT = 5.0  # seconds for the other worker
app = App("barrier", store=os.environ.get("STORE", "memory://"), stop_timeout=5)


class EverySecond:
    """A rule that waits for the other worker between the read of a due schedule and its fire."""

    overlap = "allow"
    catch_up = "all"

    def next_after(self, moment: datetime) -> datetime:
        if moment.microsecond == 0:  # a window: the worker is about to fire it
            self._meet(f"{moment.timestamp():.0f}")
        return moment.replace(microsecond=0) + timedelta(seconds=1)

    def _meet(self, window: str) -> None:
        folder = Path(os.environ["RUN_LOG"]).with_suffix(".barrier")
        folder.mkdir(exist_ok=True)
        (folder / f"{window}.{os.getpid()}").touch()
        deadline = time.monotonic() + WAIT
        while len(list(folder.glob(f"{window}.*"))) < WORKERS and time.monotonic() < deadline:
            time.sleep(0.001)


@app.schedule(EverySecond(), max_crashes=1000)
async def tick() -> None:
    await log_run(0)


if __name__ == "__main__":
    app.run()
