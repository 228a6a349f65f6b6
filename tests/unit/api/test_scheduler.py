"""Task and Scheduler: adding and running; starting and stopping is in test_lifecycle."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from onthedot import (
    ArgumentError,
    BaseTaskConsumer,
    Cancel,
    Reject,
    SchedulerStateError,
    Task,
    TaskFailed,
)
from onthedot.clock.manual import ManualClock
from tests.support.consumers import Work, running, scheduler_of
from tests.support.waits import SOON, every_chance, until

pytestmark = pytest.mark.usefixtures("own_globals", "no_hidden_trouble")
NOON = datetime(2026, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)


# -- Task


def test_a_task_as_a_dict() -> None:
    task = Task("work", {"to": "ann", "list": [1, 2.5, None]}, NOON, "u-1")
    assert task.to_dict() == {
        "uuid": "u-1",
        "args": {"to": "ann", "list": [1, 2.5, None]},
        "source": "work",
        "schedule_at": "2026-07-01T12:00:00.123456+00:00",
    }
    written = json.dumps(task.to_dict())
    assert Task.from_dict(json.loads(written)) == task
    assert Task.from_dict({**json.loads(written), "attempts": 3, "host": "x"}) == task
    whole = Task("work", None, NOON.replace(microsecond=0))
    assert whole.to_dict()["schedule_at"] == "2026-07-01T12:00:00.000000+00:00", "always with microseconds"
    assert Task.from_dict(whole.to_dict()) == whole


def test_a_task_is_due_now_and_has_a_uuid_of_its_own() -> None:
    before = datetime.now(UTC)
    tasks = [Task("work") for _ in range(10_000)]
    assert len({task.uuid for task in tasks}) == 10_000
    assert tasks[0].args == {}
    assert all(before <= task.schedule_at <= datetime.now(UTC) for task in tasks)


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        (Task("work", {"a": 1}, NOON, "u"), True),
        (Task("work", {"a": 1}, NOON.astimezone(timezone(timedelta(hours=5, minutes=45))), "u"), True),
        (Task("work", {"a": 1}, NOON + timedelta(microseconds=1), "u"), False),
        (Task("work", {"a": 2}, NOON, "u"), False),
        (Task("other", {"a": 1}, NOON, "u"), False),
        (Task("work", {"a": 1}, NOON, "v"), False),
        ("u", False),
        (None, False),
    ],
)
def test_equality_goes_by_the_four_fields(other: object, equal: bool) -> None:
    task = Task("work", {"a": 1}, NOON, "u")
    assert (task == other) is equal
    if isinstance(other, Task) and equal:
        assert hash(task) == hash(other)


def test_the_caller_s_dict_is_not_the_task_s() -> None:
    args = {"a": 1}
    task = Task("work", args)
    args["a"] = 2
    assert task.args == {"a": 1}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Task("work", {}, datetime(2026, 1, 1)), ValueError, "has no time zone"),  # noqa: DTZ001
        (lambda: Task("work", {}, "2026-01-01T00:00:00+00:00"), TypeError, "schedule_at must be a datetime, not str"),
        (lambda: Task("work", {}, 1_700_000_000), TypeError, "not int"),
        (lambda: Task("work", [1]), TypeError, "args of a task must be a dict, not list"),
        (lambda: Task(""), ValueError, "source '' is not a name"),
        (lambda: Task("a b"), ValueError, "source 'a b' is not a name"),
        (lambda: Task(None), ValueError, "source None is not a name"),
        (lambda: Task("work", uuid=""), ValueError, "uuid '' is not an id"),
        (lambda: Task("work", uuid=7), ValueError, "uuid 7 is not an id"),
        (lambda: Task.from_dict({"source": "work"}), ValueError, "schedule_at, uuid missing"),
        (lambda: Task.from_dict({"source": "work", "uuid": "u", "schedule_at": "soon"}), ValueError, "soon"),
        (lambda: Task.from_dict({"source": "work", "uuid": "u", "schedule_at": "2026-01-01"}), ValueError, "time zone"),
        (lambda: Task.from_dict({"source": "w", "uuid": "u", "schedule_at": 5}), TypeError, "schedule_at"),
    ],
)  # fmt: skip
def test_invalid_task_fields_are_refused(make: Callable[[], Task], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make()


# -- adding


async def test_tasks_can_be_added_before_start_and_after_stop() -> None:
    work = Work()
    scheduler = scheduler_of(work)
    first = scheduler.add_task(Task("work", {"n": 1}))
    assert (first.added, first.done()) == (True, False)
    await scheduler.start()
    await until(first.done)
    await scheduler.stop()
    second = scheduler.add_task(Task("work", {"n": 2}))
    third = await scheduler.add(Task("work", {"n": 3}))
    await every_chance()
    assert work.ran() == [1]
    await scheduler.start()
    await until(lambda: second.done() and third.done())
    await scheduler.stop()
    assert work.ran() == [1, 2, 3]
    assert (first.state(), second.state(), third.state()) == ("succeeded",) * 3


async def test_tasks_can_be_added_from_other_threads() -> None:
    work = Work(count=50)
    async with running(work) as scheduler:
        threads = [
            threading.Thread(
                target=lambda n=n: [scheduler.add_task(Task("work", {"n": n * 100 + i})) for i in range(100)]
            )
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        await until(lambda: len(work.started) == 800)
        for thread in threads:
            thread.join()
    assert sorted(work.ran()) == list(range(800))


def changed(**fields: Any) -> Task:
    """A task is a plain object that may have been changed since it was checked."""
    task = Task("work")
    for name, value in fields.items():
        setattr(task, name, value)
    return task


@pytest.mark.parametrize(
    ("task", "error", "message"),
    [
        (None, TypeError, "takes a Task, not NoneType"),
        ({"source": "work"}, TypeError, "takes a Task, not dict"),
        (Task, TypeError, "takes a Task, not type"),
        ("work", TypeError, "takes a Task, not str"),
        (Task("work", {"x": object()}), ArgumentError, "'x' cannot be stored"),
        (Task("work", {"x": "y" * (1 << 20)}), ArgumentError, "the limit is 1,048,576"),
        (changed(schedule_at=datetime(2026, 1, 1)), ValueError, "has no time zone"),  # noqa: DTZ001
        (changed(schedule_at="now"), (TypeError, ValueError), "schedule_at"),
        (changed(args=[1, 2]), TypeError, "list"),
        (changed(source="no such name!"), ValueError, "'no such name!' is not a name"),
        (changed(uuid=7), ValueError, "7 is not an id"),
    ],
)
@pytest.mark.parametrize("method", ["add_task", "add"])
async def test_what_is_not_a_valid_task_is_refused_at_once(
    method: str, task: Any, error: Any, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work()
    async with running(work) as scheduler:
        scheduler.add_task(Task("work", {"n": 1}))
        with pytest.raises(error, match=message):
            _ = scheduler.add_task(task) if method == "add_task" else await scheduler.add(task)
        scheduler.add_task(Task("work", {"n": 2}))
        await until(lambda: work.ran() == [1, 2])
        await every_chance()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    ("second", "warned"),
    [
        ({}, False),
        ({"schedule_at": NOON.astimezone(timezone(timedelta(hours=5, minutes=45)))}, False),
        ({"args": {"n": 2}}, True),
        ({"schedule_at": NOON + timedelta(microseconds=1)}, True),
        ({"source": "other"}, True),
    ],
    ids=["the same", "in another zone", "args", "time", "source"],
)
@pytest.mark.parametrize("method", ["add_task", "add"])
async def test_same_uuid_is_added_once(
    method: str, second: dict[str, Any], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fields: dict[str, Any] = {"source": "work", "args": {"n": 1}, "schedule_at": NOON, "uuid": "u-1"}
    clock = ManualClock(NOON)
    work = Work()
    other = Work(name="other")
    async with running(work, other, clock=clock) as scheduler:
        clock.advance(-1000)
        first = scheduler.add_task(Task(**fields))
        again = Task(**(fields | second))
        handle = scheduler.add_task(again) if method == "add_task" else await scheduler.add(again)
        assert (first.added, handle.added, handle.uuid) == (True, False, "u-1")
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warnings) == warned
        assert all("u-1" in line for line in warnings)
        clock.advance(1001)
        await until(first.done)
        await every_chance()
    assert work.started == [Task(**fields)], "the first stands, and runs once"
    assert other.started == []


# -- running


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("no luck"), "no luck"),
        (SystemExit(3), "3"),
        (KeyboardInterrupt(), ""),
        (asyncio.CancelledError(), ""),
        (GeneratorExit(), ""),
        (StopAsyncIteration(), ""),
        (BaseException("base"), "base"),
        (TimeoutError("slow"), "slow"),
        (Reject("not good"), "not good"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
@pytest.mark.parametrize("where", ["async", "thread"])
async def test_error_fails_only_its_own_task(
    where: str, error: BaseException, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(BaseTaskConsumer):
        name = "failing"

        async def consume(self, task: Task) -> None:
            raise error

    class InThread(BaseTaskConsumer):
        name = "failing"

        def consume(self, task: Task) -> None:
            raise error

    failing = (Failing if where == "async" else InThread)()
    work = Work()
    async with running(failing, work) as scheduler:
        bad = [scheduler.add_task(Task("failing")) for _ in range(3)]
        good = scheduler.add_task(Task("work", {"n": 1}))
        await until(lambda: all(handle.done() for handle in [*bad, good]))
        assert [handle.state() for handle in [*bad, good]] == ["failed"] * 3 + ["succeeded"]
        assert scheduler.status()["status"] == "running"
        lines = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert [line.getMessage() for line in lines] == [
            f"[fail] task {handle.uuid} from failing: {shown}" for handle in bad
        ]
        assert all(line.exc_info is not None and line.exc_info[1] is error for line in lines), "with the traceback"
        failure = await asyncio.to_thread(bad[0].exception, timeout=SOON)
        assert isinstance(failure, TaskFailed)


async def test_task_that_cancels_its_coroutine_does_not_affect_others() -> None:
    """Effects of a task on its coroutine must not reach the next task."""

    async def suicide(task: Task) -> None:
        me = asyncio.current_task()
        assert me is not None
        me.cancel()
        if task.args["n"] % 2:
            await asyncio.sleep(0)

    work = Work(do=suicide)
    other = Work(name="other")
    async with running(work, other, concurrency=1) as scheduler:
        for n in range(10):
            scheduler.add_task(Task("work", {"n": n}))
            scheduler.add_task(Task("other", {"n": n}))
        await until(lambda: len(work.started) == len(other.started) == 10)
        await until(lambda: scheduler.status()["running_count"] == 0)
    assert other.ran() == list(range(10))


async def test_raised_cancel_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def give_up(task: Task) -> None:
        raise Cancel("not needed")

    async with running(Work(do=give_up)) as scheduler:
        handle = scheduler.add_task(Task("work"))
        await until(handle.done)
        assert (handle.state(), handle.info().reason) == ("cancelled", "not needed")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


class Broken(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise OSError("the disk with the logs is full")


async def test_failing_log_handler_does_not_stop_tasks() -> None:
    async def fail(task: Task) -> None:
        raise ValueError("no luck")

    logger = logging.getLogger("test_scheduler.broken")
    logger.propagate = False
    work = Work(do=fail)
    other = Work(name="other")
    async with running(work, other, logger=logger, stop_timeout=0) as scheduler:
        logger.addHandler(broken := Broken())
        try:
            handles = [scheduler.add_task(Task(source)) for source in ("work", "other")]
            await until(lambda: all(handle.done() for handle in handles))
        finally:
            logger.removeHandler(broken)
        assert [handle.state() for handle in handles] == ["failed", "succeeded"]


colour: contextvars.ContextVar[Any] = contextvars.ContextVar("colour", default="none")


class Incomparable:
    def __eq__(self, other: object) -> bool:
        raise TypeError("two arrays: which element?")

    __hash__ = None


@pytest.mark.parametrize("value", ["red", Incomparable()], ids=["text", "incomparable"])
@pytest.mark.parametrize("suspends", [False, True])
@pytest.mark.parametrize("where", ["async", "thread"])
async def test_context_variables_stay_in_their_task(
    where: str, suspends: bool, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    gc.collect()
    caplog.clear()
    seen: list[Any] = []
    outside = Incomparable() if isinstance(value, Incomparable) else "none"
    token = colour.set(outside)

    class Painter(BaseTaskConsumer):
        name = "painter"
        concurrent_count = 3

        async def consume(self, task: Task) -> None:
            seen.append(colour.get())
            colour.set(value)
            if suspends:
                await asyncio.sleep(0)
                assert colour.get() is value

    class InThread(BaseTaskConsumer):
        name = "painter"
        concurrent_count = 3

        def consume(self, task: Task) -> None:
            seen.append(colour.get())
            colour.set(value)

    async with running((Painter if where == "async" else InThread)()) as scheduler:
        for _ in range(50):
            scheduler.add_task(Task("painter"))
        await until(lambda: len(seen) == 50)
    colour.reset(token)
    assert all(each is outside for each in seen)
    gc.collect()  # a coroutine that was never awaited is reported then
    assert [record.getMessage() for record in caplog.records] == []


async def test_result_on_the_loop_of_the_worker_names_the_async_form() -> None:
    async with running(Work()) as scheduler:
        handle = scheduler.add_task(Task("work"))
        with pytest.raises(SchedulerStateError, match="would block the very event loop"):
            handle.result(timeout=SOON)
