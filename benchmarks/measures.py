"""Measures that are the same for every store."""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine

from benchmarks.report import Figure
from onthedot import App
from onthedot.clock.system import SystemClock
from onthedot.stores import connect
from onthedot.stores.contract import (
    ClaimRequest,
    Completed,
    Lease,
    Links,
    NewTask,
    SlotPool,
    Store,
    TurnResult,
    Wait,
)


async def noop() -> None:
    """The function that all of them run."""


def countdown(count: int) -> tuple[Callable[[], Coroutine[None, None, None]], asyncio.Event]:
    """A function that is to run this many times, and an event that is set then."""
    left = count
    done = asyncio.Event()

    async def counted() -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    return counted, done


async def drain_app(store: str, count: int) -> float:
    """No-op async tasks per second: added first, then run by one worker with 100 slots."""
    app = App("bench", store=store, concurrency=100)
    counted, done = countdown(count)
    task = app.task(counted)
    async with app:
        await task.enqueue_many([{}] * count)
        gc.collect()
        began = time.perf_counter()
        async with app.running():
            await done.wait()
            return count / (time.perf_counter() - began)


async def add_rates(store: str, count: int) -> tuple[float, float]:
    """Adds per second: awaited one by one, and by 100 coroutines."""
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


class Pending:
    """A store with many pending tasks: half of them are ready, half are due at random times."""

    def __init__(self, url: str) -> None:
        self._store: Store = connect(url, SystemClock(), "bench")
        self._rng = random.Random(1)
        self._turn = TurnResult(())

    async def fill(self, pending: int) -> None:
        await self._store.open()
        await self._store.heartbeat("w", b"", 10**12)
        for start in range(0, pending, 1000):
            number = min(1000, pending - start)
            await self._store.add([new_task(f"p{start + i:09}", self._rng) for i in range(number)])

    async def fill_waiting(self, waiting: int) -> None:
        """Tasks that wait for a signal that is never sent, with a timeout."""
        links = Links(waits=Wait((("~never", 1),), timeout=10**9))
        for start in range(0, waiting, 1000):
            await self._store.add([NewTask(f"w{start + i:09}", "send", b"{}", links=links) for i in range(1000)])

    async def round(self, number: int) -> tuple[float, float]:
        """µs of 100 adds, and of a turn with 100 settled and 100 claimed tasks."""
        new = [new_task(f"q{number:05}-{i:03}", self._rng) for i in range(100)]
        began = time.perf_counter()
        await self._store.add(new)
        added = time.perf_counter()
        claimed = self._turn.claim
        outcomes = [Completed(Lease(r.uuid, claimed.fence, "w")) for r in claimed.tasks] if claimed else []
        ready = time.perf_counter()
        self._turn = await self._store.turn("w", outcomes, ClaimRequest(number, [SlotPool(100, {"send": 100})]))
        ended = time.perf_counter()
        await self._store.add([new_task(f"r{number:05}-{i:03}") for i in range(50)])  # keeps the number of ready tasks
        return (added - began) * 1e6, (ended - ready) * 1e6

    async def close(self) -> None:
        await self._store.close_session("w")
        await self._store.close()


async def _alternately(
    few_url: str, many_url: str, scale: float, settled: Callable[[], Awaitable[None]]
) -> list[list[float]]:
    """Medians of 100 adds and of a turn, measured alternately in a small and a large store."""
    both = Pending(few_url), Pending(many_url)
    for each, pending in zip(both, (1_000, int(1_000_000 * scale)), strict=True):
        await each.fill(pending)
    await settled()
    costs: list[list[tuple[float, float]]] = [[], []]
    for number in range(1, 101):
        for some, each in zip(costs, both, strict=True):
            some.append(await each.round(number))
    for each in both:
        await each.close()
    return [[statistics.median(kind) for kind in zip(*some, strict=True)] for some in costs]


async def _do_nothing() -> None: ...


def growth(
    few_url: str, many_url: str, scale: float, settled: Callable[[], Awaitable[None]] = _do_nothing
) -> list[Figure]:
    """The cost of 100 adds and one turn (100 settled, 100 claimed) with a million and with a thousand pending tasks.

    settled: called when both stores are filled, before the measurement.
    """
    few, many = asyncio.run(_alternately(few_url, many_url, scale, settled))
    return [
        Figure(many[0], few[0], "µs", "100 adds: 1M beside 1k pending", 1.3, least=False),
        Figure(many[1], few[1], "µs", "turn: 1M beside 1k pending", 1.3, least=False),
    ]


def new_task(uuid: str, rng: random.Random | None = None) -> NewTask:
    """Due now; with a random generator, half of the tasks later."""
    after = rng.randrange(2) * rng.randrange(1_000_000, 10**9) if rng is not None else 0
    return NewTask(uuid, "send", b'{"args":{"text":"' + b"x" * 83 + b'"}}', after=after)
