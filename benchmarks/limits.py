"""Limits: the cost of blocked tasks for others, and the wait of low priorities.

``./dev bench limits``; ``./dev bench limits --only aging`` draws the plot of the last one.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable

from benchmarks.plots import AGING as PICTURE, aging_svg
from benchmarks.report import Figure
from onthedot import App
from onthedot.clock.manual import ManualClock
from onthedot.clock.system import SystemClock
from onthedot.definitions.new_task import AGING
from onthedot.stores import connect
from onthedot.stores.contract import ClaimRequest, Completed, Lease, Limit, NewTask, Policy, SlotPool, Store
from onthedot.stores.memory import MemoryStore

_CLAIMS = 60  # per round, for each of the two


class Queue:
    """A store in use: a task is added, the last one is settled and the new one claimed, repeatedly."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._number = 0
        self._outcomes: list[Completed] = []

    async def open(self) -> None:
        await self.store.open()
        await self.store.heartbeat("w", b"", 10**12)

    async def fill(self, number: int, source: str, lane: str | None) -> None:
        """Adds the older tasks, which have the lower rank. With a lane they are parked before the measurement."""
        for start in range(0, number, 1000):
            many = range(start, min(start + 1000, number))
            await self.store.add([_new(f"{source}{each:09}", source, lane) for each in many])
        while (await self._turn(0)).more:
            pass

    async def claim(self, source: str, lane: str | None) -> float:
        """µs of the turn that claims the new task."""
        uuid = f"n{self._number:09}"
        await self.store.add([_new(uuid, source, lane)])
        began = time.perf_counter()
        claimed = await self._turn(1)
        took = (time.perf_counter() - began) * 1e6
        assert [task.uuid for task in claimed.tasks] == [uuid], "it was not in the first claim"
        self._outcomes = [Completed(Lease(uuid, claimed.fence, "w"))]
        return took

    async def _turn(self, total: int):  # type: ignore[no-untyped-def]
        self._number += 1
        outcomes = self._outcomes
        self._outcomes = []
        room = {"work": total, "other": total, "paused": total}
        turn = await self.store.turn("w", outcomes, ClaimRequest(self._number, [SlotPool(total, room)]))
        assert turn.claim is not None
        return turn.claim


def _new(uuid: str, source: str, lane: str | None) -> NewTask:
    return NewTask(uuid, source, b'{"args":{"text":"' + b"x" * 83 + b'"}}', lane=lane, policy=Policy(boost=5 * AGING))


class Pair:
    """Two queues of which one has blocked tasks; built once, measured alternately in every round."""

    def __init__(self, kind: str, limits: list[Limit], held: tuple[int, str, str | None]) -> None:
        self._loop = asyncio.new_event_loop()
        self._folder = tempfile.mkdtemp(prefix="onthedot-bench-")
        self._full, self._empty = (Queue(self._store(kind, name)) for name in ("full", "empty"))
        for queue, number in ((self._full, held[0]), (self._empty, 1)):
            self._wait(self._prepare(queue, limits, number, *held[1:]))
        atexit.register(self.close)

    def _store(self, kind: str, name: str) -> Store:
        return MemoryStore() if kind == "memory" else connect(f"sqlite:///{self._folder}/{name}.db", SystemClock())

    def _wait(self, work):  # type: ignore[no-untyped-def]
        return self._loop.run_until_complete(work)

    async def _prepare(self, queue: Queue, limits: list[Limit], number: int, source: str, lane: str | None) -> None:
        await queue.open()
        await queue.store.put_limits(limits)
        await queue.fill(number, source, lane)

    def measure(self, source: str, lane: str | None) -> tuple[float, float]:
        async def claims() -> tuple[float, float]:
            full = []
            empty = []
            for _ in range(_CLAIMS):
                full.append(await self._full.claim(source, lane))
                empty.append(await self._empty.claim(source, lane))
            return statistics.median(full), statistics.median(empty)

        return self._wait(claims())  # type: ignore[no-any-return]

    def close(self) -> None:
        for queue in (self._full, self._empty):
            self._wait(queue.store.close_session("w"))
            self._wait(queue.store.close())
        self._loop.close()
        shutil.rmtree(self._folder)


_pairs: dict[tuple[str, str], Pair] = {}


