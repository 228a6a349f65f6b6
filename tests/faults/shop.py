"""The app that the fault runs work with; as a program, one worker of it, or as many as its argument says.

STORE and LEDGER say where.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import sys
import time
from pathlib import Path

from onthedot import App, AtMost, Rate, current_task
from tests.faults import scaled
from tests.faults.fleet import several
from tests.faults.ledger import Ledger, write_down

SLOTS = 8
LONGEST = scaled(10, 20) / 100  # seconds of a task: the kills are over before the work is
app = App(
    "shop",
    store=os.environ.get("STORE", "memory://"),
    concurrency=SLOTS,
    stop_timeout=5,
    poll_interval=float(os.environ.get("POLL", "10")),
)


@app.task(max_crashes=1000)
async def work(number: int) -> int:
    await write_down(random.uniform(0.02, LONGEST))
    return number


@app.task(max_crashes=1000, concurrency=12)
async def limited(number: int) -> int:
    """Of all workers together at most twelve at once."""
    await write_down(random.uniform(0.02, LONGEST))
    return number


@app.task
async def innocent(number: int) -> int:
    await write_down(0.05)
    return number


@app.task
async def poison() -> None:
    await write_down(0.01)
    os._exit(9)


@app.task
async def slow(seconds: float) -> str:
    await write_down(seconds)
    return "slow"


@app.task
async def grip(seconds: int) -> str:
    """Holds the GIL: no thread of this process runs meanwhile."""
    context, ledger = current_task(), Ledger(Path(os.environ["LEDGER"]))
    ledger.write("begin", context.uuid, context.attempt, context.fence)
    ctypes.PyDLL(None).sleep(seconds)
    ledger.close()
    return "gripped"


@app.task(max_crashes=1)
async def stuck() -> None:
    time.sleep(600)  # noqa: ASYNC251 - this is what it is about


@app.task(executor="process", max_crashes=1000)
def crunch() -> None:
    """Says every 20 ms that it is still there."""
    context, ledger = current_task(), Ledger(Path(os.environ["LEDGER"]))
    ledger.write("begin", context.uuid, context.attempt, context.fence)
    while True:
        time.sleep(0.02)
        ledger.write("end", context.uuid, context.attempt, context.fence)


@app.task(limits=[AtMost(2, by="key")], max_crashes=1000)
async def keyed(key: int) -> None:
    """Of each key at most two at once."""
    await write_down(random.uniform(0.02, 0.06))


@app.task(concurrency=2, max_crashes=1000)
async def paired() -> None:
    """Of all workers together at most two at once."""
    await write_down(random.uniform(0.02, 0.06))


@app.task(limits=[Rate("50/s", burst=10)])
async def paced() -> None:
    """Fifty a second, counted for the source."""


@app.task(limits=[Rate("50/s", burst=10, name="api")])
async def metered() -> None:
    """Fifty a second, counted for a lane."""


@app.task(unique="{key}", on_conflict="replace")
async def debounced(key: str, said: str) -> str:
    return said


@app.task
async def old() -> None:
    await asyncio.sleep(0.001)


@app.task
async def fresh() -> None: ...


@app.task(max_crashes=1000)
async def quick() -> None:
    await asyncio.sleep(0.01)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        several(int(sys.argv[1]), app.run)
    else:
        app.run()
