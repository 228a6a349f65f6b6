"""The app whose tasks are moved from store to store. STORE and LEDGER say where its workers are."""

from __future__ import annotations

import os
import random

from onthedot import App
from tests.faults.ledger import write_down

app = App("caravan", store=os.environ.get("STORE", "memory://"), concurrency=8, stop_timeout=5)


@app.task(max_crashes=1000)
async def work(number: int) -> int:
    """Runs wherever it is when its time comes."""
    await write_down(random.uniform(0.02, 0.1))
    return number


@app.task(max_crashes=1000)
async def cargo(number: int) -> int:
    """Paused until the last store: it goes all the way."""
    await write_down(0.01)
    return number


@app.task(max_crashes=1000)
async def tick() -> None:
    """A schedule's."""
    await write_down(0.04)
