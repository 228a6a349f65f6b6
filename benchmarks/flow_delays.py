"""Delays of flows, signals and steps, beside the pick-up of a plain task by an idle worker or a bare note."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from benchmarks.flow_stores import STORES
from benchmarks.measures import noop
from benchmarks.memory import p99
from benchmarks.report import Figure
from onthedot import App, Retry, current_task, group
from onthedot.clock.system import SystemClock
from onthedot.stores import connect
from onthedot.stores.contract import ClaimRequest, Completed, Lease, Links, NewTask, Note, SlotPool, Store, Wait

_PAUSE = 0.01  # seconds between two measurements, in which the worker becomes idle


async def _pick_ups(app: App, count: int) -> list[float]:
    """Seconds from an add to the first line of the task, of an idle worker in the same process."""
    times: list[float] = []

    @app.task
    async def due(at: float) -> None:
        times.append(time.perf_counter() - at)

    async with app.running():
        for _ in range(count):
            await (await due.enqueue(time.perf_counter())).result(10)
            await asyncio.sleep(_PAUSE)
    return times


async def _chain(app: App, length: int) -> float:
    """Seconds per link."""

    @app.task
    async def first() -> int:
        return 0

    @app.task
    async def link(number: int) -> int:
        return number + 1

    call: Any = first.s()
    for _ in range(length - 1):
        call = call | link
    async with app.running():
        began = time.perf_counter()
        handle = await call.enqueue()
        assert await handle.result(60) == length - 1
        return (time.perf_counter() - began) / length


async def _signals(app: App, count: int) -> list[float]:
    """Seconds from a signal to the first line after the wait."""
    times: list[float] = []

    @app.task
    async def waiter() -> None:
        signal = await current_task().wait_for("go", timeout=60)
        times.append(time.perf_counter() - float(str(signal)))

    async with app.running():
        for _ in range(count):
            handle = await waiter.enqueue()
            while (await handle.info()).state != "waiting":  # noqa: ASYNC110 - no event reports it
                await asyncio.sleep(_PAUSE)
            await handle.signal("go", repr(time.perf_counter()))
            await handle.result(10)
    return times


def flow_delays(scale: float) -> list[Figure]:
    """A link of a chain, and a resumed run, beside the pick-up by an idle worker; on each store."""
    count = max(20, int(100 * scale))
    figures: list[Figure] = []
    for name, stores in STORES.items():
        with stores() as new_store:
            idle = statistics.median(asyncio.run(_pick_ups(App("bench", store=new_store()), count))) * 1000
            link = asyncio.run(_chain(App("bench", store=new_store()), 100)) * 1000
            resumed = statistics.median(asyncio.run(_signals(App("bench", store=new_store()), count))) * 1000
        figures += [
            Figure(link, idle, "ms", f"{name}: link of a chain of 100 beside idle pick-up", 1.5, least=False),
            Figure(resumed, idle, "ms p50", f"{name}: signal to resumed run beside it", 1.5, least=False),
        ]
    return figures


# -- steps


async def _step_time(app: App, count: int) -> float:
    """Seconds of one step."""
    times: list[float] = []

    @app.task
    async def stepping() -> None:
        ctx = current_task()
        for number in range(count):
            began = time.perf_counter()
            await ctx.step(f"s{number}", noop)
            times.append(time.perf_counter() - began)

    async with app.running():
        await (await stepping.enqueue()).result(60)
    return statistics.median(times)


async def _leased(url: str, count: int) -> tuple[Store, list[Lease]]:
    store = connect(url, SystemClock(), "bare")
    await store.open()
    await store.heartbeat("w", b"", 10**12)
    await store.add([NewTask(f"n{number:09}", "send", b"{}") for number in range(count)])
    claimed = (await store.turn("w", [], ClaimRequest(1, [SlotPool(count, {"send": count})]))).claim
    assert claimed is not None
    return store, [Lease(record.uuid, claimed.fence, "w") for record in claimed.tasks]


async def _note_time(url: str, count: int) -> float:
    """Seconds of one awaited note."""
    store, (lease,) = await _leased(url, 1)
    times: list[float] = []
    for number in range(count):
        began = time.perf_counter()
        await store.note([Note(lease, "step", f"s{number}", b'{"at":1,"value":{}}')])
        times.append(time.perf_counter() - began)
    await store.close()
    return statistics.median(times)


def flow_steps(scale: float) -> list[Figure]:
    """One step beside a bare awaited note, on each store."""
    count = max(50, int(500 * scale))
    figures: list[Figure] = []
    for name, stores in STORES.items():
        with stores() as new_store:
            bare = asyncio.run(_note_time(new_store(), count)) * 1e6
            step = asyncio.run(_step_time(App("bench", store=new_store()), count)) * 1e6
        against = f"{name}: a step beside a bare note"
        if name == "memory":
            figures.append(Figure(step, bare, "µs", against, 15, least=False, difference=True))
        else:
            figures.append(Figure(step, bare, "µs", against, 1.2, least=False))
    return figures


async def _steps_at_once(app: App, tasks: int, steps: int) -> float:
    """Seconds per step, from the first to the last."""
    times: list[float] = []

    @app.task
    async def stepping() -> None:
        ctx = current_task()
        times.append(time.perf_counter())
        for number in range(steps):
            await ctx.step(f"s{number}", noop)
        times.append(time.perf_counter())

    async with app.running():
        handles = await stepping.enqueue_many([{}] * tasks)
        for handle in handles:
            await handle.result(60)
    return (max(times) - min(times)) / (tasks * steps)


async def _notes_at_once(url: str, tasks: int, steps: int) -> float:
    """Seconds per note: each is a call of its own."""
    store, leases = await _leased(url, tasks)

    async def write(lease: Lease) -> None:
        for number in range(steps):
            await store.note([Note(lease, "step", f"s{number}", b'{"at":1,"value":{}}')])

    began = time.perf_counter()
    await asyncio.gather(*map(write, leases))
    took = (time.perf_counter() - began) / (tasks * steps)
    await store.close()
    return took


def steps_at_once(scale: float) -> list[Figure]:
    """100 tasks that step at once on Postgres, beside one call per note."""
    steps = max(10, int(20 * scale))
    with STORES["Postgres"]() as new_store:
        bare = asyncio.run(_notes_at_once(new_store(), 100, steps))
        ours = asyncio.run(_steps_at_once(App("bench", store=new_store(), concurrency=100), 100, steps))
    return [
        Figure(1 / ours, 1 / bare, "steps/s", "Postgres: 100 tasks step at once beside a call per note", 5, least=True)
    ]


async def _saved_step(app: App, count: int) -> float:
    """Seconds of one step that an earlier run has saved. The first loads them all, and is not counted."""
    times: list[float] = []

    @app.task(max_retries=1)
    async def stepping() -> None:
        ctx = current_task()
        await ctx.step("first", noop)
        began = time.perf_counter()
        for number in range(count):
            await ctx.step(f"s{number}", noop)
        times.append((time.perf_counter() - began) / count)
        if ctx.attempt == 1:
            raise Retry(after=0)

    async with app.running():
        await (await stepping.enqueue()).result(60)
    return times[1]


def saved_step(scale: float) -> list[Figure]:
    took = asyncio.run(_saved_step(App("bench", store="memory://"), max(50, int(900 * scale)))) * 1e6
    return [Figure(took, 1, "µs", "a saved step", 5, least=False)]


# -- reads and turns


async def _progress(app: App, members: int, count: int) -> tuple[float, float]:
    """Seconds of `progress()` of a flow, and of `info()` of one task."""
    task = app.task(noop)

    @app.task
    async def joined(results: list[None]) -> None: ...

    async with app:
        flow = await (group([task.s() for _ in range(members)]) | joined).enqueue()
        one = await task.options(after=3600).enqueue()
        progresses: list[float] = []
        infos: list[float] = []
        for _ in range(count):
            began = time.perf_counter()
            await flow.progress()
            middle = time.perf_counter()
            await one.info()
            infos.append(time.perf_counter() - middle)
            progresses.append(middle - began)
    return statistics.median(progresses), statistics.median(infos)


def flow_progress(scale: float) -> list[Figure]:
    figures: list[Figure] = []
    for name, stores in STORES.items():
        with stores() as new_store:
            app = App("bench", store=new_store())
            progress, info = asyncio.run(_progress(app, max(100, int(10_000 * scale)), 100))
        against = f"{name}: progress() of 10,000 beside info() of one"
        figures.append(Figure(progress * 1e6, info * 1e6, "µs", against, 2, least=False))
    return figures


async def _turn_times(url: str, links: Links | None, tasks: int) -> list[float]:
    """Seconds of each turn of 8 sessions that drain tasks by tens."""
    stores = [connect(url, SystemClock(), "bench") for _ in range(8)]
    for store in stores:
        await store.open()
    for start in range(0, tasks, 1000):
        numbers = range(start, min(start + 1000, tasks))
        await stores[0].add([NewTask(f"t{number:09}", "send", b"{}", links=links) for number in numbers])
    if links is not None:
        wait = Links(waits=Wait(((links.increments[0], tasks),)))
        await stores[0].add([NewTask("joined", "join", b"{}", links=wait)])
    times: list[float] = []

    async def drain(store: Store, session: str) -> None:
        await store.heartbeat(session, b"", 10**12)
        number = 0
        outcomes: list[Completed] = []
        while number == 0 or outcomes:
            number += 1
            began = time.perf_counter()
            turn = await store.turn(session, outcomes, ClaimRequest(number, [SlotPool(10, {"send": 10})]))
            times.append(time.perf_counter() - began)
            assert turn.claim is not None
            outcomes = [Completed(Lease(record.uuid, turn.claim.fence, session)) for record in turn.claim.tasks]

    await asyncio.gather(*(drain(store, f"w{number}") for number, store in enumerate(stores)))
    for store in stores:
        await store.close()
    return times


def turn_p99(scale: float) -> list[Figure]:
    """p99 of a turn while 8 sessions drain a chord on Postgres, beside plain tasks."""
    tasks = max(400, int(10_000 * scale))
    with STORES["Postgres"]() as new_store:
        plain = p99(asyncio.run(_turn_times(new_store(), None, tasks))) * 1000
        chord = p99(asyncio.run(_turn_times(new_store(), Links("flow", ("flow",)), tasks))) * 1000
    return [Figure(chord, plain, "ms p99", "Postgres: a turn of 8 sessions, chord beside plain", 1.3, least=False)]


MEASURES = [turn_p99, flow_delays, flow_steps, steps_at_once, saved_step, flow_progress]
