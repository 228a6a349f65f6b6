"""Expressions that cannot run are refused before anything is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from onthedot import App, ArgumentError, Call, StoreRefused, group
from tests.support.waits import SOON


class Tasks:
    """The tasks of these tests. Types are left out: type checkers would refuse most of these calls."""

    def __init__(self, app: App) -> None:
        @app.task
        async def one(value: Any) -> Any:
            return value

        @app.task
        async def two(first: Any, second: Any) -> Any:
            return first, second

        @app.task
        async def nop() -> None: ...

        @app.task(unique=True)
        async def once(value: Any) -> Any:
            return value

        self.one: Any = one
        self.two: Any = two
        self.nop: Any = nop
        self.once: Any = once


@pytest.fixture
def tasks(app: App) -> Tasks:
    return Tasks(app)


def _twice(tasks: Tasks) -> Call[Any]:
    call = tasks.one.s(1)
    return group([call, call])


def _long(tasks: Tasks) -> Call[Any]:
    call = tasks.one.s(0)
    for _ in range(1001):
        call = call | tasks.one
    return call


def _crossed(tasks: Tasks) -> Call[Any]:
    first = tasks.one.s(0)
    others = [tasks.one.s(number) for number in range(101)]
    return group(tasks.two.s(first.result, other.result) for other in others)


REFUSED: dict[str, tuple[Callable[[Tasks], Any], str]] = {
    "a task without parameters": (lambda t: t.one.s(1) | t.nop, r"nop takes no argument: write nop\.s\(\)"),
    "a missing argument": (lambda t: t.one.s(1) | t.two, "missing a required argument: 'second'"),
    "a further argument": (lambda t: (t.one.s(1) | t.two).delay(), r"write …\.then\(two, …\) with further arguments"),
    "a call in place of a task": (
        lambda t: (t.one.s(1) | t.one.s()).delay(),
        r"the result of a call before it is passed by … \| one, without \.s\(\)",
    ),
    "no task": (lambda t: t.one.s(1) | print, "is no task"),
    "a result in a dict": (lambda t: t.one.s({"a": t.one.s(1).result}).delay(), "an element of a list of results"),
    "a result in a tuple": (lambda t: t.one.s((t.one.s(1).result,)).delay(), "an element of a list of results"),
    "a result in a nested list": (lambda t: t.one.s([[t.one.s(1).result]]).delay(), "an element of a list of results"),
    "the same call twice": (_twice, "in it twice, and a call runs once"),
    "no call in a group": (lambda t: group([t.one]), r"is no call; write f\.s"),
    "an unknown on_error": (lambda t: group([t.one.s(1)], on_error="ignore"), "fail, stop or collect"),
    "an empty group alone": (lambda t: group([]).delay(), "belongs to no app"),
    "unique inside of a flow": (lambda t: (t.one.options(unique="x").s(1) | t.one).delay(), r"\.enqueue\(uuid=…\)"),
    "declared unique": (lambda t: (t.once.s(1) | t.one).delay(), r"give the flow a uuid: \.enqueue\(uuid=…\)"),
    "uuid inside of a flow": (lambda t: (t.one.options(uuid="x").s(1) | t.one).delay(), r"\.enqueue\(uuid=…\)"),
    "too many tasks": (
        lambda t: group(t.one.s(n) for n in range(10_001)).delay(),
        r"more than 10,000 tasks .* \(10,001\)",
    ),
    "a path that is too long": (lambda t: _long(t).delay(), "longest path of the flow has 1,002 tasks"),
    "too many counters": (lambda t: _crossed(t).delay(), "101|102 different sets of predecessors"),
    "a flow as a handler": (lambda t: t.one.s(1).always(t.one.s(1) | t.one).delay(), "a handler is one task"),
    "a flow in delay_many": (lambda t: t.one.delay_many([t.one.s(1) | t.one]), "part of a flow"),
    "a label of a result": (
        lambda t: (t.one.s(1) | t.one.options(label="x")).delay() and t.one.options(uuid="?").s(1).delay(),
        "is not an id",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_expression_that_cannot_run_is_refused(app: App, tasks: Tasks, case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises((ArgumentError, ValueError), match=message):
        make(tasks)
    if case != "a label of a result":
        assert len(app.sync.find()) == 0


def test_call_of_another_app_is_refused(app: App, tasks: Tasks) -> None:
    other = Tasks(App("other", store="memory://"))
    with pytest.raises(ArgumentError, match="a call of another app"):
        (other.one.s(1) | tasks.one).delay()
    assert len(app.sync.find()) == 0


def test_worker_of_an_older_version_refuses_flows_and_not_tasks(app: App, tasks: Tasks) -> None:
    info = msgspec.json.encode({"host": "old-host", "pid": 7, "version": "0.1"})
    app.runtime.portal.run_sync(lambda client: client.store.heartbeat("old-worker", info, 60_000))
    with pytest.raises(StoreRefused, match="worker old-worker on old-host"):
        (tasks.one.s(1) | tasks.one).delay()
    tasks.one.s(1).delay()
    assert len(app.sync.find()) == 1


def test_limit_of_a_flow_is_a_setting_of_the_app() -> None:
    app = App("shop", store="memory://", max_flow=3)
    tasks = Tasks(app)
    with pytest.raises(ArgumentError, match="more than 3 tasks"):
        group(tasks.one.s(number) for number in range(4)).delay()
    with pytest.raises(ValueError, match="max_flow must be at most 100,000"):
        App("shop", store="memory://", max_flow=100_001)


def test_label_of_a_result_is_refused(app: App) -> None:
    @app.task(label="of {value}")
    async def labelled(value: int) -> int:
        return value

    with pytest.raises(ArgumentError, match="is not known before it runs"):
        (labelled.s(1) | labelled).delay()


def test_flow_that_a_task_spawns_has_at_most_a_thousand_tasks(app: App, tasks: Tasks) -> None:
    from onthedot import current_task

    @app.task
    async def fan_out() -> str:
        try:
            current_task().spawn(group(tasks.one.s(number) for number in range(1001)))
        except ArgumentError as error:
            return str(error)
        return ""

    with app.background():
        assert "adds at most 1,000 tasks in one step" in fan_out.delay().result(timeout=SOON)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda t: t.one | t.two, r"one is a task and no call: write one\.s\(…\) \| …"),
        (lambda t: 10 | t.one, r"10 is no call: write f\.s\(…\) \| one, and delay\(\) at the end"),
        (lambda t: t.one.s(1).options(after=5), r"has no attribute 'options'; .*: f\.options\(…\)\.s\(…\)"),
        (lambda t: t.one.s(1).link(t.two), r"has no attribute 'link'; write call \| f"),
        (lambda t: group([t.one.s(1)]).apply_async(), r"'Group' has no attribute 'apply_async'; write call\.delay\(\)"),
    ],
)
def test_mistake_names_what_to_write(mistake: Callable[[Tasks], Any], message: str) -> None:
    with pytest.raises((TypeError, AttributeError), match=message):
        mistake(Tasks(App("shop", store="memory://")))
