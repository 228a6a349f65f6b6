"""Windows of schedules: which run, when, and which log lines the others leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from onthedot import App, AtMost, BadSchedule, IntervalSchedule, current_task
from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import FireRequest, Hint, Hints
from onthedot.stores.memory import MemoryStore
from onthedot.testing import TestApp
from tests.support.consumers import Work, scheduler_of
from tests.support.waits import every_chance, until


async def test_schedule_fires_on_its_grid(app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    begin = clock.moment()
    nominal = list[datetime]()

    @app.schedule(schedule=IntervalSchedule(interval=5))
    async def tick() -> None:
        nominal.append(current_task().scheduled_for)

    assert not hasattr(tick, "delay")
    async with app.running():
        for number, late in enumerate((0, 700, 0), 1):  # fired late, and still on the grid
            clock.advance(number * 5_000 - (clock.moment() - begin) / timedelta(milliseconds=1) + late)
            await until(lambda number=number: len(nominal) == number)
        assert app.status()["scheduled_count"] == 1
    assert nominal == [begin + timedelta(seconds=seconds) for seconds in (5, 10, 15)]
    assert "Schedule registered: tick next 2026-01-01T00:00:05+00:00" in caplog.messages
    assert "[due] schedule tick at 2026-01-01T00:00:10+00:00" in caplog.messages


async def test_schedule_declared_after_the_start_fires(app: App, clock: ManualClock, ran: list[Any]) -> None:
    async with app.running():

        @app.schedule(schedule=IntervalSchedule(interval=5))
        async def tick() -> None:
            ran.append(1)

        await until(lambda: app.status()["scheduled_count"] == 1)
        clock.advance(5_000)
        await until(lambda: ran == [1])


class SilentHints:
    """Only the first hint arrives."""

    def __init__(self) -> None:
        self._is_open = False

    def __aiter__(self) -> Hints:
        return self

    async def __anext__(self) -> Hint:
        if self._is_open:
            await asyncio.Event().wait()
        self._is_open = True
        return Hint(resync=True)

    async def aclose(self) -> None: ...


class FiredByAnother(MemoryStore):
    """Another worker fires just before this one, and dies before its hints are sent."""

    async def fire(self, fires: Sequence[FireRequest]) -> Sequence[bool]:
        await super().fire(fires)
        return await super().fire(fires)

    def hints(self, session: str) -> Hints:
        return SilentHints()


async def test_window_that_another_worker_fired_before_it_died_runs_at_once(app: App, clock: ManualClock) -> None:
    ran: list[float] = []

    @app.schedule(schedule=IntervalSchedule(interval=3600))
    async def tick() -> None:
        ran.append(clock.now())

    app.runtime.use_store(FiredByAnother(clock))
    async with app.running():
        await every_chance()
        clock.advance(3_600_000)
        due = clock.now()
        await until(lambda: ran)
    assert ran == [due], "it does not wait for the poll interval"


# -- windows during a run


@pytest.mark.parametrize(
    ("overlap", "at_once", "windows"),
    [("skip", 1, [5, 20]), ("allow", 3, [5, 10, 15, 20]), ("queue", 1, [5, 10, 15, 20])],
)
async def test_overlapping_windows_follow_the_rule(
    app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture, overlap: Any, at_once: int, windows: list[int]
) -> None:
    caplog.set_level(logging.INFO)
    begin = clock.moment()
    gate = asyncio.Event()
    inside = 0
    most = 0
    began: list[datetime] = []

    @app.schedule(schedule=IntervalSchedule(interval=5, overlap=overlap))
    async def tick() -> None:
        nonlocal inside, most
        began.append(current_task().scheduled_for)
        inside += 1
        most = max(most, inside)
        await gate.wait()
        inside -= 1

    async def next_window() -> None:
        so_far = len(decided())
        clock.advance(5_000)
        await until(lambda: len(decided()) > so_far)
        await every_chance()

    def decided() -> list[str]:
        return [line for line in caplog.messages if line.startswith(("[due]", "[skipped]"))]

    async with app.running():
        for _ in range(3):
            await next_window()
        assert len(began) == at_once
        gate.set()
        await until(lambda: not inside and not app.status()["queue_count"])
        await next_window()
        await until(lambda: len(began) == len(windows) and not inside)
    assert began == [begin + timedelta(seconds=seconds) for seconds in windows], "in their order"
    assert most == at_once
    skipped = [(each.levelname, each.getMessage()) for each in caplog.records if each.levelno > logging.INFO]
    assert skipped == [("WARNING", "[skipped] schedule tick: overlap")] * (4 - len(windows))
    due = [line for line in decided() if line.startswith("[due]")]
    assert due == [f"[due] schedule tick at {at.isoformat()}" for at in began], "the windows that run, and no others"


QUEUED = IntervalSchedule(interval=5, overlap="queue")


def test_queued_schedule_uses_the_only_lane_of_a_task(app: App) -> None:
    both = r"schedule 'work': overlap='queue'.* '@bank'"
    with pytest.raises(BadSchedule, match=both):

        @app.task(schedule=QUEUED, limits=[AtMost(2, name="bank")])
        async def work() -> None: ...

    class Limited(Work):
        schedule = QUEUED
        limits = (AtMost(2, name="bank"),)

    with pytest.raises(BadSchedule, match=both):
        app.register(Limited())
    with pytest.raises(BadSchedule, match=both):
        scheduler_of(Limited())


async def test_queue_of_a_schedule_does_not_limit_other_tasks(app: App, clock: ManualClock) -> None:
    """Tasks added by hand neither wait for the queue nor delay it; other limits of the source hold."""
    gate = asyncio.Event()
    inside = 0

    @app.task(schedule=QUEUED, concurrency=3)
    async def work() -> None:
        nonlocal inside
        inside += 1
        await gate.wait()
        inside -= 1

    async with app.running():
        by_hand = [await work.enqueue(), await work.enqueue()]
        clock.advance(5_000)
        await until(lambda: inside == 3)
        clock.advance(5_000)
        by_hand.append(await work.enqueue())
        await every_chance()
        assert inside == 3
        gate.set()
        assert [await handle for handle in by_hand] == [None] * 3
        await until(lambda: not app.status()["queue_count"] and not inside)


# -- missed windows


@pytest.mark.parametrize(
    ("catch_up", "ran", "count"),
    [("latest", [300], " (4 windows)"), ("none", [], " (5 windows)"), ("all", [60, 120, 180, 240, 300], "")],
)
async def test_missed_windows_follow_catch_up(
    clock: ManualClock, caplog: pytest.LogCaptureFixture, catch_up: Any, ran: list[int], count: str
) -> None:
    begin = clock.moment()
    nominal = list[datetime]()
    app = App("shop", store="memory://", stop_timeout=0)
    schedule = IntervalSchedule(interval=60, catch_up=catch_up, grace=10, overlap="allow")

    @app.schedule(schedule=schedule)
    async def tick() -> None:
        nominal.append(current_task().scheduled_for)

    with app.override(clock=clock):
        async with app.running():
            await until(lambda: app.status()["scheduled_count"])
        clock.advance(330_000)  # no worker runs meanwhile
        async with app.running():
            await every_chance()
            await until(lambda: len(nominal) == len(ran))
    assert nominal == [begin + timedelta(seconds=seconds) for seconds in ran]
    assert caplog.messages == ([f"[skipped] schedule tick: missed{count}"] if count else [])


@pytest.mark.parametrize(
    ("catch_up", "windows", "skipped"),
    [("latest", [6], ["missed (2 windows)"]), ("none", [6], ["missed (2 windows)"]), ("all", [2, 4, 6], [])],
)
async def test_after_a_short_outage_the_log_names_the_windows_that_run(
    app: App,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    catch_up: Any,
    windows: list[int],
    skipped: list[str],
) -> None:
    """All of them are within their grace, and the last run has ended."""
    caplog.set_level(logging.INFO)
    begin = clock.moment()
    ran: list[datetime] = []

    @app.schedule(IntervalSchedule(2, catch_up=catch_up))
    async def tick() -> None:
        ran.append(current_task().scheduled_for)

    async with app.running():
        await every_chance()
        clock.advance(7_000)
        await until(lambda: len(ran) == len(windows))
    expected = [begin + timedelta(seconds=seconds) for seconds in windows]
    assert ran == expected
    lines = [line.partition(" tick") for line in caplog.messages if line.startswith(("[due]", "[skipped]"))]
    due = [after for kind, _, after in lines if kind == "[due] schedule"]
    assert due == [f" at {at.isoformat()}" for at in expected]
    assert [after for kind, _, after in lines if kind == "[skipped] schedule"] == [f": {each}" for each in skipped]


async def test_one_missed_window_is_logged_without_count(
    app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    @app.schedule(schedule=IntervalSchedule(interval=60, catch_up="none", grace=10))
    async def tick() -> None: ...

    async with app.running():
        clock.advance(90_000)
        await until(lambda: caplog.messages)
    assert caplog.messages == ["[skipped] schedule tick: missed"]


async def test_windows_during_a_pause_are_skipped(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.schedule(schedule=IntervalSchedule(interval=60, catch_up="all"))
    async def tick() -> None: ...

    @app.task
    async def remind() -> None: ...

    with TestApp(app) as test:
        await remind.options(after=200).enqueue()
        assert await test.drain() == 1  # schedules are paused meanwhile
        assert caplog.messages == ["[skipped] schedule tick: paused (3 windows)"]
        assert await test.run_until_idle() == 0
        assert await test.advance(40) == 1
