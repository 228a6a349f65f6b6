"""The app whose tasks are moved from store to store. STORE and LEDGER say where its workers are."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

from onthedot import App, current_task
from tests.faults.ledger import Ledger

app = App("caravan", store=os.environ.get("STORE", "memory://"), concurrency=8, stop_timeout=5)


async def _write_down(seconds: float) -> None:
    ledger, context = Ledger(Path(os.environ["LEDGER"])), current_task()
    try:
        ledger.write("begin", context.uuid, context.attempt, context.fence)
        await asyncio.sleep(seconds)
        ledger.write("end", context.uuid, context.attempt, context.fence)
    finally:
        ledger.close()


@app.task(max_crashes=1000)
async def work(number: int) -> int:
    """Runs wherever it is when its time comes."""
    await _write_down(random.uniform(0.02, 0.1))
    return number


@app.task(max_crashes=1000)
async def cargo(number: int) -> int:
    """Paused until the last store: it goes all the way."""
    await _write_down(0.01)
    return number


@app.task(max_crashes=1000)
async def tick() -> None:
    """A schedule's."""
    await _write_down(0.04)
