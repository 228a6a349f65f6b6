"""App on the memory store, compared with bare asyncio and APScheduler 3."""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measures import countdown, drain_app, noop
from benchmarks.report import Figure
from onthedot import App
from onthedot.stores.contract import ClaimRequest, Completed, Lease, NewTask, SlotPool, TurnResult
from onthedot.stores.memory import MemoryStore


def drain(scale: float) -> list[Figure]:
    """No-op async tasks per second: added first, then run by one worker with 100 slots."""
    count = int(20_000 * scale)
    ours = asyncio.run(drain_app("memory://", count))
    bare = asyncio.run(_drain_bare(count))
    figures = [Figure(ours, bare, "tasks/s", "bare create_task", 0.7, least=True)]
    peer = asyncio.run(_drain_apscheduler(count // 10))
    return [*figures, Figure(ours, peer, "tasks/s", "APScheduler 3", 4, least=True)]


async def _drain_bare(count: int) -> float:
    """100 at a time, referenced by a set until they are done, as a careful programmer writes it."""
    left = count

    async def counted() -> None:
        nonlocal left
        left -= 1

    alive: set[asyncio.Task[None]] = set()
    gc.collect()
    began = time.perf_counter()
    for _ in range(0, count, 100):
        for _ in range(100):
            task = asyncio.create_task(counted())
            alive.add(task)
            task.add_done_callback(alive.discard)
        while alive:  # noqa: ASYNC110 - the cheapest way, because others are compared with it
            await asyncio.sleep(0)
    assert left == 0
    return count / (time.perf_counter() - began)


async def _drain_apscheduler(count: int) -> float:
    from apscheduler.schedulers.asyncio import AsyncIOScheduler

    counted, done = countdown(count)
    scheduler = AsyncIOScheduler()
    scheduler.configure(job_defaults={"misfire_grace_time": None})
    for _ in range(count):
        scheduler.add_job(counted)
    began = time.perf_counter()
    scheduler.start()
    await done.wait()
    rate = count / (time.perf_counter() - began)
    scheduler.shutdown(wait=False)
    return rate


def growth(scale: float) -> list[Figure]:
    """The cost of one add and one turn (20 settled, 20 claimed) with a million and with a thousand pending tasks."""
    few = asyncio.run(_cost(1_000))
    many = asyncio.run(_cost(int(1_000_000 * scale)))
    return [
        Figure(many[0], few[0], "µs", "add: 1M beside 1k pending", 2, least=False),
        Figure(many[1], few[1], "µs", "turn: 1M beside 1k pending", 2, least=False),
    ]


async def _cost(pending: int) -> tuple[float, float]:
    """Half of the pending tasks are ready, half are due at random times."""
    store = MemoryStore()
    rng = random.Random(1)
    await store.heartbeat("w", b"", 10**12)
    for start in range(0, pending, 1000):
        size = min(1000, pending - start)
        await store.add([_new(f"p{start + i}", rng.randrange(2) * rng.randrange(1, 10**9)) for i in range(size)])
    adds = []
    turns = []
    turn = TurnResult(())
    for number in range(1, 31):
        new = [_new(f"n{number}-{i}", rng.randrange(2) * rng.randrange(1, 10**9)) for i in range(100)]
        began = time.perf_counter()
        for each in new:
            await store.add((each,))
        adds.append((time.perf_counter() - began) / 100 * 1e6)
        claimed = turn.claim
        outcomes = [Completed(Lease(r.uuid, claimed.fence, "w")) for r in claimed.tasks] if claimed else []
        began = time.perf_counter()
        turn = await store.turn("w", outcomes, ClaimRequest(number, [SlotPool(20, {"send": 20})]))
        turns.append((time.perf_counter() - began) * 1e6)
    return statistics.median(adds), statistics.median(turns)


def _new(uuid: str, after: int) -> NewTask:
    return NewTask(uuid, "send", b'{"args":{"text":"' + b"x" * 83 + b'"}}', after=after)


def memory(scale: float) -> list[Figure]:
    """Resident bytes of a pending task with 100 bytes of arguments, measured in a separate process."""
    count = int(1_000_000 * scale)
    script = Path(__file__).with_name("pending.py")
    out = subprocess.run([sys.executable, str(script), str(count)], capture_output=True, text=True, check=True)
    return [Figure(float(out.stdout), 1, "bytes", "a pending task", 600, least=False)]


def lateness(scale: float) -> list[Figure]:
    """p99 of the lateness of delayed tasks, compared with bare timers in the same event loop."""
    # In a separate process, because the heap of earlier measures would affect it.
    count = int(400 * scale) or 100
    script = f"import asyncio; from benchmarks.memory import lateness_of as late; print(*asyncio.run(late({count})))"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    ours, bare = map(float, out.stdout.split())
    return [Figure(ours, bare, "ms p99", "a bare asyncio timer", 1, least=False, difference=True)]


async def lateness_of(count: int, store: str = "memory://") -> tuple[float, float]:
    app = App("bench", store=store)
    late: list[float] = []
    bare: list[float] = []

    @app.task
    async def due(at: float) -> None:
        late.append((time.perf_counter() - at) * 1000)

    def fired(at: float) -> None:
        bare.append((time.perf_counter() - at) * 1000)

    loop = asyncio.get_running_loop()
    rng = random.Random(2)
    async with app.running():
        for _ in range(count):
            after = 0.5 + rng.random() * 2  # after all adds
            at = time.perf_counter() + after
            await due.options(after=after).enqueue(at)
            after = 0.5 + rng.random() * 2
            loop.call_later(after, fired, time.perf_counter() + after)
        await asyncio.sleep(2.7)
    assert len(late) == len(bare) == count
    assert min(late) >= 0, "a task ran early"
    return p99(late), p99(bare)


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99) - 1]


def idle(scale: float) -> list[Figure]:
    """CPU of an idle scheduler with scheduled tasks."""
    return [Figure(asyncio.run(_idle(max(1.0, 4 * scale))), 1, "% CPU", "an idle scheduler", 0.5, least=False)]


async def _idle(seconds: float) -> float:
    app = App("bench", store="memory://")
    task = app.task(noop)
    await task.options(after=3600).enqueue_many([{}] * 1000)
    async with app.running():
        await asyncio.sleep(0.2)
        before = time.process_time()
        await asyncio.sleep(seconds)
        return (time.process_time() - before) / seconds * 100


MEASURES = [drain, growth, memory, lateness, idle]
