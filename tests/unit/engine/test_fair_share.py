"""Slots in an app: fully used, shared fairly, limited, in order, paused."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from onthedot import App, AtMost, TaskFunction, current_task
from onthedot.clock.manual import ManualClock
from tests.support.waits import every_chance, until

# -- in an app


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make(clock: ManualClock) -> Iterator[Callable[[int], App]]:
    """Creates apps with a number of slots and the same clock."""
    made: list[Any] = []

    def make(concurrency: int) -> App:
        app = App("slots", store="memory://", concurrency=concurrency, stop_timeout=0)
        made.append(app.override(clock=clock))
        return cast("App", made[-1].__enter__())

    yield make
    for override in made:
        override.__exit__(None, None, None)


class Gate:
    """Tasks that run until they are released; which run now, and the most that ran at once."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Event] = {}
        self.keys: dict[str, str] = {}
        self.most: Counter[str] = Counter()
        self.began: list[str] = []

    async def run(self, key: str) -> None:
        uuid = current_task().uuid
        self.began.append(key)
        self.running[uuid] = asyncio.Event()
        self.keys[uuid] = key
        now = self.now()
        for each in now:
            self.most[each] = max(self.most[each], now[each])
        self.most["all"] = max(self.most["all"], now.total())
        try:
            await self.running[uuid].wait()
        finally:
            del self.running[uuid]

    def now(self) -> Counter[str]:
        return Counter(self.keys[uuid] for uuid in self.running)

    def release(self, key: str | None = None) -> None:
        next(event for uuid, event in self.running.items() if key in (None, self.keys[uuid])).set()


@pytest.fixture
def gate() -> Gate:
    return Gate()


async def drain(gate: Gate, number: int) -> None:
    """Releases runs one by one until `number` have run."""
    while len(gate.began) < number or gate.running:
        await until(lambda: gate.running)
        before = len(gate.running)
        gate.release()
        await until(lambda before=before: len(gate.running) < before or len(gate.began) >= number)
        await every_chance()


async def test_all_slots_are_used_when_only_one_source_has_work(make: Callable[[int], App], gate: Gate) -> None:
    app = make(4)

    @app.task
    async def busy() -> None:
        await gate.run("busy")

    @app.task
    async def idle() -> None: ...

    async with app.running():
        await busy.enqueue_many([{}] * 10)
        await until(lambda: gate.now() == {"busy": 4})


async def test_long_queue_of_one_source_does_not_delay_others(make: Callable[[int], App], gate: Gate) -> None:
    app = make(4)

    @app.task
    async def old(number: int) -> None:
        await gate.run("old")

    @app.task
    async def new(number: int) -> None:
        await gate.run("new")

    async with app.running():
        await old.enqueue_many([{"number": n} for n in range(50)])
        await until(lambda: gate.now() == {"old": 4})
        await new.enqueue_many([{"number": n} for n in range(50)])
        for share in (1, 2, 2, 2):
            gate.release("old" if share < 2 or gate.now()["old"] > 2 else "new")
            await until(lambda share=share: gate.now() == {"old": 4 - share, "new": share})


@pytest.mark.parametrize("where", ["memory", "sqlite"])
async def test_new_source_is_in_the_first_claim_despite_a_long_queue_of_another(
    where: str, tmp_path: Path, gate: Gate
) -> None:
    """tests/faults repeats it with a million tasks and measures the time."""
    url = "memory://" if where == "memory" else f"sqlite:///{tmp_path}/slots.db"
    app = App("slots", store=url, concurrency=4, stop_timeout=0)

    @app.task(priority="high")
    async def old() -> None:
        await gate.run("old")

    @app.task(priority="low")
    async def new() -> None:
        await gate.run("new")

    async with app:
        await old.enqueue_many([{}] * 3_000)
        await new.enqueue()
        async with app.running():
            await until(lambda: len(gate.began) == 4)
            assert gate.now() == {"old": 3, "new": 1}


Setup = Callable[[App, Gate], list[TaskFunction[Any, Any, Any]]]


def by_concurrency(app: App, gate: Gate) -> list[TaskFunction[Any, Any, Any]]:
    @app.task(concurrency=3)
    async def work(key: str) -> None:
        await gate.run(key)

    return [work]


def by_key(app: App, gate: Gate) -> list[TaskFunction[Any, Any, Any]]:
    @app.task(limits=[AtMost(2, by="key")])
    async def work(key: str) -> None:
        await gate.run(key)

    return [work]


def by_shared_lane(app: App, gate: Gate) -> list[TaskFunction[Any, Any, Any]]:
    @app.task(limits=[AtMost(3, name="gpu")])
    async def train(key: str) -> None:
        await gate.run(key)

    @app.task(limits=[AtMost(3, name="gpu")])
    async def infer(key: str) -> None:
        await gate.run(key)

    return [train, infer]


