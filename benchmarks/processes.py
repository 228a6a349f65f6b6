"""The process executor, compared with the pool of the standard library."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from benchmarks.report import Figure
from onthedot import App
from onthedot.executors.processes import Processes
from onthedot.model.context import RunState, set_current
from onthedot.runtime.background_process import CHILD_ENTRY_POINT
from onthedot.stores.contract import DEFAULT, Lease, Outcome, Record, Verdict

SLOTS = 2

app = App("bench-processes", store="memory://", processes=SLOTS)
logging.getLogger("onthedot").setLevel(logging.CRITICAL)  # killed tasks are meant to fail


def noop() -> None:
    """The function that all of them run."""


@app.task(executor="process")
def task() -> None:
    """The same as a task: claimed, sent, run, settled."""


@app.task(executor="process", timeout=0.2)
def hang() -> None:
    time.sleep(60)


def round_trips(scale: float) -> list[Figure]:
    """No-op calls per second through two warm processes: the executor alone, compared with submit()."""
    count = int(4_000 * scale)
    ours = asyncio.run(_round_trips(count))
    pool = asyncio.run(_drain_pool(count))
    return [Figure(ours, pool, "calls/s", "ProcessPoolExecutor", 1, least=True)]


async def _round_trips(count: int) -> float:
    """Two at a time for two slots: nothing is sent ahead to a busy child."""
    executor = Processes(SLOTS)
    source = app.runtime.sources.get("task")
    assert source is not None
    executor.open(app.runtime.boot_message, CHILD_ENTRY_POINT)

    async def calls(lane: int, count: int) -> None:
        for number in range(count):
            uuid = f"{lane}-{number}"
            record = Record(uuid, "task", b"{}", DEFAULT, None, None, 0, 0, 0, "running")
            set_current(RunState(source, record, Lease(uuid, 1, "bench"), _Silent()))
            await executor.run(noop)

    await asyncio.gather(*(calls(lane, 20) for lane in range(SLOTS)))  # warm
    gc.collect()
    began = time.perf_counter()
    await asyncio.gather(*(calls(lane, count // SLOTS) for lane in range(SLOTS)))
    rate = count / (time.perf_counter() - began)
    executor.close()
    return rate


class _Silent:
    log = logging.getLogger("bench")

    def progress(self, lease: Lease, done: float, total: float) -> None: ...

    async def settle_in(self, connection: object, outcome: Outcome) -> Verdict:
        raise NotImplementedError


def drain(scale: float) -> list[Figure]:
    """No-op tasks per second: claimed, run in one of two processes, settled, compared with a bare submit()."""
    count = int(4_000 * scale)
    ours = asyncio.run(_drain_app(count))
    pool = asyncio.run(_drain_pool(count))
    return [Figure(ours, pool, "tasks/s", "ProcessPoolExecutor", 1, least=True)]


async def _drain_app(count: int) -> float:
    async with app.running():
        await asyncio.gather(*await task.enqueue_many([{}] * 20))  # warm
        gc.collect()
        began = time.perf_counter()
        handles = await task.enqueue_many([{}] * count)
        while not await handles[-1].done() or app.status()["is_executing"]:  # noqa: ASYNC110 - as little as can be
            await asyncio.sleep(0.005)
        return count / (time.perf_counter() - began)


async def _drain_pool(count: int) -> float:
    """With a filled queue, which is its fastest mode."""
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(SLOTS, get_context("forkserver")) as pool:
        await asyncio.gather(*(loop.run_in_executor(pool, noop) for _ in range(20)))
        gc.collect()
        began = time.perf_counter()
        await asyncio.gather(*(loop.run_in_executor(pool, noop) for _ in range(count)))
        return count / (time.perf_counter() - began)


def latency(scale: float) -> list[Figure]:
    """The time of one awaited call."""
    count = int(500 * scale) or 50
    ours = asyncio.run(_one_by_one_app(count))
    pool = asyncio.run(_one_by_one_pool(count))
    return [Figure(ours, pool, "ms", "ProcessPoolExecutor", 2, least=False)]


async def _timed(count: int, call: Callable[[], Awaitable[object]]) -> float:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await call()
        times.append((time.perf_counter() - began) * 1000)
    return sorted(times)[count // 2]


async def _one_by_one_app(count: int) -> float:
    async def call() -> None:
        await (await task.enqueue())

    async with app.running():
        await call()
        return await _timed(count, call)


async def _one_by_one_pool(count: int) -> float:
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(SLOTS, get_context("forkserver")) as pool:
        await loop.run_in_executor(pool, noop)
        return await _timed(count, lambda: loop.run_in_executor(pool, noop))


def kill(scale: float) -> list[Figure]:
    """ms from a timeout to the result of the next task in the same slot."""
    return [Figure(asyncio.run(_kill(max(2, int(8 * scale)))), 1, "ms", "after a killed task", 300, least=False)]


async def _kill(count: int) -> float:
    late = []
    async with app.running():
        await (await task.enqueue())
        for _ in range(count):
            began = time.perf_counter()
            await (await hang.enqueue()).exception()
            await (await task.enqueue())
            late.append((time.perf_counter() - began - 0.2) * 1000)
    return max(late)


MEASURES = [round_trips, drain, latency, kill]
