"""What is measured in the same way on every store."""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import time

from onthedot import App
from onthedot.clock import SystemClock
from onthedot.stores import connect
from onthedot.stores.contract import Ask, Done, Lease, NewTask, Pool, Turn


async def noop() -> None:
    """The function that everybody runs."""


async def drain_app(store: str, count: int) -> float:
    """No-op async tasks a second: added first, then run by one worker with 100 slots."""
    app = App("bench", store=store, concurrency=100)
    left, done = count, asyncio.Event()

    async def counted() -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    task = app.task(counted)
    async with app:
        await task.enqueue_many([{}] * count)
        gc.collect()
        began = time.perf_counter()
        async with app.running():
            await done.wait()
            return count / (time.perf_counter() - began)


async def add_rates(store: str, count: int) -> tuple[float, float]:
    """Additions a second: awaited one by one, and by 100 coroutines."""
    app = App("bench", store=store)
    task = app.task(noop)

    async def adder(number: int) -> None:
        for _ in range(number):
            await task.enqueue()

    async with app:
        await adder(20)
        began = time.perf_counter()
        await adder(count)
        single = count / (time.perf_counter() - began)
        began = time.perf_counter()
        await asyncio.gather(*(adder(count // 10) for _ in range(100)))
        return single, count * 10 / (time.perf_counter() - began)


async def pending_costs(url: str, pending: int) -> tuple[float, float]:
    """µs of 100 adds, and of a turn. Half of the pending are ready, half are due later, in no order."""
    store, chance = connect(url, SystemClock()), random.Random(1)
    await store.open()
    await store.beat("w", b"", 10**12)
    for start in range(0, pending, 1000):
        await store.add([new_task(f"p{start + i:09}", chance) for i in range(min(1000, pending - start))])
    adds, turns, turn = [], [], Turn(())
    for number in range(1, 61):
        new = [new_task(f"q{number:05}-{i:03}", chance) for i in range(100)]
        began = time.perf_counter()
        await store.add(new)
        adds.append((time.perf_counter() - began) * 1e6)
        claimed = turn.claimed
        outcomes = [Done(Lease(r.uuid, claimed.fence, "w")) for r in claimed.tasks] if claimed else []
        began = time.perf_counter()
        turn = await store.turn("w", outcomes, Ask(number, [Pool(100, {"send": 100})]))
        turns.append((time.perf_counter() - began) * 1e6)
    await store.close("w")
    await store.shut()
    return statistics.median(adds), statistics.median(turns)


def new_task(uuid: str, chance: random.Random | None = None) -> NewTask:
    """Due now; with a chance: every other one later."""
    after = chance.randrange(2) * chance.randrange(1_000_000, 10**9) if chance is not None else 0
    return NewTask(uuid, "send", b'{"args":{"text":"' + b"x" * 83 + b'"}}', after=after)