def _pair(what: str, kind: str, make: Callable[[], Pair]) -> Pair:
    if (what, kind) not in _pairs:
        _pairs[what, kind] = make()
    return _pairs[what, kind]


def blocked_key(scale: float) -> list[Figure]:
    """A claim with 100,000 older tasks of a blocked key of the same source, compared with a claim without them."""
    figures = []
    number = int(100_000 * scale)
    for kind in ("memory", "sqlite"):
        held = (number, "work", "work/blocked")
        limits = [Limit("work/*", cap=5), Limit("work/blocked", paused=True)]
        pair = _pair("blocked", kind, lambda kind=kind, held=held, limits=limits: Pair(kind, limits, held))
        ours, other = pair.measure("work", "work/free")
        figures.append(Figure(ours, other, "µs", f"a claim on {kind} without 100k blocked", 1.3, least=False))
    return figures


def paused_source(scale: float) -> list[Figure]:
    """A claim with a million older tasks of another, paused source, compared with a claim without them."""
    figures = []
    number = int(1_000_000 * scale)
    for kind in ("memory", "sqlite"):
        held = (number, "paused", None)
        limits = [Limit("paused", paused=True, owner="operator")]
        pair = _pair("paused", kind, lambda kind=kind, held=held, limits=limits: Pair(kind, limits, held))
        ours, other = pair.measure("other", None)
        figures.append(Figure(ours, other, "µs", f"a claim on {kind} without 1M paused", 1.3, least=False))
    return figures


def fair_share(scale: float) -> list[Figure]:
    """Time from the add of a task to its start while a million older ones of another source are processed."""
    number = int(1_000_000 * scale)
    with tempfile.TemporaryDirectory(prefix="onthedot-bench-") as folder:
        took = asyncio.run(_fresh(f"sqlite:///{folder}/fair.db", number))
    return [Figure(took, 1, "ms p50", "a fresh task behind a million old ones", 50, least=False)]


async def _fresh(url: str, number: int) -> float:
    app = App("bench", store=url, concurrency=100)
    took = []

    @app.task
    async def old() -> None:
        await asyncio.sleep(0.001)

    @app.task
    async def fresh(at: float) -> None:
        took.append((time.monotonic() - at) * 1000)

    async with app:
        for start in range(0, number, 10_000):
            await old.enqueue_many([{}] * min(10_000, number - start))
        async with app.running():
            await asyncio.sleep(0.5)
            for count in range(1, 41):
                await fresh.enqueue(time.monotonic())
                while len(took) < count:  # noqa: ASYNC110 - as little as can be
                    await asyncio.sleep(0.001)
            tally = await app.runtime.portal.run(lambda client: client.store.tally())
            assert tally["old", "ready"] > 0, "there was nothing to be fair about"
    return statistics.median(took)


def aging(scale: float) -> list[Figure]:
    """The longest wait behind an endless stream of priority 10, in levels, with a driven clock; draws the plot."""
    del scale
    waits = aging_waits()
    PICTURE.write_text(aging_svg(waits))
    levels = [waits[priority] / AGING for priority in range(1, 11)]
    return [Figure(levels[0], 1, "levels", "priority 1 behind an endless 10", 9, least=False)]


def aging_waits(step: int = 1_000) -> dict[int, int]:
    """ms that a task of each priority waits while there is always a new task of priority 10."""
    return {priority: asyncio.run(_waits(priority, step)) for priority in range(1, 11)}


async def _waits(priority: int, step: int) -> int:
    clock = ManualClock()
    queue = MemoryStore(clock)
    waited = 0
    number = 0
    await queue.heartbeat("w", b"", 10**12)
    await queue.add([NewTask("low", "work", b"{}", policy=Policy(boost=priority * AGING))])
    while True:
        number += 1
        await queue.add([NewTask(f"high{number}", "work", b"{}", policy=Policy(boost=10 * AGING))])
        turn = await queue.turn("w", [], ClaimRequest(number, [SlotPool(1, {"work": 1})]))
        assert turn.claim is not None
        (task,) = turn.claim.tasks
        if task.uuid == "low":
            return waited
        await queue.turn("w", [Completed(Lease(task.uuid, turn.claim.fence, "w"), keep=0)], None)
        clock.advance(step)
        waited += step


MEASURES = [blocked_key, paused_source, fair_share, aging]
