"""Slots in an app: used to the full, shared, limited, in order, paused."""

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
    """Apps with so many slots, by the same clock; all closed in the end."""
    made: list[Any] = []

    def make(concurrency: int) -> App:
        app = App("slots", store="memory://", concurrency=concurrency, stop_timeout=0)
        made.append(app.override(clock=clock))
        return cast("App", made[-1].__enter__())

    yield make
    for override in made:
        override.__exit__(None, None, None)


class Seats:
    """Tasks that sit until they are told to go; who sits where, and the most that ever sat at once."""

    def __init__(self) -> None:
        self.sitting: dict[str, asyncio.Event] = {}
        self.keys: dict[str, str] = {}
        self.most: Counter[str] = Counter()
        self.began: list[str] = []

    async def sit(self, key: str) -> None:
        uuid = current_task().uuid
        self.began.append(key)
        self.sitting[uuid] = asyncio.Event()
        self.keys[uuid] = key
        now = self.now()
        for each in now:
            self.most[each] = max(self.most[each], now[each])
        self.most["all"] = max(self.most["all"], now.total())
        try:
            await self.sitting[uuid].wait()
        finally:
            del self.sitting[uuid]

    def now(self) -> Counter[str]:
        return Counter(self.keys[uuid] for uuid in self.sitting)

    def leave(self, key: str | None = None) -> None:
        next(event for uuid, event in self.sitting.items() if key in (None, self.keys[uuid])).set()


@pytest.fixture
def seats() -> Seats:
    return Seats()


async def drain(seats: Seats, number: int) -> None:
    """Lets them go one by one until so many have sat."""
    while len(seats.began) < number or seats.sitting:
        await until(lambda: seats.sitting)
        before = len(seats.sitting)
        seats.leave()
        await until(lambda before=before: len(seats.sitting) < before or len(seats.began) >= number)
        await every_chance()


async def test_all_slots_are_used_when_only_one_source_has_work(make: Callable[[int], App], seats: Seats) -> None:
    app = make(4)

    @app.task
    async def busy() -> None:
        await seats.sit("busy")

    @app.task
    async def idle() -> None: ...

    async with app.running():
        await busy.enqueue_many([{}] * 10)
        await until(lambda: seats.now() == {"busy": 4})


async def test_a_long_queue_of_one_source_does_not_keep_others_waiting(
    make: Callable[[int], App], seats: Seats
) -> None:
    app = make(4)

    @app.task
    async def old(number: int) -> None:
        await seats.sit("old")

    @app.task
    async def new(number: int) -> None:
        await seats.sit("new")

    async with app.running():
        await old.enqueue_many([{"number": n} for n in range(50)])
        await until(lambda: seats.now() == {"old": 4})
        await new.enqueue_many([{"number": n} for n in range(50)])
        for share in (1, 2, 2, 2):
            seats.leave("old" if share < 2 or seats.now()["old"] > 2 else "new")
            await until(lambda share=share: seats.now() == {"old": 4 - share, "new": share})


@pytest.mark.parametrize("where", ["memory", "sqlite"])
async def test_a_fresh_task_is_in_the_first_claim_however_many_older_ones_wait(
    where: str, tmp_path: Path, seats: Seats
) -> None:
    """tests/faults has it with a million, and the time it takes."""
    url = "memory://" if where == "memory" else f"sqlite:///{tmp_path}/slots.db"
    app = App("slots", store=url, concurrency=4, stop_timeout=0)

    @app.task(priority="high")
    async def old() -> None:
        await seats.sit("old")

    @app.task(priority="low")
    async def new() -> None:
        await seats.sit("new")

    async with app:
        await old.enqueue_many([{}] * 3_000)
        await new.enqueue()
        async with app.running():
            await until(lambda: len(seats.began) == 4)
            assert seats.now() == {"old": 3, "new": 1}


Setup = Callable[[App, Seats], list[TaskFunction[Any, Any, Any]]]


def by_concurrency(app: App, seats: Seats) -> list[TaskFunction[Any, Any, Any]]:
    @app.task(concurrency=3)
    async def work(key: str) -> None:
        await seats.sit(key)

    return [work]


def by_key(app: App, seats: Seats) -> list[TaskFunction[Any, Any, Any]]:
    @app.task(limits=[AtMost(2, by="key")])
    async def work(key: str) -> None:
        await seats.sit(key)

    return [work]


def by_shared_lane(app: App, seats: Seats) -> list[TaskFunction[Any, Any, Any]]:
    @app.task(limits=[AtMost(3, name="gpu")])
    async def train(key: str) -> None:
        await seats.sit(key)

    @app.task(limits=[AtMost(3, name="gpu")])
    async def infer(key: str) -> None:
        await seats.sit(key)

    return [train, infer]


@pytest.mark.parametrize(
    ("setup", "most"),
    [(by_concurrency, {"all": 3}), (by_key, {"x": 2, "y": 2, "z": 2, "all": 6}), (by_shared_lane, {"all": 3})],
)
async def test_limits_hold_and_are_used_up(
    make: Callable[[int], App], seats: Seats, setup: Setup, most: dict[str, int]
) -> None:
    app = make(20)
    tasks = setup(app, seats)
    async with app.running():
        for task in tasks:
            await task.enqueue_many([{"key": key} for key in "xxxxxxyyyyyyzzzzzz"])
        await until(lambda: len(seats.sitting) == most["all"])
        await drain(seats, 18 * len(tasks))
    assert {key: seats.most[key] for key in most} == most


async def test_a_key_that_is_held_back_does_not_hold_back_the_others(make: Callable[[int], App], seats: Seats) -> None:
    app = make(3)
    (work,) = by_key(app, seats)
    async with app.running():
        await work.enqueue_many([{"key": "x"}] * 100)
        await work.enqueue("y")
        await until(lambda: seats.now() == {"x": 2, "y": 1})
        seats.leave("x")
        await until(lambda: len(seats.began) == 4)
        assert seats.now() == {"x": 2, "y": 1}


@pytest.mark.parametrize("others_work", [False, True])
async def test_a_rate_holds_and_is_used_up(make: Callable[[int], App], clock: ManualClock, others_work: bool) -> None:
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


async def test_order_of_priority_then_of_adding(make: Callable[[int], App]) -> None:
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
async def test_aging(make: Callable[[int], App], clock: ManualClock, waited: int, first: str) -> None:
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


async def test_one_slot_is_strict_order_of_due_time_over_all_sources(
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


async def test_pause_and_resume_of_a_source(make: Callable[[int], App], seats: Seats) -> None:
    app = make(9)

    @app.task
    async def work(key: str) -> None:
        await seats.sit(key)

    @app.task
    async def probe() -> None: ...

    async with app.running():
        await work.enqueue("before")
        await until(lambda: seats.began == ["before"])
        await app.pause("work", reason="the bank is down")
        leased = await work.enqueue("held")
        await (await probe.enqueue())  # others go on
        seats.leave("before")  # and what runs
        await until(lambda: not seats.sitting)
        assert await leased.state() == "ready"
        assert seats.began == ["before"]
        await app.resume("work")
        await until(lambda: seats.began == ["before", "held"])


async def test_pause_and_resume_of_one_key(make: Callable[[int], App], seats: Seats) -> None:
    app = make(9)
    (work,) = by_key(app, seats)
    async with app.running():
        await app.pause("work", key="x")
        await work.enqueue_many([{"key": key} for key in "xy"])
        await until(lambda: seats.began == ["y"])
        await app.resume("work", key="x")
        await until(lambda: seats.began == ["y", "x"])