@pytest.mark.parametrize(
    ("setup", "most"),
    [(by_concurrency, {"all": 3}), (by_key, {"x": 2, "y": 2, "z": 2, "all": 6}), (by_shared_lane, {"all": 3})],
)
async def test_limits_hold_and_are_fully_used(
    make: Callable[[int], App], gate: Gate, setup: Setup, most: dict[str, int]
) -> None:
    app = make(20)
    tasks = setup(app, gate)
    async with app.running():
        for task in tasks:
            await task.enqueue_many([{"key": key} for key in "xxxxxxyyyyyyzzzzzz"])
        await until(lambda: len(gate.running) == most["all"])
        await drain(gate, 18 * len(tasks))
    assert {key: gate.most[key] for key in most} == most


async def test_key_without_capacity_does_not_delay_other_keys(make: Callable[[int], App], gate: Gate) -> None:
    app = make(3)
    (work,) = by_key(app, gate)
    async with app.running():
        await work.enqueue_many([{"key": "x"}] * 100)
        await work.enqueue("y")
        await until(lambda: gate.now() == {"x": 2, "y": 1})
        gate.release("x")
        await until(lambda: len(gate.began) == 4)
        assert gate.now() == {"x": 2, "y": 1}


@pytest.mark.parametrize("others_work", [False, True])
async def test_rate_holds_and_is_fully_used(make: Callable[[int], App], clock: ManualClock, others_work: bool) -> None:
    app = make(20)
    began: list[float] = []
    zero = clock.now()

    @app.task(rate_limit="2/s")
    async def work() -> None:
        began.append(clock.now() - zero)

    @app.task
    async def other() -> None: ...

    async with app.running():
        await work.enqueue_many([{}] * 6)
        await until(lambda: len(began) == 2)  # the burst
        for number in range(3, 7):
            clock.advance(499)
            if others_work:
                await (await other.enqueue())
            await every_chance()
            assert len(began) == number - 1
            clock.advance(1)
            await until(lambda number=number: len(began) == number)
    assert began == [0, 0, 500, 1000, 1500, 2000]


# -- order


async def test_tasks_run_by_priority_then_in_order_of_adding(make: Callable[[int], App]) -> None:
    app = make(1)
    order: list[str] = []

    @app.task
    async def note(name: str) -> None:
        order.append(name)

    async with app:
        for name, priority in (("n1", "normal"), ("l", "low"), ("n2", 5), ("9", 9), ("h1", "high"), ("h2", 10)):
            await note.options(priority=priority).enqueue(name)  # type: ignore[arg-type]
    async with app.running():
        await until(lambda: len(order) == 6)
    assert order == ["h1", "h2", "9", "n1", "n2", "l"]


@pytest.mark.parametrize(("waited", "first"), [(539, "high"), (541, "low")])  # nine levels of 60 s
async def test_long_wait_overtakes_priority(
    make: Callable[[int], App], clock: ManualClock, waited: int, first: str
) -> None:
    app = make(1)
    order: list[str] = []

    @app.task
    async def note(name: str) -> None:
        order.append(name)

    async with app:
        await note.options(priority="low").enqueue("low")
        clock.advance(waited * 1000)
        await note.options(priority="high").enqueue("high")
    async with app.running():
        await until(lambda: len(order) == 2)
    assert order[0] == first


async def test_one_slot_runs_tasks_of_all_sources_in_order_of_due_time(
    make: Callable[[int], App], clock: ManualClock
) -> None:
    app = make(1)
    order: list[int] = []
    now = 0

    @app.task
    async def on_loop(number: int) -> None:
        nonlocal now
        now += 1
        await asyncio.sleep(0)
        assert now == 1
        order.append(number)
        now -= 1

    @app.task
    def in_thread(number: int) -> None:
        nonlocal now
        now += 1
        assert now == 1
        order.append(number)
        now -= 1

    async with app:
        for number in reversed(range(20)):
            task = (on_loop, in_thread)[number % 2]
            await task.options(after=number // 4).enqueue(number)
    clock.advance(60_000)
    async with app.running():
        await until(lambda: len(order) == 20)
    assert order == [number for four in range(5) for number in reversed(range(4 * four, 4 * four + 4))]


# -- pause


async def test_pause_and_resume_of_a_source(make: Callable[[int], App], gate: Gate) -> None:
    app = make(9)

    @app.task
    async def work(key: str) -> None:
        await gate.run(key)

    @app.task
    async def probe() -> None: ...

    async with app.running():
        await work.enqueue("before")
        await until(lambda: gate.began == ["before"])
        await app.pause("work", reason="the bank is down")
        leased = await work.enqueue("held")
        await (await probe.enqueue())  # other sources continue
        gate.release("before")  # and so do running tasks
        await until(lambda: not gate.running)
        assert await leased.state() == "ready"
        assert gate.began == ["before"]
        await app.resume("work")
        await until(lambda: gate.began == ["before", "held"])


async def test_pause_and_resume_of_one_key(make: Callable[[int], App], gate: Gate) -> None:
    app = make(9)
    (work,) = by_key(app, gate)
    async with app.running():
        await app.pause("work", key="x")
        await work.enqueue_many([{"key": key} for key in "xy"])
        await until(lambda: gate.began == ["y"])
        await app.resume("work", key="x")
        await until(lambda: gate.began == ["y", "x"])
