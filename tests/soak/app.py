"""The app of the soak run. As a program: a worker, or with the argument `produce` the producer.

The environment variable STORE names the store. The producer adds, cancels, reads results, and starts and stops a worker
of its own again and again, until its standard input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from random import Random

from onthedot import App, AtMost, IntervalSchedule, OnTheDotError, current_task

KEEP = 20  # seconds that ended tasks are kept, so that their number becomes constant
PACE = 0.05  # seconds between two rounds of the producer
ROUNDS = 40  # between two starts of its worker
app = App(
    "soak",
    store=os.environ.get("STORE", "memory://"),
    concurrency=8,
    stop_timeout=5,
    defaults={"keep": KEEP, "keep_failed": KEEP, "max_crashes": 1000},
)


@app.task
async def work(number: int) -> int:
    await asyncio.sleep(0.005)
    return number


@app.task(limits=[AtMost(2, by="key")])
async def keyed(key: int) -> None:
    await asyncio.sleep(0.005)


@app.task(max_retries=2, backoff=0.1)
async def retried() -> None:
    current_task().progress(1, 2)
    if current_task().attempt == 1:
        raise ValueError("on its first attempt")


@app.task(max_retries=0)
async def failing() -> None:
    raise ValueError("always")


@app.task
async def parent() -> None:
    current_task().spawn(work.s(1))


@app.task(unique="{key}")
async def unique(key: int) -> None: ...


@app.schedule(IntervalSchedule(1))
async def tick() -> None: ...


async def produce() -> None:
    random = Random(1)
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    while not ended.done():
        with contextlib.suppress(OnTheDotError):  # the store is cut off now and then, also while the worker starts
            async with app.running():
                for _ in range(ROUNDS):
                    with contextlib.suppress(OnTheDotError):
                        await add(random)
                    await asyncio.sleep(PACE)


async def add(random: Random) -> None:
    handle = await work.enqueue(random.randrange(100))
    await keyed.enqueue(random.randrange(1_000_000))
    await parent.enqueue()
    await unique.enqueue(random.randrange(1_000_000))
    later = await work.options(after=60).enqueue(1)
    await later.cancel()
    if random.random() < 0.1:
        await retried.enqueue()
        await failing.enqueue()
    with contextlib.suppress(TimeoutError):
        await handle.result(timeout=5)


if __name__ == "__main__":
    if sys.argv[1:] == ["produce"]:
        asyncio.run(produce())
    else:
        app.run()
