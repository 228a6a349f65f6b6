"""Calls that are added later, and many calls at once: of one function or of several, in sync and async code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any

import pytest

from onthedot import App, ArgumentError, AsyncTaskHandle, Call, DuplicateTask, TaskHandle
from tests.support.app_stores import AppStore


def added(app: App[Any], source: str | None = None) -> list[Any]:
    """The arguments of the tasks, in the order of adding."""
    where: Any = {} if source is None else {"source": source}
    return [dict(info.args) for info in reversed(app.sync.find(**where).tasks)]


@pytest.fixture
def build(app: App[Any]) -> Any:
    @app.task
    def build(customer: str, day: str = "today") -> str:
        return f"{customer} {day}"

    return build


def test_call_is_added_by_sync_code(app: App[Any], send: Any) -> None:
    call = send.options(priority="high", tags=["eu"]).s("ann", body="hi")
    assert isinstance(call, Call)
    handle = call.delay()
    assert isinstance(handle, TaskHandle)
    info = handle.info()
    assert (info.args, info.priority, info.tags) == ({"to": "ann", "body": "hi"}, 10, ("eu",))
    assert call.delay().uuid != handle.uuid, "each is a task of its own"


async def test_call_is_added_by_async_code(app: App[Any], send: Any, ran: list[Any]) -> None:
    async with app.running():
        handle = await send.s("ann").enqueue()
        assert isinstance(handle, AsyncTaskHandle)
        assert await handle == "hello, ann"
    assert ran == ["ann"]


def test_sync_code_adds_calls_of_several_functions(app: App[Any], send: Any, build: Any) -> None:
    calls = [send.s("ann"), build.s("x", "y"), app.named("elsewhere").s(n=1)]
    handles = app.delay_many(iter(calls))
    assert [handle.info().source for handle in handles] == ["send", "build", "elsewhere"]
    assert all(isinstance(handle, TaskHandle) and handle.added for handle in handles)
    assert added(app) == [{"to": "ann"}, {"customer": "x", "day": "y"}, {"n": 1}]


def test_results_of_many_calls_are_those_of_their_functions(app_store: AppStore) -> None:
    app = App(app_store.name, store=app_store.url)

    @app.task
    def double(n: int) -> tuple[int, int]:
        return n, n * 2

    with app.background():
        handles = [*app.delay_many([double.s(1), double.s(2)]), *double.delay_many([{"n": 3}, (4,), double.s(5)])]
        results = [handle.result(timeout=20) for handle in handles]
    assert results == [(1, 2), (2, 4), (3, 6), (4, 8), (5, 10)]


Adder = Callable[[Any, Iterable[Any]], Any]


def delay_many(task: Any, calls: Iterable[Any]) -> Any:
    return task.delay_many(calls)


def enqueue_many(task: Any, calls: Iterable[Any]) -> Any:
    return asyncio.run(task.enqueue_many(calls))


verbs = pytest.mark.parametrize("add", [delay_many, enqueue_many])


@verbs
def test_many_calls_of_a_function_are_dicts_tuples_and_calls(app: App[Any], send: Any, add: Adder) -> None:
    calls = [{"to": "a"}, ("b", "hi"), send.s("c", body="x"), ("d",), MappingProxyType({"to": "e"})]
    handles = add(send, (call for call in calls))
    expected = [{"to": "a"}, {"to": "b", "body": "hi"}, {"to": "c", "body": "x"}, {"to": "d"}, {"to": "e"}]
    assert [app.sync.get(handle.uuid).args for handle in handles] == expected
    assert added(app) == expected


@verbs
def test_options_of_a_call_come_before_those_of_the_many(app: App[Any], send: Any, add: Adder) -> None:
    add(send.options(priority=7, tags=["all"]), [("a",), send.options(priority=2).s("b")])
    infos = reversed(app.sync.find().tasks)
    assert [(info.args["to"], info.priority, info.tags) for info in infos] == [("a", 7, ("all",)), ("b", 2, ("all",))]


@verbs
@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"at": "b"}, "missing a required argument: 'to'"),
        (("b", "c", "d"), "too many positional arguments"),
        ("b", r"send: 'b' is no call; write a dict of its arguments, a tuple of them, or send\.s\(…\)"),
        (["b"], "is no call"),
        (7, "send: 7 is no call"),
        ((7,), "argument 'to'.*int where str"),
    ],
)
def test_nothing_is_stored_if_one_of_many_calls_is_wrong(
    app: App[Any], send: Any, add: Adder, wrong: object, problem: str
) -> None:
    with pytest.raises(ArgumentError, match=problem):
        add(send, [("a",), wrong])
    assert added(app) == []


@verbs
def test_call_of_another_function_is_refused(app: App[Any], send: Any, build: Any, add: Adder) -> None:
    with pytest.raises(ArgumentError, match=r"send: build\('x'\) is a call of another task; app\.delay_many"):
        add(send, [("a",), build.s("x")])
    assert added(app) == []


@verbs
def test_app_adds_only_calls_of_its_own(app: App[Any], send: Any, add: Adder) -> None:
    other = App("other", store="memory://")

    @other.task
    async def build(day: str) -> None: ...

    for wrong, problem in (
        ({"to": "b"}, r"\{'to': 'b'\} is no call; write f\.s\(…\)"),
        (send, "is no call"),
        (build.s("x"), "is a call of another app"),
    ):
        with pytest.raises(ArgumentError, match=problem):
            add(app, [send.s("a"), wrong])
    assert added(app) == []


def test_many_calls_with_a_taken_key_are_reported(app: App[Any]) -> None:
    @app.task(unique="{to}")
    async def mail(to: str) -> None: ...

    @app.task(unique="{to}", on_conflict="error")
    async def alone(to: str) -> None: ...

    handles = app.delay_many([mail.s("a"), mail.s("a"), mail.s("b")])
    assert [handle.added for handle in handles] == [True, False, True]
    assert handles[0].uuid == handles[1].uuid
    with pytest.raises(DuplicateTask, match="alone"):
        app.delay_many([alone.s("a"), alone.s("a")])


def test_call_with_a_connection_names_what_to_write(send: Any) -> None:
    with pytest.raises(ArgumentError, match=r"write send\.options\(connection=…\)\.delay\(…\)"):
        send.options(connection=object()).s("a")
