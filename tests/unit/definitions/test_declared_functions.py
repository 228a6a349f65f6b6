"""Which functions can be declared: what a worker could not run to its end is refused where it is written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from onthedot import (
    App,
    BadSchedule,
    BaseTaskConsumer,
    CronSchedule,
    DeclarationError,
    StreamFunction,
    Task,
    TaskConsumerRegistry,
)
from onthedot.mq import MessageQueue


def numbers(most: int = 3) -> Iterator[int]:
    yield from range(most)


async def letters(text: str = "") -> AsyncIterator[str]:
    for letter in text:
        yield letter


class Numbers:
    def __call__(self) -> Iterator[int]:
        yield 1

    def bound(self) -> Iterator[int]:
        yield 1

    def plain(self, number: int) -> int:
        return number


GENERATORS = [numbers, partial(numbers, 5), Numbers(), Numbers().bound]


@pytest.mark.parametrize("function", GENERATORS)
def test_a_generator_as_a_task_is_refused(app: App, function: Callable[[], Any]) -> None:
    with pytest.raises(DeclarationError, match=r"task 'numbers' \(.*\) is a generator: calling it runs no line of it"):
        app.task(name="numbers")(function)
    with pytest.raises(DeclarationError, match="is a generator"):
        app.schedule("@daily", name="numbers")(function)


@pytest.mark.parametrize("function", [letters, partial(letters, "ab")])
@pytest.mark.parametrize("executor", ["thread", "process"])
def test_an_async_generator_in_a_thread_or_process_is_refused(
    app: App, function: Callable[[], Any], executor: str
) -> None:
    with pytest.raises(DeclarationError, match=f"an async generator runs on the event loop; executor='{executor}'"):
        app.task(name="letters", executor=executor)(function)


@pytest.mark.parametrize("function", [letters, partial(letters, "ab")])
def test_an_async_generator_is_a_stream(app: App, function: Callable[[], Any]) -> None:
    stream: object = app.task(name="letters", executor="async")(function)
    assert isinstance(stream, StreamFunction)


def test_an_async_generator_as_a_consumer_or_handler_is_refused(app: App) -> None:
    class Spell(BaseTaskConsumer):
        name = "spell"

        async def consume(self, task: Task) -> AsyncIterator[str]:
            yield task.source

    with pytest.raises(DeclarationError, match=r"is an async generator: only a function with @app\.task streams"):
        app.register(Spell())
    with pytest.raises(DeclarationError, match=r"is an async generator: only a function with @app\.task streams"):
        MessageQueue("memory://").register_handler("letters", letters)


def test_a_generator_as_a_consumer_or_handler_is_refused(app: App) -> None:
    class Count(BaseTaskConsumer):
        name = "count"

        def consume(self, task: Task) -> Iterator[int]:
            yield 1

    registry = TaskConsumerRegistry()
    for register in (app.register, registry.register):
        with pytest.raises(DeclarationError, match="consume of consumer 'count' is a generator"):
            register(Count())
    with pytest.raises(DeclarationError, match="the handler of topic 'numbers' is a generator"):
        MessageQueue("memory://").register_handler("numbers", numbers)


def test_a_method_is_refused_where_it_is_declared(app: App) -> None:
    with pytest.raises(DeclarationError, match=r"task 'send' \(.*\) is a method: a worker has no object to call it on"):

        class Mail:
            @app.task
            def send(self, to: str) -> None: ...


def test_functions_with_an_object_or_without_one_are_tasks(app: App) -> None:
    class Mail:
        @app.task
        @staticmethod
        def static(to: str) -> str:
            return to

        @staticmethod
        @app.task
        def inner(to: str) -> str:
            return to

    def outer(self: int) -> int:
        """Its parameter is called so, but it is no method."""
        return self

    app.task(outer)
    app.task(Numbers().plain)
    assert Mail.static("ann") == Mail.inner("ann") == "ann"


def needs(to: str, body: str) -> None: ...


def test_a_schedule_without_a_rule_is_refused_at_once(app: App) -> None:
    for declare in (
        lambda: app.schedule(needs),
        lambda: app.schedule(app.task(name="other")(needs)),
        lambda: app.schedule(),
        lambda: app.schedule(None),
    ):
        with pytest.raises(BadSchedule, match=r"has no rule: write @app\.schedule"):
            declare()


@pytest.mark.parametrize("args", [None, {"to": "ann"}])
def test_a_schedule_that_leaves_a_required_parameter_open_is_refused(app: App, args: dict[str, object] | None) -> None:
    for declare in (app.schedule, lambda rule: app.task(schedule=rule)):
        with pytest.raises(BadSchedule, match=r"task 'needs' \(.*\): the schedule has no value for .*body"):
            declare(CronSchedule("@daily", args=args))(needs)
    app.schedule(CronSchedule("@daily", args={"to": "ann", "body": "hello"}))(needs)
