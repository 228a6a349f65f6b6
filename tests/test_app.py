"""The app: adding, its doors, what it shares with tasks, and what it says."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import re
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onthedot import (
    App,
    ArgumentError,
    AtMost,
    BadLimit,
    BadSchedule,
    BaseTaskConsumer,
    DeclarationError,
    DuplicateTask,
    IntervalSchedule,
    Rate,
    SchedulerStateError,
    StoreRefused,
    Task,
    TaskCancelled,
    TaskFailed,
    TaskOptions,
    current_task,
)
from onthedot.clock import ManualClock

LONG = 30.0  # seconds: longer than any test; nothing waits it out
SOON = 10.0  # seconds within which everything here happens, also on a busy machine
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def app(clock: ManualClock) -> Iterator[App]:
    app = App("shop", store="memory://", stop_timeout=0)
    with app.override(clock=clock):
        yield app


@pytest.fixture
def ran() -> list[Any]:
    return []


@pytest.fixture
def send(app: App, ran: list[Any]) -> Any:
    @app.task
    async def send(to: str, body: str = "hello") -> str:
        ran.append(to)
        return f"{body}, {to}"

    return send


async def until(condition: Callable[[], Any]) -> None:
    """Waits until it is so; `condition` may be async."""
    async with asyncio.timeout(SOON):
        while True:
            answer = condition()
            if await answer if inspect.isawaitable(answer) else answer:
                return
            await asyncio.sleep(0.001)


# -- adding


def test_delay_is_stored_when_it_returns(app: App, send: Any) -> None:
    handle = send.delay("ann")
    (info,) = app.sync.find(source="send").tasks
    assert (info.uuid, info.state, info.args, handle.added) == (handle.uuid, "ready", {"to": "ann"}, True)


async def test_async_with_app_adds_and_looks_and_runs_nothing(app: App, send: Any, ran: list[Any]) -> None:
    async with app as same:
        assert same is app
        handle = await send.enqueue("ann")
        assert (await app.get(handle.uuid[:20])).state == "ready"
        with pytest.raises(TimeoutError):
            await handle.result(timeout=0.02)
        assert app.status()["status"] == "stopped"
    assert ran == []
    async with app.running():
        assert await handle == "hello, ann"


async def test_delay_works_inside_a_running_loop(app: App, send: Any, ran: list[Any]) -> None:
    async with app.running():
        send.delay("ann")
        await until(lambda: ran == ["ann"])


def test_the_function_is_still_the_function(send: Any) -> None:
    assert asyncio.run(send("ann", body="bye")) == "bye, ann"
    assert (send.__name__, send.name, repr(send)) == ("send", "send", "<task send>")


OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "after": ({"after": 1.5}, {"state": "scheduled", "schedule_at": NOON + timedelta(seconds=1.5)}),
    "after a timedelta": ({"after": timedelta(days=2)}, {"schedule_at": NOON + timedelta(days=2)}),
    "at": ({"at": NOON + timedelta(microseconds=7)}, {"schedule_at": NOON + timedelta(microseconds=7)}),
    "at, long ago": ({"at": NOON - timedelta(days=1)}, {"state": "ready"}),
    "priority": ({"priority": "high"}, {"priority": 10}),
    "unique": ({"unique": "k"}, {"unique": "k"}),
    "tags": ({"tags": ["eu", "vip"]}, {"tags": ("eu", "vip")}),
    "label": ({"label": "to {braces} as they are"}, {"label": "to {braces} as they are"}),
    "metadata": ({"metadata": {"trace": [1, {"x": None}]}}, {"metadata": {"trace": [1, {"x": None}]}}),
    "uuid": ({"uuid": "order-17"}, {"uuid": "order-17"}),
}


@pytest.mark.parametrize(("options", "expected"), OPTIONS.values(), ids=OPTIONS.keys())
def test_options_of_one_call(app: App, send: Any, options: dict[str, Any], expected: dict[str, Any]) -> None:
    adding = send.options(**options)
    info = app.sync.get(adding.delay("ann").uuid)
    assert {name: getattr(info, name) for name in expected} == expected
    assert app.sync.get(send.delay("bob").uuid).schedule_at == NOON  # the function itself has not changed


def test_options_of_a_declaration_and_of_the_app() -> None:
    app = App("shop", store="memory://", defaults=TaskOptions(priority="low", tags=("all",)))

    @app.task(label="{to} gets {body!r}", tags=("mail",))
    async def send(to: str, body: str = "hello") -> None: ...

    info = app.sync.get(send.delay("ann").uuid)
    assert (info.label, info.tags, info.priority) == ("ann gets 'hello'", ("mail",), 1)


@pytest.mark.parametrize("verb", ["delay_many", "enqueue_many", "app.enqueue_many"])
async def test_adding_many(app: App, send: Any, ran: list[Any], verb: str) -> None:
    names = [f"n{number}" for number in range(2500)]  # more than a store takes at once
    async with app:
        handles: list[Any]
        match verb:
            case "delay_many":
                handles = send.delay_many([{"to": name} for name in names])
            case "enqueue_many":
                handles = await send.options(tags=["many"]).enqueue_many([{"to": name} for name in names])
            case _:
                handles = await app.enqueue_many([send.s(name, body="bye") for name in names])
        assert len({handle.uuid for handle in handles}) == len(names)
    async with app.running():
        await until(lambda: len(ran) == len(names))
        assert ran == names
        assert (await app.get(handles[-1].uuid)).args["to"] == names[-1]


@pytest.mark.parametrize("many", [[{"to": "ann"}, {"two": "bob"}], [{"to": "ann"}, {"to": 17}]])
def test_of_many_none_is_stored_when_one_is_wrong(app: App, send: Any, many: list[dict[str, Any]]) -> None:
    with pytest.raises(ArgumentError):
        send.delay_many(many)
    assert app.sync.find().tasks == ()


async def test_a_call_that_has_not_been_made(app: App, send: Any) -> None:
    call = send.options(after=LONG).s("ann", body="bye")
    assert (repr(call), call.source) == ("send('ann', body='bye')", "send")
    with pytest.raises(ArgumentError):
        send.s()
    (handle,) = await app.enqueue_many([call])
    assert await handle.state() == "scheduled"


async def test_named_adds_without_having_the_code(app: App, clock: ManualClock) -> None:
    other = App("shop", store="memory://")
    other._core._store = app._core.store  # as if both had the URL of a shared one

    @other.task(name="report.build")
    async def build(customer: str, day: str) -> str:
        return f"{day} for {customer}"

    build_report = app.named("report.build")
    with pytest.raises(ArgumentError, match="by name"):
        build_report.delay("acme")
    handle = build_report.delay(customer="acme", day="monday")
    async with other.running():
        assert await other.ahandle(handle.uuid) == "monday for acme"
        error = await other.ahandle(build_report.delay(customer="acme").uuid).exception()  # whoever runs it checks
    assert isinstance(error, TaskFailed)
    assert "day" in error.message


def test_named_with_options(app: App, send: Any) -> None:
    for named in (app.named("send"), app.named("report.build")):
        handle = named.options(after=LONG, tags=["eu"]).delay(to="ann")
        assert (handle.info().state, handle.info().tags) == ("scheduled", ("eu",))


async def test_aliases_are_names_of_the_same_task(app: App, ran: list[Any]) -> None:
    @app.task(name="mail.send", aliases=("send_mail",))
    async def send(to: str) -> None:
        ran.append(to)

    app.named("send_mail").delay(to="ann")
    send.delay("bob")
    async with app.running():
        await until(lambda: len(ran) == 2)
    assert set(ran) == {"ann", "bob"}


async def test_a_consumer_in_an_app(app: App, ran: list[Any]) -> None:
    class Email(BaseTaskConsumer):
        name, concurrent_count = "email", 2

        async def consume(self, task: Task) -> None:
            ran.append(task.args["to"])

    app.register(Email())
    async with app.running():
        await app.named("email").enqueue(to="ann")
        await until(lambda: ran == ["ann"])


# -- what is wrong is said at once, and nothing is stored


class Unstorable: ...


BAD_CALLS: dict[str, tuple[Callable[[Any], object], type[Exception], str]] = {
    "missing": (lambda send: send.delay(), ArgumentError, "to"),
    "unknown": (lambda send: send.delay("ann", subject="x"), ArgumentError, "subject"),
    "too many": (lambda send: send.delay("ann", "hi", "there"), ArgumentError, "send"),
    "wrong type": (lambda send: send.delay(17), ArgumentError, "to"),
    "unserialisable": (lambda send: send.delay(Unstorable()), ArgumentError, "to"),
    "too large": (lambda send: send.delay("x" * 2_000_000), ArgumentError, "send"),
    "naive": (lambda send: send.options(at=datetime(2026, 1, 1)).delay("ann"), ValueError, "no time zone"),  # noqa: DTZ001
    "at and after": (lambda send: send.options(at=NOON, after=1).delay("ann"), ArgumentError, "one of them"),
    "unknown option": (lambda send: send.options(before=1), ArgumentError, "'before'"),
    "negative": (lambda send: send.options(after=-1).delay("ann"), DeclarationError, "out of range"),
    "priority": (lambda send: send.options(priority=11).delay("ann"), ValueError, "1 to 10"),
    "tags": (lambda send: send.options(tags="eu").delay("ann"), ValueError, "list of strings"),
    "uuid": (lambda send: send.options(uuid="no good").delay("ann"), ValueError, "no good"),
    "connection": (lambda send: send.options(connection=object()).delay("ann"), StoreRefused, "transaction"),
}


@pytest.mark.parametrize(("call", "kind", "words"), BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_bad_calls(app: App, send: Any, call: Callable[[Any], object], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        call(send)
    assert app.sync.find().tasks == ()


def plain(key: str, cost: int = 1) -> None: ...


BAD_TASKS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "unknown option": ({"retries": 3}, DeclarationError, "'retries'"),
    "two lanes": ({"limits": [AtMost(1, by="key"), AtMost(1, name="x")]}, BadLimit, "two lanes"),
    "lane of no parameter": ({"limits": [AtMost(1, by="kee")]}, BadLimit, "kee"),
    "schedule without arguments": ({"schedule": timedelta(hours=1)}, BadSchedule, "key"),
    "bad cron": ({"schedule": "99 * * * *"}, BadSchedule, "99"),
    "template": ({"unique": "{kee}"}, DeclarationError, "kee"),
    "timeout": ({"timeout": 0}, DeclarationError, "timeout"),
    "max_retries": ({"max_retries": -1}, DeclarationError, "max_retries"),
    "retry_on": ({"retry_on": ("OSError",)}, DeclarationError, "retry_on"),
    "name": ({"name": "no good"}, DeclarationError, "no good"),
}


@pytest.mark.parametrize(("options", "kind", "words"), BAD_TASKS.values(), ids=BAD_TASKS.keys())
def test_bad_declarations_name_the_task_and_leave_the_app_usable(
    app: App, options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=re.escape(words)) as caught:
        app.task(**options)(plain)
    assert ("plain" in str(caught.value)) or options.get("name")
    app.task(plain)


def test_a_name_taken_twice_names_both_places(app: App, send: Any) -> None:
    with pytest.raises(DuplicateTask, match=r"test_app\.py:\d+ and .*test_app\.py:\d+"):
        app.task(name="send")(plain)


BAD_APPS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"store": "mysql://x"}, DeclarationError, "mysql://x"),
    ({"name": "no good"}, ValueError, "no good"),
    ({"concurrency": 0}, ValueError, "0"),
    ({"defaults": {"retries": 3}}, DeclarationError, "'retries'"),
    ({"stop_timeout": -1}, DeclarationError, "stop_timeout"),
]


@pytest.mark.parametrize(("arguments", "kind", "words"), BAD_APPS)
def test_bad_apps(arguments: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        App(**arguments)


def test_a_cost_above_the_burst_is_an_error_when_added(app: App) -> None:
    task = app.task(limits=[Rate("2/s", by="key", cost="cost")])(plain)
    with pytest.raises(BadLimit, match="more than burst"):
        task.delay("x", 3)
    assert app.sync.find().tasks == ()


# -- unique, same uuid, expiry


def test_unique_keep(app: App) -> None:
    task = app.task(unique="{key}")(plain)
    first, second, other = task.delay("x"), task.delay("x", 2), task.delay("y")
    assert (first.added, second.added, other.added) == (True, False, True)
    assert second.uuid == first.uuid != other.uuid
    assert first.info().args == {"key": "x"}
    first.cancel()
    assert task.delay("x").added  # its key is free again


@pytest.mark.parametrize(("unique", "same"), [(True, True), (None, False), ("{key}", True), ("{key}:{cost}", True)])
def test_unique_by_all_arguments_defaults_included(app: App, unique: Any, same: bool) -> None:
    task = app.task(unique=unique)(plain)
    assert (task.delay("x").uuid == task.delay("x", cost=1).uuid) == same


def test_unique_replace_debounces(app: App, clock: ManualClock) -> None:
    task = app.task(unique="{key}", on_conflict="replace")(plain)
    first = task.options(after=10).delay("x", 1)
    clock.advance(5_000)
    second = task.options(after=10).delay("x", 2)
    assert (second.uuid, second.added) == (first.uuid, False)
    info = first.info()
    assert (info.args["cost"], info.schedule_at) == (2, NOON + timedelta(seconds=15))


VERBS: dict[str, Callable[[App, Any], Any]] = {
    "delay": lambda app, task: task.delay("x"),
    "enqueue": lambda app, task: task.enqueue("x"),
    "delay_many": lambda app, task: task.delay_many([{"key": "x"}]),
    "enqueue_many": lambda app, task: task.enqueue_many([{"key": "x"}]),
    "app.enqueue_many": lambda app, task: app.enqueue_many([task.s("x")]),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
async def test_unique_error(app: App, verb: Callable[[App, Any], Any]) -> None:
    async def add() -> None:
        added = verb(app, task)
        if inspect.isawaitable(added):
            await added

    task = app.task(unique="{key}", on_conflict="error")(plain)
    await add()
    with pytest.raises(DuplicateTask, match=f"'x'.*{app.sync.find().tasks[0].uuid}"):
        await add()


def test_unique_for_a_time(app: App, clock: ManualClock) -> None:
    task = app.task(unique="{key}", unique_for=60)(plain)
    first = task.delay("x")
    first.cancel()
    assert task.delay("x").uuid == first.uuid  # also after its end
    clock.advance(60_000)
    assert task.delay("x").added


def test_the_same_uuid_twice_changes_nothing_and_warns_if_it_differs(
    send: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first = send.options(uuid="order-17").delay("ann")
    again = send.options(uuid="order-17").delay("ann")
    assert (again.uuid, again.added, caplog.messages) == (first.uuid, False, [])
    other = send.options(uuid="order-17").delay("bob")
    assert (other.added, first.info().args) == (False, {"to": "ann"})
    assert [each.levelname for each in caplog.records if "order-17" in each.getMessage()] == ["WARNING"]


async def test_what_has_not_started_in_time_expires_also_when_no_slot_is_free(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("busy", store="memory://", concurrency=1, stop_timeout=0)
    began = asyncio.Event()

    @app.task(expires=60)
    async def sit() -> None:
        began.set()
        await asyncio.sleep(LONG)

    with app.override(clock=clock):
        async with app.running():
            running, waiting = await sit.enqueue(), await sit.enqueue()
            later = await sit.options(after=30).enqueue()  # expires 60 s after that
            short = await sit.options(expires=10).enqueue()
            await began.wait()
            clock.advance(10_000)
            assert str(await short.exception()).endswith("expired")
            clock.advance(50_000)
            error = await waiting.exception()
            assert isinstance(error, TaskCancelled)
            assert error.reason == "expired"
            assert (await running.state(), await later.state()) == ("running", "ready")
            clock.advance(30_000)
            assert isinstance(await later.exception(), TaskCancelled)
            assert await running.state() == "running"
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert [line.split()[:3] for line in lines] == [["[expired]", "task", h.uuid] for h in (short, waiting, later)]


# -- unknown and late


async def test_an_unknown_source_is_parked_in_failed_and_runs_once_it_is_known(
    app: App, ran: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with app.running():
        handle = await app.named("late").enqueue(x=1)
        error = await handle.exception()
        assert isinstance(error, TaskFailed)
        assert "'late'" in error.message
        (line,) = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
        assert line.startswith("[drop] Unknown task source: late {'uuid': ")

        @app.task
        async def late(x: int) -> None:
            ran.append(x)

        await handle.retry()
        await handle
        await late.enqueue(2)  # declared after the start, and picked up
        await until(lambda: ran == [1, 2])


# -- schedules


async def test_a_schedule_fires_on_its_grid(app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    nominal: list[datetime] = []

    @app.schedule(schedule=IntervalSchedule(interval=5))
    async def tick() -> None:
        nominal.append(current_task().scheduled_for)

    assert not hasattr(tick, "delay")
    async with app.running():
        for number, late in enumerate((0, 700, 0), 1):  # looked at late, and still on the grid
            clock.advance(number * 5_000 - (clock.now() - NOON.timestamp() * 1000) + late)
            await until(lambda number=number: len(nominal) == number)
        assert app.status()["scheduled_count"] == 1
    assert nominal == [NOON + timedelta(seconds=seconds) for seconds in (5, 10, 15)]
    assert "Schedule registered: tick next 2026-03-01T12:00:05+00:00" in caplog.messages
    assert "[due] schedule tick at 2026-03-01T12:00:10+00:00" in caplog.messages


async def test_a_schedule_declared_after_the_start_is_picked_up(app: App, clock: ManualClock, ran: list[Any]) -> None:
    async with app.running():

        @app.schedule(schedule=IntervalSchedule(interval=5))
        async def tick() -> None:
            ran.append(1)

        await until(lambda: app.status()["scheduled_count"] == 1)
        clock.advance(5_000)
        await until(lambda: ran == [1])


# -- doors


async def test_running_twice_or_in_another_way_is_refused(app: App) -> None:
    async with app.running():
        assert app.status()["status"] == "running"
        with pytest.raises(SchedulerStateError):
            async with app.running():
                pass
        with pytest.raises(SchedulerStateError, match="another way"):
            app.start(auto=True)
        with pytest.raises(SchedulerStateError, match=r"async with app\.running\(\)"):
            app.run()
        with pytest.raises(SchedulerStateError, match="override"), app.override(store="memory://"):
            pass
        assert app.status()["status"] == "running"
    assert app.status()["status"] == "stopped"


def test_start_shutdown_and_start_again(send: Any, app: App, caplog: pytest.LogCaptureFixture) -> None:
    with app.override(store="memory://", clock=None):
        for _ in range(2):
            assert app.start(auto=True) is True
            assert app.start(auto=True) is False
            assert [each.levelname for each in caplog.records] == ["WARNING"]
            assert send.delay("ann").result(timeout=SOON) == "hello, ann"
            assert (app.shutdown(), app.shutdown()) == (True, False)
            caplog.clear()


async def test_background_works_under_a_running_loop(app: App, send: Any) -> None:
    with app.background() as same:
        assert same is app
        assert await (await send.enqueue("ann")) == "hello, ann"
        with pytest.raises(SchedulerStateError, match="background"), app.background():
            pass


def test_an_idle_app_stops_at_once(app: App) -> None:
    took = []
    for _ in range(5):
        app.start(auto=True)
        began = time.perf_counter()
        app.shutdown()
        took.append(time.perf_counter() - began)
    assert min(took) < 0.2


def test_a_process_scheduler_is_refused_until_it_is_there(app: App) -> None:
    with pytest.raises(SchedulerStateError, match="process"):
        app.start(auto=True, threading=False)


async def test_status_is_json_and_tells_what_goes_on(app: App) -> None:
    @app.task
    async def hang() -> None:
        await asyncio.sleep(LONG)

    async with app.running():
        first = await hang.enqueue()
        await hang.options(after=60).enqueue()
        await until(lambda: app.status()["running_count"] == 1)
        status = json.loads(json.dumps(app.status()))
    assert status["current_task_id"] == first.uuid
    assert (status["is_executing"], status["delayed_count"], status["queue_count"]) == (True, 1, 0)
    assert app.status()["is_executing"] is False


# -- lifespan, override


async def test_lifespan_is_entered_once_a_start_and_never_to_add(clock: ManualClock) -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[list[str]]:
        steps.append("enter")
        yield steps
        steps.append("leave")

    app = App("shop", store="memory://", lifespan=lifespan, stop_timeout=0)

    @app.task
    async def on_loop() -> None:
        app.state.append("loop")

    @app.task
    def in_thread() -> None:
        app.state.append("thread")

    with app.override(clock=clock):
        async with app:
            handle = await on_loop.enqueue()
            with pytest.raises(SchedulerStateError, match="lifespan"):
                _ = app.state
        assert steps == []
        async with app.running():
            await handle
            await (await in_thread.enqueue())
            hanging = await on_loop.options(after=LONG).enqueue()
        assert steps == ["enter", "loop", "thread", "leave"]
        async with app.running():
            pass
        assert steps[4:] == ["enter", "leave"]
        assert (await app.get(hanging.uuid)).reason == "shutdown"
        with pytest.raises(SchedulerStateError):
            _ = app.state


async def test_a_lifespan_may_yield_nothing() -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield

    app = App("shop", store="memory://", lifespan=lifespan)
    async with app.running():
        assert app.state is None


@pytest.mark.parametrize("door", ["running", "background"])
async def test_a_lifespan_that_fails_leaves_it_stopped_and_may_be_tried_again(door: str) -> None:
    fail = [True]

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        if fail.pop():
            raise ConnectionError("no database")
        yield "connected"

    app = App("shop", store="memory://", lifespan=lifespan)

    async def enter() -> str:
        if door == "running":
            async with app.running():
                return app.state
        with app.background():
            return app.state

    with pytest.raises(ConnectionError, match="no database"):
        await enter()
    assert app.status()["status"] == "stopped"
    fail[:] = [False]
    assert await enter() == "connected"


def test_override_gives_the_old_store_and_clock_back(app: App, send: Any, clock: ManualClock) -> None:
    outside = send.delay("ann").uuid
    other = ManualClock(NOON + timedelta(days=1))
    with app.override(store="memory://", clock=other) as same:
        assert same is app
        assert app.sync.find().tasks == ()
        inside = send.delay("bob")
        assert inside.info().added_at == other.moment()
    (left,) = app.sync.find().tasks
    assert (left.uuid, left.added_at) == (outside, NOON)


# -- logs


async def test_the_log_lines_of_a_life(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    app = App("shop", store="memory://")

    @app.task
    async def send(to: str) -> None: ...

    async with app.running():
        handle = await send.enqueue("ann")
        await handle
    await app._service.stop()  # a second one says nothing
    expected = [
        ("onthedot.scheduler", r"Task registered: send"),
        ("onthedot.scheduler", r"Scheduler started"),
        ("onthedot.task", rf"\[queued\] task {handle.uuid} from send"),
        ("onthedot.task", rf"\[done\] task {handle.uuid} from send in \d+(\.\d+)? ms"),
        ("onthedot.scheduler", r"Scheduler stopped"),
    ]
    assert [(each.name, each.levelname) for each in caplog.records] == [(name, "INFO") for name, _ in expected]
    for line, (_, pattern) in zip(caplog.messages, expected, strict=True):
        assert re.fullmatch(pattern, line)


async def test_a_logger_of_ones_own_gets_every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    app = App("shop", store="memory://", logger=logging.getLogger("mine"))

    @app.task(max_retries=1, backoff=[0])
    async def act() -> None:
        current_task().logger.info("from inside")
        raise OSError("gone")

    async with app.running():
        await (await act.enqueue()).exception()
    assert {each.name for each in caplog.records} == {"mine.scheduler", "mine.task"}
    assert "from inside" in caplog.messages


def test_the_library_adds_no_handler() -> None:
    names = ["onthedot", *(name for name in logging.root.manager.loggerDict if name.startswith("onthedot."))]
    assert [name for name in names if logging.getLogger(name).handlers] == []


# -- processes: signals, exit, fork

PROGRAM = """
import asyncio, os, signal, sys, threading, time
from onthedot import App, current_task
app = App("shop", store="memory://", stop_timeout={stop_timeout})

