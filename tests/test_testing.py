"""``onthedot.testing``: time goes only where the test turns it, everything runs at its moment, and nothing stays alive."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from unittest.mock import ANY

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onthedot import (
    App,
    ArgumentError,
    AtMost,
    BaseTaskConsumer,
    Cancel,
    CronSchedule,
    IntervalSchedule,
    OnTheDotError,
    Rate,
    Retry,
    SchedulerStateError,
    Snooze,
    Task,
    TaskFailed,
    TaskState,
    TaskTimeout,
    current_task,
)
from onthedot.testing import ManualClock, TestApp

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def app() -> App:
    return App("shop", store="redis://nobody.invalid")  # would fail, were it used


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture
def test(app: App) -> Iterator[TestApp]:
    with TestApp(app) as test:
        yield test


class Log(list[tuple[str, timedelta]]):
    """What ran, and how long after the start."""

    def __init__(self, test: TestApp) -> None:
        self._test = test

    def __call__(self, what: str) -> None:
        self.append((what, self._test.now() - START))


@pytest.fixture
def log(test: TestApp) -> Log:
    return Log(test)


def nothing_is_alive() -> None:
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert [each.name for each in threading.enumerate() if each.name.startswith("onthedot")] == []


hours, minutes, seconds = (lambda n, unit=unit: timedelta(**{unit: n}) for unit in ("hours", "minutes", "seconds"))


# -- time


async def test_the_readme(app: App) -> None:
    sent = []

    @app.task
    async def remind(name: str) -> None:
        sent.append(name)

    with TestApp(app) as onthedot_app:
        await remind.options(after=timedelta(days=3)).enqueue("bob")
        await onthedot_app.advance(days=3)
        assert sent == ["bob"]


async def test_nothing_runs_early(app: App, test: TestApp, log: Log) -> None:
    @app.task
    async def remind() -> None:
        log("ran")

    await remind.options(after=60).enqueue()
    assert await test.run_until_idle() == 0
    assert await test.advance(milliseconds=59_999) == 0
    assert await test.advance(milliseconds=1) == 1
    assert log == [("ran", seconds(60))]
    assert test.now() == START + seconds(60)


async def test_each_runs_at_its_moment_and_in_order(app: App, test: TestApp, log: Log) -> None:
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
async def test_units(test: TestApp, turn: dict[str, float], by: float) -> None:
    await test.advance(**turn)
    assert test.now() - START == seconds(by)


async def test_time_does_not_go_back(test: TestApp) -> None:
    with pytest.raises(OnTheDotError, match="out of range"):
        await test.advance(-1)
    with pytest.raises(TypeError, match="fortnights"):
        await test.advance(fortnights=1)
    assert test.now() == START


@settings(deadline=None, max_examples=200)
@given(
    delay=st.floats(0, 1e6) | st.timedeltas(timedelta(0), timedelta(days=400)),
    start=st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),
)
def test_turning_by_what_a_task_is_delayed_runs_it(delay: float | timedelta, start: datetime) -> None:
    app = App("shop", store="memory://")
    work = app.task(none)
    with TestApp(app, ManualClock(start)) as test:
        work.options(after=delay).delay()
        assert test.sync.advance(delay) == 1


async def none() -> None: ...


async def test_a_clock_turned_by_hand_makes_tasks_late(app: App, test: TestApp, log: Log) -> None:
    @app.task
    async def work() -> None:
        log(str(current_task().scheduled_for - START))

    await work.options(after=60).enqueue()
    test.clock.advance(90_000.4)
    assert await test.run_until_idle() == 1
    assert log == [("0:01:00", seconds(90.001))]


# -- what repeats


async def test_retries_with_backoff_over_days(app: App, test: TestApp, log: Log) -> None:
    @app.task(max_retries=4, backoff=[60, 86_400, timedelta(days=7)])
    async def fetch() -> str:
        log(str(current_task().attempt))
        if current_task().attempt < 5:
            raise ConnectionError("down")
        return "at last"

    handle = await fetch.enqueue()
    assert await test.advance(days=30) == 5
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


async def test_a_schedule_by_the_wall_clock(app: App, log: Log) -> None:
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


async def test_snooze(app: App, test: TestApp, log: Log) -> None:
    @app.task
    async def poll() -> None:
        log(str(current_task().attempt))
        if len(log) < 4:
            raise Snooze(timedelta(hours=1))

    await poll.enqueue()
    assert await test.advance(hours=2) == 3
    assert await test.advance(hours=10) == 1
    assert log == [("1", hours(n)) for n in range(4)]


async def test_retry_that_is_asked_for(app: App, test: TestApp, log: Log) -> None:
    @app.task(max_retries=1)
    async def ask() -> None:
        log("ran")
        raise Retry(after=10)

    await ask.enqueue()
    await test.advance(60)
    assert log == [("ran", seconds(0)), ("ran", seconds(10))]
    assert len(test.failed()) == 1


async def test_priorities(test: TestApp) -> None:
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


async def test_limits(app: App, test: TestApp, log: Log) -> None:
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
    assert all(later - before >= 333 for before, later in zip(starts, starts[1:], strict=False))


async def test_at_most(app: App, test: TestApp) -> None:
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


async def test_expiry(app: App, test: TestApp) -> None:
    @app.task(expires=60)
    async def work() -> None: ...

    await app.pause("work")
    await work.enqueue()
    assert await test.advance(minutes=2) == 0
    (info,) = test.tasks()
    assert (info.state, info.reason, info.ended_at) == ("cancelled", "expired", START + minutes(1))


# -- what takes real time


async def test_timeout_of_an_async_task(app: App, test: TestApp, log: Log) -> None:
    @app.task(timeout=30, max_retries=2, backoff=[60])
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            log("cancelled")

    test.patience = 0.05
    handle = await hang.enqueue()
    assert await test.advance(minutes=10) == 3
    assert [when for _, when in log] == [seconds(30), seconds(120), seconds(210)]
    assert isinstance(await handle.exception(), TaskTimeout)
    nothing_is_alive()


async def test_timeout_of_a_thread(app: App, test: TestApp, caplog: pytest.LogCaptureFixture) -> None:
    go_on = threading.Event()

    @app.task(timeout=30)
    def hang() -> None:
        go_on.wait(10)

    @app.task
    def work() -> None: ...

    test.patience = 0.05
    handle = await hang.enqueue()
    await work.options(after=60).enqueue()
    began = time.monotonic()
    assert await test.advance(minutes=2) == 2
    assert time.monotonic() - began < 1
    assert isinstance(await handle.exception(), TaskTimeout)
    assert (await handle.info()).ended_at == START + seconds(30)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert "has timed out" in caplog.text
    stuck = [each for each in threading.enumerate() if each.name.startswith("onthedot-shop-")]
    go_on.set()
    for thread in stuck:
        thread.join()


async def test_time_stands_while_a_thread_works(app: App, test: TestApp, log: Log) -> None:
    @app.task(timeout=1)
    def slow(name: str) -> None:
        time.sleep(0.1)
        log(name)

    await slow.enqueue("a")
    await slow.options(after=0.5).enqueue("b")
    assert await test.advance(days=1) == 2
    assert log == [("a", seconds(0)), ("b", seconds(0.5))]


async def test_many_threads_that_take_longer_than_the_patience_together(app: App, test: TestApp, log: Log) -> None:
    @app.task(concurrency=1)
    def slow() -> None:
        time.sleep(0.02)

    @app.task
    async def later() -> None:
        log("later")

    test.patience = 0.1
    await later.options(after=1).enqueue()
    await slow.enqueue_many([{}] * 15)
    assert await test.advance(1) == 16
    ended = [info.ended_at for info in test.tasks(slow)]
    assert ended == [START] * 15
    assert log == [("later", seconds(1))]


async def test_a_task_that_waits_for_a_later_one(app: App, test: TestApp, log: Log) -> None:
    @app.task
    async def child() -> int:
        return 21

    @app.task
    async def parent() -> int:
        value = await (await child.options(after=3600).enqueue())
        log("went on")
        return 2 * value

    test.patience = 0.05
    handle = await parent.enqueue()
    assert await test.advance(hours=2) == 2
    assert log == [("went on", hours(1))]
    assert await handle == 42
    nothing_is_alive()


async def test_a_task_that_never_ends_is_told(app: App, test: TestApp) -> None:
    @app.task
    async def hang(url: str) -> None:
        await asyncio.Event().wait()

    test.patience, test.give_up = 0.05, 0.2
    await hang.enqueue("http://x")
    for verb in (test.run_until_idle, test.drain):
        with pytest.raises(TimeoutError, match=r"still running after 0.2 real seconds: hang\(url='http://x'\)$"):
            await verb()
        nothing_is_alive()
    (info,) = test.tasks()
    assert (info.state, info.attempt) == ("ready", 1)


async def test_an_advance_that_ends_before_the_timeout_is_told(app: App, test: TestApp) -> None:
    @app.task(timeout=30)
    async def hang() -> None:
        await asyncio.Event().wait()

    test.patience, test.give_up = 0.05, 0.2
    await hang.enqueue()
    with pytest.raises(TimeoutError, match="The next alarm is at 2026-01-01 00:00:30"):
        await test.advance(10)


async def test_a_blocking_task_is_waited_for(app: App, test: TestApp, log: Log) -> None:
    @app.task
    async def block() -> None:
        time.sleep(0.2)  # noqa: ASYNC251 - as users do
        log("done")

    test.patience, test.give_up = 0.05, 0.1
    await block.enqueue()
    await block.options(after=1).enqueue()
    assert await test.advance(1) == 2
    assert log == [("done", seconds(0)), ("done", seconds(1))]


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


async def test_drain_lets_schedules_stand_still(app: App, test: TestApp, log: Log) -> None:
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
async def test_endless_is_told(app: App, test: TestApp, after: float) -> None:
    @app.task
    async def again() -> None:
        if after:
            raise Snooze(after)
        await again.enqueue()

    test.most_runs, test.patience = 500, 0.05
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


async def test_one_at_a_time(app: App, test: TestApp) -> None:
    @app.task
    async def inside() -> None:
        await test.advance(1)

    await inside.enqueue()
    await test.run_until_idle()
    (info,) = test.failed()
    assert info.error is not None
    assert "under way already" in info.error.message


async def test_only_inside_the_block(app: App) -> None:
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


async def test_failures_are_raised_when_asked_for(app: App, test: TestApp) -> None:
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


async def test_what_breaks_the_loop_is_raised(app: App, test: TestApp) -> None:
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


# -- looking


@dataclass
class Order:
    number: int
    at: datetime


@pytest.fixture
def shop(app: App) -> SimpleNamespace:
    @app.task
    async def send(to: str, body: str = "hello", times: int = 1) -> None:
        if to == "eve":
            raise ValueError("no such user")

    @app.task(aliases=("bill_order",))
    async def bill(order: Order, **notes: str) -> None: ...

    return SimpleNamespace(send=send, bill=bill)


async def test_assert_added(app: App, test: TestApp, shop: SimpleNamespace) -> None:
    await shop.send.enqueue("ann")
    last = await shop.send.options(after=60).enqueue("ann", "bye", times=3)
    assert test.assert_added(shop.send).uuid == last.uuid
    assert test.assert_added("send", to="ann", body="bye").state is TaskState.SCHEDULED
    test.assert_added(shop.send, body="hello", times=1)
    test.assert_added(shop.send, {"times": 3}, to=ANY, times=1)
    test.assert_added(shop.send, to="ann", times=2)
    test.refute_added(shop.send, to="bob")
    test.refute_added(shop.bill)


async def test_arguments_are_compared_as_the_function_gets_them(test: TestApp, shop: SimpleNamespace) -> None:
    order = Order(1, START)
    await shop.bill.enqueue(order, colour="red", size="xl")
    info = test.assert_added(shop.bill, order=order, size="xl")
    assert info.args == {"order": order, "colour": "red", "size": "xl"}
    test.assert_added("bill_order", colour="red")
    test.refute_added(shop.bill, size="s")
    test.refute_added(shop.bill, order=Order(2, START))


async def test_what_was_there_instead_is_shown(test: TestApp, shop: SimpleNamespace) -> None:
    await shop.send.enqueue("bob", body="x" * 1000)
    await shop.send.enqueue("eve")
    await test.advance(1.5)
    await shop.send.options(after=86_400).enqueue("dan")
    await shop.bill.enqueue(Order(1, START))
    with pytest.raises(AssertionError) as caught:
        test.assert_added(shop.send, to="ann", body="hello")
    assert str(caught.value) == (
        "send(to='ann', body='hello') was not added; at 2026-01-01 00:00:01.500 there is of send:\n"
        f"  send(to='bob', body='{'x' * 149}…{'x' * 39}') succeeded\n"
        "  send(to='eve') failed: ValueError: no such user\n"
        "  send(to='dan') scheduled for 2026-01-02 00:00:01.500\n"
        "others: 1 bill"
    )


async def test_messages(test: TestApp, shop: SimpleNamespace) -> None:
    with pytest.raises(AssertionError, match=r"^send\(\) was not added; there is no send$"):
        test.assert_added(shop.send)
    await shop.send.enqueue_many([{"to": f"user {n}"} for n in range(30)])
    with pytest.raises(AssertionError, match=r"send\(\) was added 30 times, not 1;") as caught:
        test.assert_added(shop.send, times=1)
    assert "and 10 older" in str(caught.value)
    with pytest.raises(AssertionError, match=r"send\(to='user 3'\) was added; at"):
        test.refute_added(shop.send, to="user 3")


async def test_a_wrong_question_is_refused(app: App, test: TestApp, shop: SimpleNamespace) -> None:
    for ask in (test.assert_added, test.refute_added):
        with pytest.raises(ArgumentError, match=r"send\(\) has no parameter too; it has to, body, times"):
            ask(shop.send, too="ann")
        with pytest.raises(TypeError, match="pass a task function"):
            ask(print)
        with pytest.raises(ValueError, match="another app than 'shop'"):
            ask(App("other", store="memory://").task(none))


async def test_tasks_by_name_and_consumers(app: App, test: TestApp) -> None:
    done = []

    class Email(BaseTaskConsumer):
        name = "email"

        async def consume(self, task: Task) -> None:
            done.append(task.args)

    email = Email()
    app.register(email)
    await app.named("elsewhere").enqueue(number=1)
    await app.named("email").enqueue(to="ann")
    test.assert_added("elsewhere", number=1)
    test.assert_added(app.named("elsewhere"))
    test.assert_added(email, to="ann")
    await test.run_until_idle()
    assert done == [{"to": "ann"}]
    assert [info.source for info in test.failed()] == ["elsewhere"]


async def test_looking(app: App, test: TestApp, shop: SimpleNamespace) -> None:
    await shop.send.enqueue("ann")
    await shop.bill.enqueue(Order(1, START))
    await shop.send.enqueue("eve")
    assert [info.source for info in test.tasks()] == ["send", "bill", "send"]
    assert [info.args["to"] for info in test.tasks(shop.send)] == ["ann", "eve"]
    assert test.tasks(shop.send, state="succeeded") == []
    await test.run_until_idle()
    assert [info.args["to"] for info in test.tasks(shop.send, state="succeeded")] == ["ann"]
    with pytest.raises(ValueError, match="sleeping"):
        test.tasks(state="sleeping")


async def test_it_goes_through_the_codec(app: App, test: TestApp, shop: SimpleNamespace) -> None:
    with pytest.raises(ArgumentError, match=r"\$.to is of type int"):
        await shop.send.enqueue(5)


# -- the worker's life


async def test_a_lifespan_for_every_start() -> None:
    lives = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        lives.append("in")
        yield "state"
        lives.append("out")

    app = App("shop", lifespan=lifespan)

    @app.task
    async def work() -> str:
        return app.state

    with TestApp(app) as test:
        handle = await work.enqueue()
        assert lives == []
        await test.advance(60)
        assert lives == ["in", "out"]
        assert await handle == "state"
        await test.drain()
        assert lives == ["in", "out"] * 2


async def test_nothing_is_alive_between_calls(app: App, test: TestApp) -> None:
    @app.task
    def work(n: int) -> None:
        time.sleep(0.001)

    @app.task(timeout=5)
    async def other() -> None:
        await asyncio.sleep(0.001)

    for _ in range(3):
        await work.enqueue_many([{"n": n} for n in range(50)])
        await other.enqueue()
        await test.advance(60)
        nothing_is_alive()
        assert app.status()["status"] == "stopped"


async def test_waiting_tasks_are_kept_between_calls(app: App, test: TestApp) -> None:
    @app.task
    async def work() -> None: ...

    handle = await work.options(after=100).enqueue()
    for _ in range(9):
        await test.advance(10)
        assert await handle.state() == "scheduled"
    await test.advance(10)
    assert await handle.state() == "succeeded"


async def test_a_worker_of_ones_own_is_driven(app: App, test: TestApp, log: Log) -> None:
    @app.task
    async def work() -> None:
        log("ran")

    async with app.running():
        await work.options(after=60).enqueue()
        assert await test.advance(60) == 1
        assert log == [("ran", seconds(60))]
        assert app.status()["status"] == "running"
        await work.enqueue()
        assert await test.drain() == 1
    nothing_is_alive()


async def test_a_cancelled_advance_leaves_nothing(app: App, test: TestApp) -> None:
    @app.task
    async def hang() -> None:
        await asyncio.Event().wait()

    await hang.enqueue()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(test.advance(60), 0.05)
    nothing_is_alive()
    assert [info.state for info in test.tasks()] == ["ready"]


async def test_two_loops_one_after_the_other(app: App, test: TestApp) -> None:
    @app.task
    async def work() -> int:
        return 1

    await work.enqueue()
    await test.run_until_idle()

    def in_thread() -> int:
        work.delay()
        return test.sync.run_until_idle()

    assert await asyncio.to_thread(in_thread) == 1


async def test_the_app_is_as_before_afterwards(app: App) -> None:
    core = app._core
    before = (core.url, core.clock, core.poll_interval, core.keeps_waiting, core.bridge._new_link)
    with TestApp(app) as test:
        await test.run_until_idle()
        with TestApp(app) as inner:
            await inner.advance(5)
        assert test.now() == START
        await test.advance(1)
    assert (core.url, core.clock, core.poll_interval, core.keeps_waiting, core.bridge._new_link) == before


async def test_each_block_begins_empty(app: App) -> None:
    work = app.task(none)
    for _ in range(2):
        with TestApp(app) as test:
            test.refute_added(work)
            await work.enqueue()


async def test_two_apps_on_one_clock(app: App) -> None:
    other = App("mail", store="memory://")
    log: list[tuple[str, float]] = []
    clock = ManualClock()

    @other.task
    async def send() -> None:
        log.append(("send", (clock.moment() - START).total_seconds()))

    @app.task
    async def order() -> None:
        log.append(("order", (clock.moment() - START).total_seconds()))
        await send.enqueue()

    with TestApp(app, clock) as shop, TestApp(other, clock) as mail:
        await order.options(after=10).enqueue()
        assert await shop.advance(10) == 1
        mail.assert_added(send, times=1)
        shop.refute_added("send")
        assert await mail.run_until_idle() == 1
    assert log == [("order", 10), ("send", 10)]


async def test_waiting_for_a_task_that_nobody_runs_is_told(app: App, test: TestApp) -> None:
    work = app.task(none)
    test.give_up = 0.05
    handle = await work.enqueue()
    with pytest.raises(TimeoutError) as caught:
        await handle
    assert "call one of them first" in caught.value.__notes__[0]
    await test.run_until_idle()
    assert await handle is None


async def test_somebody_else_may_wait_meanwhile(app: App, test: TestApp) -> None:
    @app.task
    async def work() -> int:
        return 7

    async def endpoint() -> int:
        return await (await work.enqueue())

    waiting = asyncio.create_task(endpoint())
    await asyncio.sleep(0)
    assert await test.run_until_idle() == 1
    assert await waiting == 7


# -- sync


def test_sync(app: App, test: TestApp, log: Log) -> None:
    @app.task(max_retries=1, backoff=[60])
    def work(n: int) -> int:
        log(str(n))
        if current_task().attempt == 1:
            raise ValueError
        return n

    @app.task
    async def other() -> None: ...

    handle = work.delay(1)
    other.delay()
    assert test.sync.run_until_idle() == 2
    assert test.sync.advance(minutes=1) == 1
    assert handle.result(timeout=5) == 1
    work.options(after=3600).delay(2)
    assert test.sync.drain() == 2
    assert log == [("1", seconds(0)), ("1", seconds(60)), ("2", seconds(3660)), ("2", seconds(3720))]
    test.assert_added(work, n=2, times=1)


def test_sync_raises_failures(app: App, test: TestApp) -> None:
    @app.task
    def fail() -> None:
        raise ValueError("no")

    fail.delay()
    with pytest.raises(TaskFailed, match="ValueError: no"):
        test.sync.run_until_idle(raise_failures=True)


def test_sync_leaves_the_threads_loop_alone(app: App, test: TestApp) -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        test.sync.advance(1)
        assert asyncio.get_event_loop_policy().get_event_loop() is loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_sync_drives_a_background_worker(app: App, test: TestApp, log: Log) -> None:
    @app.task
    def work() -> None:
        log("ran")

    with app.background():
        work.options(after=60).delay()
        assert test.sync.advance(minutes=2) == 1
    assert log == [("ran", seconds(60))]


async def test_sync_in_an_event_loop_is_told(test: TestApp) -> None:
    with pytest.raises(SchedulerStateError, match="await test.advance"):
        test.sync.advance(1)


async def test_a_worker_on_another_loop_is_told(app: App, test: TestApp) -> None:
    with app.background(), pytest.raises(SchedulerStateError, match=r"`\.sync` drives it there"):
        await test.advance(1)


# -- as it is for pytest


def test_pytest_does_not_collect_it() -> None:
    assert TestApp.__test__ is False


def test_a_day_of_minutes_is_quick(app: App, test: TestApp) -> None:
    @app.schedule(schedule="* * * * *")
    async def tick() -> None: ...

    began = time.monotonic()
    assert test.sync.advance(days=1) == 1440
    assert time.monotonic() - began < 5
