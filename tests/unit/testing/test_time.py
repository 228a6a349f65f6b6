"""Each task, retry and schedule runs at its very moment, in order."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from onthedot import (
    App,
    AtMost,
    CronSchedule,
    IntervalSchedule,
    OnTheDotError,
    Rate,
    Retry,
    Snooze,
    current_task,
)
from onthedot.testing import ManualClock, TestApp
from tests.unit.testing.steps import START, Log, hours, minutes, none, seconds

# -- time


async def test_example_of_the_readme_runs(app: App) -> None:
    sent = []

    @app.task
    async def remind(name: str) -> None:
        sent.append(name)

    with TestApp(app) as onthedot_app:
        await remind.options(after=timedelta(days=3)).enqueue("bob")
        await onthedot_app.advance(days=3)
        assert sent == ["bob"]


async def test_task_does_not_run_before_its_time(app: App, test: TestApp, log: Log) -> None:
    @app.task
    async def remind() -> None:
        log("ran")

    await remind.options(after=60).enqueue()
    assert await test.run_until_idle() == 0
    assert await test.advance(milliseconds=59_999) == 0
    assert await test.advance(milliseconds=1) == 1
    assert log == [("ran", seconds(60))]
    assert test.now() == START + seconds(60)


async def test_tasks_run_at_their_moments_in_order(app: App, test: TestApp, log: Log) -> None:
    @app.task
    async def work(name: str) -> None:
        log(name)

    @app.task
    def thread(name: str) -> None:
        log(name)

    await work.options(after=30).enqueue("third")
    await thread.options(after=20).enqueue("second")
    await work.options(at=START + seconds(10)).enqueue("first")
    await thread.options(after=31).enqueue("later")
    await work.enqueue("now")
    assert await test.advance(30) == 4
    assert log == [("now", seconds(0)), ("first", seconds(10)), ("second", seconds(20)), ("third", seconds(30))]


@pytest.mark.parametrize(
    ("turn", "by"),
    [
        ({"seconds": 90}, 90),
        ({"seconds": timedelta(minutes=2)}, 120),
        ({"weeks": 1, "days": 1, "hours": 1, "minutes": 1, "seconds": 1, "milliseconds": 1}, 694_861.001),
        ({"seconds": timedelta(minutes=2), "hours": 1}, 3720),
        ({}, 0),
    ],
)
async def test_advance_takes_every_unit(test: TestApp, turn: dict[str, float], by: float) -> None:
    await test.advance(**turn)
    assert test.now() - START == seconds(by)


async def test_clock_cannot_be_turned_back(test: TestApp) -> None:
    with pytest.raises(OnTheDotError, match="out of range"):
        await test.advance(-1)
    with pytest.raises(TypeError, match="fortnights"):
        await test.advance(fortnights=1)
    assert test.now() == START


@settings(deadline=None, max_examples=200)
@given(
    delay=st.floats(0, 1e6) | st.timedeltas(timedelta(0), timedelta(days=400)),
    start=st.datetimes(START.replace(tzinfo=None), timezones=st.just(UTC)).filter(lambda moment: moment.year < 2100),
)
def test_advance_by_the_delay_runs_the_task(delay: float | timedelta, start: datetime) -> None:
    app = App("shop", store="memory://")
    work = app.task(none)
    with TestApp(app, ManualClock(start)) as test:
        work.options(after=delay).delay()
        assert test.sync.advance(delay) == 1


async def test_clock_set_by_hand_makes_tasks_late(app: App, test: TestApp, log: Log) -> None:
    @app.task
    async def work() -> None:
        log(str(current_task().scheduled_for - START))

    await work.options(after=60).enqueue()
    test.clock.advance(90_000.4)
    assert await test.run_until_idle() == 1
    assert log == [("0:01:00", seconds(90.001))]


# -- what repeats


async def test_retries_run_after_backoffs_of_days(app: App, test: TestApp, log: Log) -> None:
    @app.task(max_retries=4, backoff=[60, 86_400, timedelta(days=7)])
    async def fetch() -> str:
        log(str(current_task().attempt))
        if current_task().attempt < 5:
            raise ConnectionError("down")
        return "at last"

    handle = await fetch.enqueue()
    assert await test.advance(days=16) == 5
    day = timedelta(days=1)
    at = [timedelta(0), seconds(60), day + seconds(60), 8 * day + seconds(60), 15 * day + seconds(60)]
    assert log == [(str(number), when) for number, when in enumerate(at, 1)]
    assert await handle == "at last"
    (info,) = test.tasks()
    assert [error.message for error in info.errors] == ["down"] * 4


async def test_a_schedule_fires_every_hour_at_its_moment(app: App, test: TestApp, log: Log) -> None:
    @app.schedule(schedule=IntervalSchedule(interval=3600))
    def tick() -> None:
        log(str(current_task().scheduled_for - START))

    assert await test.advance(days=3) == 72
    assert [when for _, when in log] == [hours(n) for n in range(1, 73)]
    assert all(nominal == str(when) for nominal, when in log)
    assert len(test.tasks(tick)) == 72
    assert await test.advance(minutes=59) == 0
    assert await test.advance(minutes=1) == 1


async def test_cron_schedule_follows_the_wall_clock_of_its_zone(app: App, log: Log) -> None:
    @app.schedule(schedule=CronSchedule("0 3 * * *", tz="Europe/Berlin"))
    async def nightly() -> None:
        runs.append(current_task().scheduled_for)

    runs: list[datetime] = []
    with TestApp(app, ManualClock(datetime(2026, 3, 28, tzinfo=UTC))) as test:
        await test.advance(days=2)
    assert [run.astimezone(UTC).hour for run in runs] == [2, 1]  # the clocks changed in between


async def test_ended_tasks_are_kept_however_far_the_clock_goes(app: App, test: TestApp) -> None:
    @app.schedule(schedule="0 9 * * mon")
    async def weekly() -> None: ...

    await test.advance(weeks=20)
    assert len(test.tasks(weekly, state="succeeded")) == 20
    await app.purge()
    assert len(test.tasks(weekly)) == 1


async def test_snoozed_task_runs_again_after_its_snooze(app: App, test: TestApp, log: Log) -> None:
    @app.task
    async def poll() -> None:
        log(str(current_task().attempt))
        if len(log) < 4:
            raise Snooze(timedelta(hours=1))

    await poll.enqueue()
    assert await test.advance(hours=2) == 3
    assert await test.advance(hours=10) == 1
    assert log == [("1", hours(n)) for n in range(4)]


async def test_raised_retry_runs_again(app: App, test: TestApp, log: Log) -> None:
    @app.task(max_retries=1)
    async def ask() -> None:
        log("ran")
        raise Retry(after=10)

    await ask.enqueue()
    await test.advance(60)
    assert log == [("ran", seconds(0)), ("ran", seconds(10))]
    assert len(test.failed()) == 1


async def test_urgent_tasks_run_first(test: TestApp) -> None:
    app = App("one", concurrency=1)
    order = []

    @app.task
    async def work(name: str) -> None:
        order.append(name)

    with TestApp(app) as test:
        for priority in ("low", "normal", "high", "low", "high"):
            await work.options(priority=priority).enqueue(priority)
        await test.run_until_idle()
    assert order == ["high", "high", "normal", "low", "low"]


async def test_rate_limits_hold_while_the_clock_is_turned(app: App, test: TestApp, log: Log) -> None:
    @app.task(limits=[Rate("3/s", burst=1, by="who")])
    async def call(who: str) -> None:
        log(who)

    @app.task(rate_limit="100/s")
    async def often(n: int) -> None: ...

    for _ in range(4):
        await call.enqueue("acme")
    await often.enqueue_many([{"n": n} for n in range(1000)])
    assert await test.advance(minutes=1) == 1004
    starts = [when / timedelta(milliseconds=1) for _, when in log]
    assert starts == pytest.approx([0, 1000 / 3, 2000 / 3, 1000], abs=2)
    assert all(later - before >= 333 for before, later in pairwise(starts))


async def test_at_most_bounds_running_tasks_per_key(app: App, test: TestApp) -> None:
    most = running = 0

    @app.task(limits=[AtMost(2, by="who")])
    def work(who: str) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        time.sleep(0.002)
        running -= 1

    await work.enqueue_many([{"who": "acme"}] * 10)
    assert await test.run_until_idle() == 10
    assert most <= 2


async def test_task_expires_when_the_clock_passes_its_time(app: App, test: TestApp) -> None:
    @app.task(expires=60)
    async def work() -> None: ...

    await app.pause("work")
    await work.enqueue()
    assert await test.advance(minutes=2) == 0
    (info,) = test.tasks()
    assert (info.state, info.reason, info.ended_at) == ("cancelled", "expired", START + minutes(1))


@pytest.mark.timed
def test_advance_by_a_day_of_minutes_is_quick(app: App, test: TestApp) -> None:
    @app.schedule(schedule="* * * * *")
    async def tick() -> None: ...

    began = time.monotonic()
    assert test.sync.advance(days=1) == 1440
    assert time.monotonic() - began < 10
