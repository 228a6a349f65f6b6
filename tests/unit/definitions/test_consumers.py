"""Consumers and their registry."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import weakref
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from onthedot import (
    App,
    BaseTaskConsumer,
    DeclarationError,
    DuplicateTask,
    IntervalSchedule,
    Retry,
    Scheduler,
    Task,
    TaskConsumerRegistry,
    current_task,
)
from onthedot.clock.manual import ManualClock
from tests.support.consumers import Work, running
from tests.support.waits import SOON, every_chance, until

pytestmark = pytest.mark.usefixtures("no_thread_left", "no_hidden_trouble")


@pytest.fixture(autouse=True)
def own_global_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskConsumerRegistry, "sources", {})
    monkeypatch.setattr(TaskConsumerRegistry, "watchers", [])


class Email(Work):
    name = "email"


class Sms(Email):
    name = "sms"


# -- the registry


class Nameless(BaseTaskConsumer):
    def consume(self, task: Task) -> None: ...


class NotFinished(BaseTaskConsumer):
    name = "unfinished"


def named(name: Any) -> BaseTaskConsumer:
    consumer = Nameless()
    consumer.name = name
    return consumer


def test_consumer_without_consume_is_refused() -> None:
    with pytest.raises(TypeError, match="consume"):
        NotFinished()


@pytest.mark.parametrize("registry", [TaskConsumerRegistry, TaskConsumerRegistry()], ids=["global", "own"])
@pytest.mark.parametrize(
    ("consumer", "error", "message"),
    [
        (lambda: Email, TypeError, r"not a class: register\(Email\(\)\)"),
        (lambda: object(), TypeError, "takes a BaseTaskConsumer, not object"),
        (lambda: None, TypeError, "not NoneType"),
        (lambda: Nameless(), ValueError, "name of Nameless '' is not a name"),
        (lambda: named("two words"), ValueError, "'two words' is not a name"),
        (lambda: named("日本"), ValueError, "is not a name"),
        (lambda: named("x" * 201), ValueError, "1 to 200"),
        (lambda: named(7), ValueError, "7 is not a name"),
        (lambda: named("email"), DuplicateTask, "'email' is taken by Email: Nameless needs another"),
    ],
)  # fmt: skip
def test_registry_refuses_what_is_no_consumer(
    registry: Any, consumer: Any, error: type[Exception], message: str
) -> None:
    email = registry.find("email") or Email()
    registry.register(email)
    with pytest.raises(error, match=message):
        registry.register(consumer())
    assert registry.sources == {"email": email}


def test_registries_have_separate_consumers() -> None:
    mine = TaskConsumerRegistry()
    email = Email()
    sms = Sms()
    TaskConsumerRegistry.register(email)
    mine.register(sms)
    assert (TaskConsumerRegistry.sources, mine.sources) == ({"email": email}, {"sms": sms})
    assert (TaskConsumerRegistry.find("email"), TaskConsumerRegistry.find("sms")) == (email, None)
    assert (mine.find("sms"), mine.find("email")) == (sms, None)


def test_unregister_and_clear() -> None:
    registry = TaskConsumerRegistry()
    email = Email()
    registry.register(email)
    registry.register(email)  # the same once more is no other
    registry.register(Sms())
    registry.unregister("email")
    assert registry.find("email") is None
    with pytest.raises(KeyError, match="email"):
        registry.unregister("email")
    registry.register(Email())  # the name is free again
    registry.clear()
    assert registry.sources == {}


def test_registry_does_not_keep_a_scheduler_alive() -> None:
    gone = weakref.ref(Scheduler())
    gc.collect()
    assert gone() is None, "the global registry would keep every scheduler that ever was"


async def test_consumers_can_be_added_and_removed_while_running() -> None:
    email = Email()
    later = Sms()
    async with running(email, poll_interval=3600) as scheduler:
        await until(lambda: scheduler.runtime.worker.idle.is_set())
        scheduler.registry.register(later)
        scheduler.add_task(Task("sms"))
        await until(lambda: len(later.started) == 1)  # much sooner than the next poll

        scheduler.registry.unregister("sms")
        handle = scheduler.add_task(Task("sms"))
        await until(handle.done)
        assert (handle.state(), len(later.started)) == ("failed", 1)

        other = Sms()
        await asyncio.to_thread(scheduler.registry.register, other)  # from any thread
        assert handle.retry()
        await until(lambda: len(other.started) == 1)
        assert len(later.started) == 1, "a new one of the same name takes over"


async def test_task_runs_if_its_consumer_is_registered_right_after_it() -> None:
    """The hint of the task arrives before the loop has read its sources again."""
    sms = Sms()
    async with running(Email(), poll_interval=3600) as scheduler:
        await every_chance()
        handle = scheduler.add_task(Task("sms", {}, datetime.now(UTC) - timedelta(seconds=1)))
        scheduler.registry.register(sms)
        await until(handle.done)
        assert (handle.state(), len(sms.started)) == ("succeeded", 1)


async def test_consumer_registered_later_brings_its_limits() -> None:
    class Slow(Email):
        name = "slow"
        concurrent_count = 5
        concurrency = 1

    slow = Slow(gated=True)
    async with running() as scheduler:
        scheduler.registry.register(slow)
        for _ in range(5):
            scheduler.add_task(Task("slow"))
        await until(lambda: slow.started)
        await every_chance()
        slow.gate.set()
        await until(lambda: len(slow.started) == 5)
    assert slow.most == 1


# -- how many at once


class Raising(Email):
    @property
    def concurrent_count(self) -> int:
        raise RuntimeError("not now")


def with_count(count: Any) -> Email:
    email = Email(gated=True)
    email.concurrent_count = count
    return email


@pytest.mark.parametrize(
    "email",
    [lambda: with_count(0), lambda: with_count(-3), lambda: with_count("2"), lambda: with_count(2.0),
     lambda: with_count(True), lambda: with_count(None), lambda: Raising(gated=True)],
    ids=["0", "-3", "str", "float", "bool", "None", "raises"],
)  # fmt: skip
async def test_invalid_concurrent_count_counts_as_one(
    email: Callable[[], Email], caplog: pytest.LogCaptureFixture
) -> None:
    consumer = email()
    async with running(consumer) as scheduler:
        for _ in range(4):
            scheduler.add_task(Task("email"))
        await until(lambda: consumer.started)
        await every_chance()
        consumer.gate.set()
        await until(lambda: len(consumer.started) == 4)
    assert consumer.most == 1
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.levelno == logging.WARNING
    assert line.name == "onthedot.scheduler"
    assert "concurrent_count of consumer email" in line.getMessage()


async def test_concurrent_count_is_read_at_each_claim() -> None:
    email = with_count(1)
    async with running(email) as scheduler:
        for _ in range(6):
            scheduler.add_task(Task("email"))
        await until(lambda: len(email.started) == 1)
        email.concurrent_count = 3
        scheduler.add_task(Task("email"))  # makes the loop look
        await until(lambda: len(email.started) == 3)
        await every_chance()
        assert len(email.started) == 3
        email.concurrent_count = 1
        email.gate.set()
        await until(lambda: len(email.started) == 7)
    assert email.most == 3


async def test_full_source_does_not_delay_another_source() -> None:
    email = Email(gated=True)
    sms = Sms()
    async with running(email, sms) as scheduler:
        for _ in range(100):
            scheduler.add_task(Task("email"))
        scheduler.add_task(Task("sms"))
        await until(lambda: len(sms.started) == 1)
        assert len(email.started) == 1
        email.gate.set()
        await until(lambda: len(email.started) == 100)


# -- what a consumer is


def test_produce_makes_a_task_that_is_due_now() -> None:
    before = datetime.now(UTC)
    task = Email().produce({"to": "ann"})
    assert (task.source, task.args) == ("email", {"to": "ann"})
    assert before <= task.schedule_at <= datetime.now(UTC)
    assert Email().produce().args == {}
    assert Email().produce().uuid != task.uuid


async def test_produce_can_check_arguments_and_set_the_time() -> None:
    class Later(Email):
        def produce(self, args: Mapping[str, Any] | None = None) -> Task:
            if not args or "to" not in args:
                raise ValueError("to whom?")
            return Task(self.name, args, clock.moment() + timedelta(seconds=1))

    clock = ManualClock()
    later = Later()
    with pytest.raises(ValueError, match="to whom"):
        later.produce()
    async with running(later, clock=clock) as scheduler:
        task = later.produce({"to": "ann"})
        scheduler.add_task(task)
        await every_chance()
        assert later.started == []
        clock.advance(1000)
        await until(lambda: later.started == [task])


class Wrapped(Email):
    """A decorator of the user may turn an ``async def`` into a plain function that returns a coroutine."""

    def __init__(self) -> None:
        super().__init__()
        consume = super().consume

        @functools.wraps(consume)
        def wrapper(task: Task) -> Any:
            return consume(task)

        self.consume = wrapper


class Callable_(Email):
    """An object with an async ``__call__`` in the place of the method."""

    def __init__(self) -> None:
        super().__init__()
        consume = super().consume

        class Call:
            async def __call__(self, task: Task) -> None:
                await consume(task)

        self.consume = Call()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # the assertion says it better
@pytest.mark.parametrize("kind", [Wrapped, Callable_])
async def test_coroutine_returned_by_a_plain_consume_is_awaited(kind: type[Email]) -> None:
    consumer = kind()
    async with running(consumer) as scheduler:
        handle = scheduler.add_task(Task("email"))
        await until(handle.done)
        assert (handle.state(), len(consumer.started)) == ("succeeded", 1)


async def test_the_options_of_a_task_are_class_attributes() -> None:
    class Stubborn(Email):
        max_retries = 2
        backoff: ClassVar = [0]
        tags = ("eu",)
        priority = "high"

        async def consume(self, task: Task) -> Any:
            self.started.append(task)
            context = current_task()
            if context.attempt == 1:
                raise OSError("gone")
            if context.attempt == 2:
                raise Retry(0)
            return {"attempt": context.attempt, "tags": context.tags}

    consumer = Stubborn()
    async with running(consumer) as scheduler:
        task = Task("email", {"n": 1})
        handle = scheduler.add_task(task)
        await until(handle.done)
        assert consumer.started == [task, task, task]
        assert (handle.state(), handle.info().priority, handle.info().tags) == ("succeeded", 10, ("eu",))
        result = await asyncio.to_thread(handle.result, timeout=SOON)
        assert result == {"attempt": 3, "tags": ("eu",)}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"max_retries": -1}, "max_retries must be a whole number"),
        ({"priority": 11}, "priority must be 1 to 10"),
        ({"tags": "eu"}, "tags must be a list"),
        ({"timeout": 0}, "timeout must be more than 0"),
        ({"executor": "nowhere"}, "nowhere"),
        ({"rate_limit": "fast"}, "fast"),
        ({"schedule": "61 * * * *"}, "61"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "register", [TaskConsumerRegistry.register, lambda consumer: App(store="memory://").register(consumer)]
)
def test_impossible_consumer_options_are_refused(register: Any, attributes: dict[str, Any], message: str) -> None:
    consumer = type("Bad", (Email,), attributes)()
    with pytest.raises(DeclarationError, match=message):
        register(consumer)
    assert TaskConsumerRegistry.sources == {}


async def test_executor_thread_of_an_async_consume_is_refused() -> None:
    consumer = type("Bad", (Email,), {"executor": "thread"})()
    with pytest.raises(DeclarationError, match="async"):
        TaskConsumerRegistry.register(consumer)


@pytest.mark.parametrize(
    "register", [TaskConsumerRegistry.register, lambda consumer: App(store="memory://").register(consumer)]
)
def test_executor_async_of_a_plain_consume_is_refused(register: Any) -> None:
    class Plain(BaseTaskConsumer):
        name = "plain"
        executor = "async"

        def consume(self, task: Task) -> None:
            raise AssertionError

    with pytest.raises(DeclarationError, match=r"'plain'.*`async def consume`.*thread"):
        register(Plain())
    assert TaskConsumerRegistry.sources == {}


class Ticking(Email):
    name = "tick"
    schedule = IntervalSchedule(60, args={"n": 1})


@pytest.mark.parametrize("owner", ["scheduler", "app"])
async def test_consumer_can_have_a_schedule(owner: str) -> None:
    clock = ManualClock()
    tick = Ticking()
    if owner == "app":
        app = App(store="memory://")
        app.register(tick)
        with app.override(clock=clock):
            async with app.running():
                await self_paced(clock, tick)
                assert app.status()["scheduled_count"] == 1
    else:
        async with running(tick, clock=clock) as scheduler:
            await self_paced(clock, tick)
            assert scheduler.status()["scheduled_count"] == 1


async def self_paced(clock: ManualClock, tick: Ticking) -> None:
    for n in range(3):
        await every_chance()
        assert len(tick.started) == n
        clock.advance(60_000)
        await until(lambda n=n: len(tick.started) == n + 1)
    assert [task.args for task in tick.started] == [{"n": 1}] * 3


async def test_consume_gets_its_own_copy_of_the_task() -> None:
    """The task went through the store: changing it does not affect the caller's object."""

    class Greedy(Email):
        async def consume(self, task: Task) -> None:
            task.args["list"].append(4)
            await super().consume(task)

    greedy = Greedy()
    given = {"list": [1, 2, 3]}
    async with running(greedy) as scheduler:
        scheduler.add_task(Task("email", given))
        given["list"].clear()  # stored when add_task returned
        await until(lambda: greedy.started)
    assert greedy.started[0].args == {"list": [1, 2, 3, 4]}
