"""advance, run_until_idle and drain: their range, their end and their errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from onthedot import (
    App,
    Cancel,
    CronSchedule,
    IntervalSchedule,
    SchedulerStateError,
    Snooze,
    TaskFailed,
    current_task,
)
from onthedot.testing import TestApp
from tests.unit.testing.steps import START, Log, hours, nothing_is_alive, seconds

# -- the three verbs


async def test_run_until_idle_runs_what_is_added_meanwhile(app: App, test: TestApp) -> None:
    @app.task
    async def countdown(n: int) -> None:
        if n:
            await countdown.enqueue(n - 1)

    @app.task
    def in_thread(n: int) -> None:
        if n:
            in_thread.delay(n - 1)

    @app.task
    async def spawning(n: int) -> None:
        if n:
            current_task().spawn(spawning.s(n - 1))

    await countdown.enqueue(20)
    await in_thread.enqueue(20)
    await spawning.enqueue(20)
    await countdown.options(after=1).enqueue(0)
    assert await test.run_until_idle() == 63
    assert test.now() == START
    assert len(test.tasks(state="scheduled")) == 1


async def test_drain_jumps_from_alarm_to_alarm(app: App, test: TestApp, log: Log) -> None:
    @app.task(max_retries=1, backoff=[3600])
    async def first() -> None:
        log("first")
        await second.options(after=timedelta(days=30)).enqueue()
        raise ValueError

    @app.task
    def second() -> None:
        log("second")

    await first.enqueue()
    assert await test.drain() == 4
    month = timedelta(days=30)
    assert log == [("first", hours(0)), ("first", hours(1)), ("second", month), ("second", month + hours(1))]
    assert test.now() == START + month + hours(1)
    assert await test.drain() == 0


async def test_drain_pauses_schedules(app: App, test: TestApp, log: Log) -> None:
    @app.schedule(schedule=IntervalSchedule(interval=3600, immediately=True))
    async def tick() -> None:
        log("tick")

    @app.schedule(schedule=CronSchedule("* * * * *", catch_up="all"))
    async def minute() -> None: ...

    @app.task
    async def remind() -> None:
        log("remind")

    await remind.options(after=timedelta(days=3, minutes=30)).enqueue()
    assert await test.drain() == 1
    assert log == [("remind", timedelta(days=3, minutes=30))]
    test.refute_added(tick)
    assert await test.run_until_idle() == 0  # nothing is caught up
    assert await test.advance(minutes=1) == 1
    test.assert_added(minute, times=1)
    await test.advance(minutes=29)  # and the grid is kept
    assert log[1:] == [("tick", timedelta(days=3, hours=1))]


async def test_drain_runs_what_a_schedule_has_added(app: App, test: TestApp, log: Log) -> None:
    @app.task(schedule=IntervalSchedule(interval=60), max_retries=1, backoff=[45])
    async def tick() -> None:
        log("tick")
        raise ValueError

    assert await test.advance(60) == 1
    assert await test.drain() == 1
    assert log == [("tick", seconds(60)), ("tick", seconds(105))]
    assert await test.advance(15) == 1


async def test_drain_ends_where_only_paused_tasks_are_left(app: App, test: TestApp) -> None:
    @app.task
    async def work() -> None: ...

    await app.pause("work")
    await work.options(after=5).enqueue()
    assert await test.drain() == 0
    assert test.now() == START + seconds(5)
    assert len(test.tasks(state="ready")) == 1


@pytest.mark.parametrize("after", [0, 60])
async def test_endless_runs_are_an_error(app: App, test: TestApp, after: float) -> None:
    @app.task
    async def again() -> None:
        if after:
            raise Snooze(after)
        await again.enqueue()

    test.most_runs = 500
    test.patience = 0.05
    await again.enqueue()
    with pytest.raises(RuntimeError, match=r"runs and no end, \d+ of again.*most_runs is 500"):
        await test.drain()
    nothing_is_alive()
    if not after:
        with pytest.raises(RuntimeError, match="no end"):
            await test.run_until_idle()


async def test_many_are_not_endless(app: App, test: TestApp) -> None:
    @app.task
    async def work(n: int) -> None: ...

    test.most_runs = 10
    await work.enqueue_many([{"n": n} for n in range(2000)])
    assert await test.run_until_idle() == 2000


async def test_concurrent_advance_is_refused(app: App, test: TestApp) -> None:
    @app.task
    async def inside() -> None:
        await test.advance(1)

    await inside.enqueue()
    await test.run_until_idle()
    (info,) = test.failed()
    assert info.error is not None
    assert "under way already" in info.error.message


async def test_methods_work_only_inside_the_block(app: App) -> None:
    test = TestApp(app)
    for verb in (test.advance, test.run_until_idle, test.drain):
        with pytest.raises(SchedulerStateError, match="with TestApp"):
            await verb()
    with pytest.raises(SchedulerStateError, match="with TestApp"):
        test.tasks()


# -- failures


async def test_failures_stay_in_their_tasks(app: App, test: TestApp) -> None:
    @app.task
    async def fail() -> None:
        raise ValueError("no")

    await fail.enqueue()
    await test.run_until_idle()
    (info,) = test.failed()
    assert info.error is not None
    assert (info.error.type, info.error.message) == ("ValueError", "no")


async def test_raise_failures_raises_the_first_failure(app: App, test: TestApp) -> None:
    ran = []

    @app.task(max_retries=1, backoff=[0])
    async def fail(why: str) -> None:
        raise ValueError(why)

    @app.task
    async def gives_up() -> None:
        raise Cancel("not wanted")

    @app.task
    async def work() -> None:
        ran.append("work")

    await fail.enqueue("first")
    await fail.enqueue("second")
    await gives_up.enqueue()
    await work.options(after=5).enqueue()
    with pytest.raises(TaskFailed, match="failed: ValueError: first") as caught:
        await test.drain(raise_failures=True)
    notes = "\n".join(caught.value.__notes__)
    assert "raise ValueError(why)" in notes
    assert "ValueError: second" in notes
    assert ran == ["work"]
    assert await test.run_until_idle(raise_failures=True) == 0  # only of this call


async def test_error_of_the_worker_loop_is_raised(app: App, test: TestApp) -> None:
    class Broken:
        def next_after(self, moment: datetime) -> datetime:
            if moment > START + seconds(30):
                raise ZeroDivisionError("in a rule")
            return START + seconds(60)

    @app.schedule(schedule=Broken())
    async def tick() -> None: ...

    test.patience = 0.05
    with pytest.raises(ZeroDivisionError, match="in a rule"):
        await test.advance(120)
    nothing_is_alive()


async def test_a_lifespan_that_fails_is_raised() -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        raise ConnectionError("no database")
        yield

    app: App[None] = App("shop", lifespan=lifespan)
    with TestApp(app) as test:
        for _ in range(2):
            with pytest.raises(ConnectionError, match="no database"):
                await test.run_until_idle()
    nothing_is_alive()
