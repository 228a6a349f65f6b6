"""App: adds, and errors of wrong calls and declarations; its lifecycle is in test_app_lifecycle."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
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
    OnTheDotError,
    Rate,
    StoreRefused,
    Task,
    TaskFailed,
    TaskOptions,
)
from onthedot.clock.manual import ManualClock
from tests.support.waits import LONG, SOON, until

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


# -- adding


def test_delay_is_stored_when_it_returns(app: App, send: Any) -> None:
    handle = send.delay("ann")
    (info,) = app.sync.find(source="send").tasks
    assert (info.uuid, info.state, info.args, handle.added) == (handle.uuid, "ready", {"to": "ann"}, True)


async def test_async_with_app_connects_and_runs_no_task(app: App, send: Any, ran: list[Any]) -> None:
    async with app as same:
        assert same is app
        handle = await send.enqueue("ann")
        assert (await app.get(handle.uuid)).state == "ready"
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


def test_decorated_function_stays_callable(send: Any) -> None:
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
def test_options_of_one_call_are_stored(app: App, send: Any, options: dict[str, Any], expected: dict[str, Any]) -> None:
    adding = send.options(**options)
    info = app.sync.get(adding.delay("ann").uuid)
    assert {name: getattr(info, name) for name in expected} == expected
    assert app.sync.get(send.delay("bob").uuid).schedule_at == NOON  # the function itself has not changed


def test_options_of_a_declaration_override_those_of_the_app() -> None:
    app = App("shop", store="memory://", defaults=TaskOptions(priority="low", tags=("all",)))

    @app.task(label="{to} gets {body!r}", tags=("mail",))
    async def send(to: str, body: str = "hello") -> None: ...

    info = app.sync.get(send.delay("ann").uuid)
    assert (info.label, info.tags, info.priority) == ("ann gets 'hello'", ("mail",), 1)


@pytest.mark.parametrize("verb", ["delay_many", "enqueue_many", "app.enqueue_many"])
async def test_many_calls_are_added_in_order(app: App, send: Any, ran: list[Any], verb: str) -> None:
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
def test_no_call_of_many_is_stored_if_one_is_wrong(app: App, send: Any, many: list[dict[str, Any]]) -> None:
    with pytest.raises(ArgumentError):
        send.delay_many(many)
    assert app.sync.find().tasks == ()


async def test_call_is_not_added_before_it_is_used(app: App, send: Any) -> None:
    call = send.options(after=LONG).s("ann", body="bye")
    assert (repr(call), call.source) == ("send('ann', body='bye')", "send")
    with pytest.raises(ArgumentError):
        send.s()
    (handle,) = await app.enqueue_many([call])
    assert await handle.state() == "scheduled"


async def test_named_adds_without_the_code(app: App, clock: ManualClock) -> None:
    other = App("shop", store="memory://")
    other.runtime.use_store(app.runtime.store)  # as if both had the URL of a shared one

    @other.task(name="report.build")
    async def build(customer: str, day: str) -> str:
        return f"{day} for {customer}"

    build_report = app.named("report.build")
    with pytest.raises(ArgumentError, match="by name"):
        build_report.delay("acme")
    handle = build_report.delay(customer="acme", day="monday")
    async with other.running():
        assert await other.ahandle(handle.uuid) == "monday for acme"
        incomplete = build_report.delay(customer="acme")  # the worker that runs it checks its arguments
        error = await other.ahandle(incomplete.uuid).exception()
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
        name = "email"
        concurrent_count = 2

        async def consume(self, task: Task) -> None:
            ran.append(task.args["to"])

    app.register(Email())
    async with app.running():
        await app.named("email").enqueue(to="ann")
        await until(lambda: ran == ["ann"])


# -- errors are raised at once, and nothing is stored


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
    "negative": (lambda send: send.options(after=-1).delay("ann"), ArgumentError, "out of range"),
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


def test_duplicate_name_error_names_both_places(app: App, send: Any) -> None:
    with pytest.raises(DuplicateTask, match=r"conftest\.py:\d+ and .*test_app\.py:\d+"):
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


# -- unknown and late


async def test_task_of_an_unknown_source_fails_and_runs_after_a_retry(
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


async def test_error_in_middleware_fails_only_its_task() -> None:
    app: App[None] = App(store="memory://")

    @app.task
    async def good() -> int:
        return 5

    @app.around
    async def breaks(task: Any, call: Any) -> object:
        if task.metadata.get("break"):
            raise LookupError("in the layer")
        return await call()

    async with app.running():
        bad = await good.options(metadata={"break": True}).enqueue()
        with pytest.raises(OnTheDotError, match="in the layer"):
            await bad.result(timeout=SOON)
        assert await (await good.enqueue()) == 5