@app.task
async def work(seconds: float) -> None:
    print("began", flush=True)
    try:
        await asyncio.sleep(seconds)
        print("finished", flush=True)
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise

@app.task
async def add(x: int, y: int) -> int:
    return x + y

def waits_too_short():
    try: add.delay(1, 2).result(timeout=0.05)
    except TimeoutError: return "too long"
"""


@pytest.fixture
def program() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a program that has an app; killed in the end if it does not end by itself."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, stop_timeout: float = LONG) -> subprocess.Popen[str]:
        text = PROGRAM.format(stop_timeout=stop_timeout) + textwrap.dedent(code)
        env = {name: value for name, value in os.environ.items() if not name.startswith("ONTHEDOT_")}
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen([sys.executable, "-W", "error", "-c", text], env=env, text=True, **pipes))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], SOON)[0], "it says nothing"
    return process.stdout.readline().strip()


def end_of(process: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    out, err = process.communicate(timeout=LONG)
    return process.returncode, out.split("\n")[:-1], err


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_run_finishes_what_runs_and_returns_normally(program: Any, sign: signal.Signals) -> None:
    process = program("work.delay(0.3); app.run(); print('returned', app.status()['status'])")
    assert line_of(process) == "began"
    process.send_signal(sign)
    assert end_of(process) == (0, ["finished", "returned stopped"], "")


def test_a_second_ctrl_c_cancels_at_once(program: Any) -> None:
    process = program("""
        def tell():
            while app.status()["status"] != "stopping": time.sleep(0.001)
            print("stopping", flush=True)
        work.delay(1000)
        threading.Thread(target=tell, daemon=True).start()
        app.run()
        print("returned")
    """)
    assert line_of(process) == "began"
    process.send_signal(signal.SIGINT)
    assert line_of(process) == "stopping"
    process.send_signal(signal.SIGINT)
    assert end_of(process) == (0, ["cancelled", "returned"], "")


def test_exit_without_shutdown_stops_in_order(program: Any) -> None:
    process = program("""
        app.start(auto=True)
        print(add.delay(1, 2).result(timeout=10))
        work.delay(0.2)
        while not app.status()["running_count"]: time.sleep(0.001)
    """)
    assert end_of(process) == (0, ["3", "began", "finished"], "")


def test_who_only_adds_and_waits_exits_without_a_word(program: Any) -> None:
    process = program("print(waits_too_short())")
    assert end_of(process) == (0, ["too long"], "")


def test_waiting_may_begin_while_it_shuts_down(program: Any) -> None:
    """In a process of its own: what a wrong end leaves behind would trouble other tests."""
    process = program("""
        def wait(handle):
            try: handle.result(timeout=10)
            except Exception as error: answers.append(str(error).rpartition(" ")[2])
        for _ in range(20):
            answers = []
            app.start(auto=True)
            handles = add.options(after=100).delay_many([dict(x=1, y=2)] * 30)
            threads = [threading.Thread(target=wait, args=(handle,)) for handle in handles]
            threads.insert(15, threading.Thread(target=app.shutdown))
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            assert answers == ["shutdown"] * 30, answers
            app.shutdown()
    """)
    assert end_of(process) == (0, [], "")


FORK = """
import warnings
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # it is, that is the point
ending = threading.Event()
def adds_all_the_time():
    while not ending.is_set(): add.delay_many([dict(x=1, y=2)] * 1000)
{before}
for _ in range({times}):
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)  # whatever happens, it ends
        {child}
        print("child", flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
{after}
ending.set()
app.shutdown()
print("parent")
"""
STARTS = "app.start(auto=True); assert add.delay(1, 2).result(timeout=10) == 3; app.shutdown()"
FORKS = {
    "add": ("add.delay(1, 1)", "assert add.delay(1, 2).state() == 'ready'", 1, ""),
    "wait": ("waits_too_short()", "assert waits_too_short()", 1, ""),
    "start": ("waits_too_short()", STARTS, 1, STARTS),
    "start under a worker": ("app.start(auto=True)", STARTS, 1, "assert add.delay(1, 2).result(timeout=10) == 3"),
    "add while another thread adds": (
        "add.delay(1, 1); threading.Thread(target=adds_all_the_time, daemon=True).start()", "add.delay(1, 2)", 10, "",
    ),
}  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize(("before", "child", "times", "after"), FORKS.values(), ids=FORKS.keys())
def test_fork(program: Any, before: str, child: str, times: int, after: str) -> None:
    code = FORK.format(before=before, child=child, times=times, after=after)
    process = program(code, stop_timeout=0)
    assert end_of(process) == (0, ["child"] * times + ["parent"], "")
