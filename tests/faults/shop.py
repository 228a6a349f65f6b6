"""The app that the fault runs work with; as a program, one worker of it.

STORE and LEDGER say where.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

from onthedot import App, current_task
from tests.faults import scaled
from tests.faults.ledger import Ledger

SLOTS = 8
LONGEST = scaled(10, 20) / 100  # seconds of a task: the kills are over before the work is
app = App("shop", store=os.environ.get("STORE", "memory://"), concurrency=SLOTS, stop_timeout=5)


async def _write_down(seconds: float) -> None:
    ledger = Ledger(Path(os.environ["LEDGER"]))
    context = current_task()
    try:
        ledger.write("begin", context.uuid, context.attempt, context.fence)
        await asyncio.sleep(seconds)
        ledger.write("end", context.uuid, context.attempt, context.fence)
    finally:
        ledger.close()


@app.task(max_crashes=1000)
async def work(number: int) -> int:
    await _write_down(random.uniform(0.02, LONGEST))
    return number


@app.task(max_crashes=1000, concurrency=12)
async def limited(number: int) -> int:
    """Of all workers together at most twelve at once."""
    await _write_down(random.uniform(0.02, LONGEST))
    return number


@app.task
async def innocent(number: int) -> int:
    await _write_down(0.05)
    return number


@app.task
async def poison() -> None:
    await _write_down(0.01)
    os._exit(9)


@app.task
async def slow(seconds: float) -> str:
    await _write_down(seconds)
    return "slow"


if __name__ == "__main__":
    app.run()
