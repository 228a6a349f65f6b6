"""The app whose tasks are moved from store to store. STORE and RUN_LOG name the store and the file for the runs."""

from __future__ import annotations

import os
import random

from onthedot import App
from tests.faults.run_log import log_run

app = App("moves", store=os.environ.get("STORE", "memory://"), concurrency=8, stop_timeout=5)


@app.task(max_crashes=1000)
async def work(number: int) -> int:
    """Runs in the store in which it is when it is due."""
    await log_run(random.uniform(0.02, 0.1))
    return number


@app.task(max_crashes=1000)
async def paused(number: int) -> int:
    """Paused until the last store, so it is moved through all of them."""
    await log_run(0.01)
    return number


@app.task(max_crashes=1000)
async def tick() -> None:
    """The task of a schedule."""
    await log_run(0.04)
