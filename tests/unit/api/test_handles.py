"""Handles: read, wait, cancel and retry, in sync and async code."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from onthedot import (
    App,
    AsyncTaskHandle,
    ResultNotStored,
    SchedulerStateError,
    TaskCancelled,
    TaskFailed,
    TaskHandle,
    TaskNotFound,
    TaskState,
    as_completed,
)
from tests.support.waits import LONG, SOON, until


@dataclass
class Point:
    x: int
    y: int


app = App("handles", store="memory://", stop_timeout=0)


@app.task
async def move(point: Point, by: int = 1) -> Point:
    return Point(point.x + by, point.y + by)


@app.task
async def fail(message: str) -> None:
    raise ConnectionError(message)


@app.task
async def hang() -> str:
    await asyncio.sleep(LONG)
    return "woke up"


@app.task
async def opaque() -> object:
    return object()


@app.task(keep=0)
async def forget() -> int:
    return 1


broken = threading.Event()


@app.task
async def mended() -> str:
    if broken.is_set():
        raise OSError("still broken")
    return "mended"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    broken.clear()
    with app.override(store="memory://"):
        yield


async def is_running(handle: AsyncTaskHandle[Any]) -> bool:
    return await handle.state() == TaskState.RUNNING


# -- both colours


def test_both_kinds_have_the_same_methods() -> None:
    def public(kind: type) -> dict[str, list[str]]:
        return {n: list(inspect.signature(m).parameters) for n, m in vars(kind).items() if n[0] != "_" and callable(m)}

    assert public(TaskHandle) == public(AsyncTaskHandle)
    names = {"state", "info", "done", "result", "exception", "cancel", "retry", "signal", "stream"}
    assert public(TaskHandle).keys() == names


def test_handle_in_sync_code_follows_its_task() -> None:
    handle = move.delay(Point(1, 2), by=3)
    assert (handle.added, handle.state(), handle.done()) == (True, "ready", False)
    with app.background():
        assert handle.result(timeout=SOON) == Point(4, 5)
        assert (handle.state(), handle.done(), handle.exception(timeout=SOON)) == ("succeeded", True, None)
        assert (handle.cancel(), handle.retry()) == (False, False)
        info = handle.info()
    assert (info.source, info.state, info.attempt, info.args["by"]) == ("move", TaskState.SUCCEEDED, 1, 3)
    assert info.started_at is not None
    assert info.ended_at is not None
    assert info.added_at <= info.started_at <= info.ended_at
    assert repr(handle) == f"TaskHandle({handle.uuid!r})"


async def test_handle_in_async_code_follows_its_task() -> None:
    async with app.running():
        handle = await move.enqueue(Point(1, 2))
        assert await handle == await handle.result(timeout=SOON) == Point(2, 3)
        assert (await handle.state(), await handle.done(), await handle.exception()) == ("succeeded", True, None)
        assert (await handle.cancel(), await handle.retry()) == (False, False)
        assert (await handle.info()).worker
        assert repr(handle) == f"AsyncTaskHandle({handle.uuid!r})"


async def test_handle_by_uuid_decodes_by_the_annotation() -> None:
    async with app.running():
        uuid = (await move.enqueue(Point(0, 0))).uuid
        typed = move.ahandle(uuid)
        plain = app.ahandle(uuid)
        assert (await typed, typed.added) == (Point(1, 1), False)
        assert await plain == {"x": 1, "y": 1}
    assert move.handle(uuid).info() == app.handle(uuid).info() == app.sync.get(uuid)


# -- waiting


async def test_a_wait_that_is_too_short_is_a_timeout_error_and_changes_nothing() -> None:
    async with app.running():
        handle = await hang.enqueue()
        with pytest.raises(TimeoutError, match=rf"{handle.uuid} has not ended within 0.01 s"):
            await handle.result(timeout=0.01)
        assert not await handle.done()
        waiting = asyncio.create_task(handle.result())
        await until(lambda: is_running(handle))
        waiting.cancel()  # who gives up waiting does not take the task along
        await asyncio.wait([waiting])
        assert await handle.state() == "running"


def test_waiting_too_short_in_sync_code() -> None:
    handle = move.options(after=LONG).delay(Point(0, 0))
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.01)
    assert handle.state() == "scheduled"


async def test_all_waiters_of_a_task_are_woken_at_once() -> None:
    """By a hint, not by the next poll: a hundred waits of a poll's length would take minutes."""
    async with app.running():
        handles = await move.options(after=0.02).enqueue_many([{"point": Point(n, n)} for n in range(100)])
        began = time.monotonic()
        for handle in handles:
            assert len(await asyncio.gather(handle, handle.result(), handle.exception())) == 3
        assert time.monotonic() - began < SOON


async def test_result_on_the_loop_that_would_run_it_says_what_to_write() -> None:
    async with app.running():
        handle = move.delay(Point(1, 1))  # adding is fine here
        with pytest.raises(SchedulerStateError, match=r"await f\.enqueue\(…\)` and `await h`"):
            handle.result()
        await until(handle.done)  # looking is fine too
    assert handle.result() == Point(2, 2)


async def test_a_handle_can_be_awaited_where_nothing_was_connected() -> None:
    handle = await move.enqueue(Point(1, 1))
    with app.background():
        assert await handle == Point(2, 2)


async def test_as_completed_follows_the_order_of_the_ends() -> None:
    async with app.running():
        later, sooner = [await move.options(after=s).enqueue(Point(0, 0)) for s in (1.0, 0.5)]
        failing = await fail.enqueue("no")
        missing = app.ahandle("never-added")
        handles: list[AsyncTaskHandle[Any]] = [later, sooner, failing, missing]
        order = [handle.uuid async for handle in as_completed(handles)]
    assert set(order[:2]) == {failing.uuid, missing.uuid}
    assert order[2:] == [sooner.uuid, later.uuid]


async def test_as_completed_gives_up_after_its_timeout() -> None:
    async with app.running():
        quick = await move.enqueue(Point(0, 0))
        slow = await hang.enqueue()
        await quick
        ends = as_completed([quick, slow], timeout=0.2)
        assert await anext(ends) is quick
        with pytest.raises(TimeoutError):
            await anext(ends)


# -- ends


async def test_a_failure_has_all_its_fields_and_the_remote_traceback_as_a_note() -> None:
    async with app.running():
        handle = await fail.enqueue("no route")
        with pytest.raises(TaskFailed) as caught:
            await handle
        error = caught.value
        other = await handle.exception()
    assert (error.task, error.error_type, error.message) == (handle.uuid, "ConnectionError", "no route")
    assert error.attempt == 1
    assert str(error) == f"task {handle.uuid} failed: ConnectionError: no route"
    assert "raise ConnectionError(message)" in error.traceback
    assert "onthedot/engine" not in error.traceback.replace("\\", "/")  # how the engine came to call it helps nobody
    assert error.__notes__ == [f"where it ran (attempt 1):\n{error.traceback}"]
    assert isinstance(other, TaskFailed)
    assert handle.uuid in repr(other)


@pytest.mark.parametrize("what", ["state", "info", "done", "result", "exception"])
def test_an_unknown_uuid_is_task_not_found(what: str) -> None:
    with pytest.raises(TaskNotFound, match="no task nobody"):
        getattr(app.handle("nobody"), what)()


def test_an_unknown_uuid_is_neither_cancelled_nor_retried() -> None:
    assert (app.handle("nobody").cancel(), app.handle("nobody").retry()) == (False, False)


async def test_task_without_retention_is_not_found_after_its_end() -> None:
    async with app.running():
        handle = await forget.enqueue()
        with pytest.raises(TaskNotFound):
            await handle


async def test_a_result_that_cannot_be_stored_leaves_the_task_succeeded(caplog: pytest.LogCaptureFixture) -> None:
    async with app.running():
        handle = await opaque.enqueue()
        with pytest.raises(ResultNotStored, match=handle.uuid):
            await handle
        assert (await handle.state(), await handle.exception()) == ("succeeded", None)
    (warning,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert handle.uuid in warning.message


# -- cancel and retry


async def test_pending_task_is_cancelled_at_once_without_a_worker() -> None:
    async with app:
        handle = await move.options(after=LONG).enqueue(Point(0, 0))
        assert await handle.cancel()
        assert not await handle.cancel()
        with pytest.raises(TaskCancelled) as caught:
            await handle
    assert (caught.value.reason, caught.value.task) == ("cancelled", handle.uuid)


@pytest.mark.timed
async def test_a_running_task_is_cancelled_within_100_ms() -> None:
    took = []
    async with app.running():
        for _ in range(5):  # the best of five: the machine may be busy, the engine must not be slow
            handle = await hang.enqueue()
            await until(lambda handle=handle: is_running(handle))
            began = time.perf_counter()
            assert await handle.cancel()
            error = await handle.exception()
            took.append(time.perf_counter() - began)
            assert isinstance(error, TaskCancelled)
            assert error.reason == "cancelled"
    assert min(took) < 0.1


@pytest.mark.parametrize("running", [False, True])
async def test_cancelled_task_has_its_reason(running: bool) -> None:
    async with app.running():
        handle = await (hang if running else hang.options(after=LONG)).enqueue()
        if running:
            await until(lambda: is_running(handle))
        assert await app.cancel(handle.uuid, reason="not wanted any more") == 1
        error = await handle.exception()
        assert isinstance(error, TaskCancelled)
        assert (error.reason, (await handle.info()).reason) == ("not wanted any more", "not wanted any more")


async def test_a_failed_task_is_retried_under_its_uuid_with_its_attempts_kept() -> None:
    broken.set()
    async with app.running():
        handle = await mended.enqueue()
        error = await handle.exception()
        assert isinstance(error, TaskFailed)
        broken.clear()
        assert await handle.retry()
        assert await handle == "mended"
        assert (await handle.info()).attempt == 2
        assert (await app.find(state="failed")).tasks == ()


async def test_a_cancelled_task_is_retried() -> None:
    async with app.running():
        handle = await mended.options(after=LONG).enqueue()
        await handle.cancel()
        assert await app.retry(handle.uuid, "nobody") == [handle.uuid]
        assert await handle == "mended"


@pytest.mark.parametrize("verb", ["result", "exception"])
def test_shutdown_cancels_pending_tasks_and_ends_all_waits(verb: str) -> None:
    app.start(auto=True)
    handles = [hang.delay(), *[move.options(after=LONG).delay(Point(n, n)) for n in range(20)]]
    answers: list[object] = []

    def wait(handle: TaskHandle[Any]) -> None:
        try:
            answers.append(getattr(handle, verb)(timeout=LONG))
        except TaskCancelled as error:
            answers.append(error)

    waiters = [threading.Thread(target=wait, args=(handle,), daemon=True) for handle in handles]
    for waiter in waiters:
        waiter.start()
    asyncio.run(until(lambda: handles[0].state() == TaskState.RUNNING))
    app.shutdown()
    for waiter in waiters:
        waiter.join(SOON)
    assert [getattr(answer, "reason", answer) for answer in answers] == ["shutdown"] * len(handles)
    assert {handle.state() for handle in handles} == {"cancelled"}


async def test_waiting_by_sync_code_on_a_foreign_event_loop_is_logged_once(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    app: App[None] = App("blocks", store=f"sqlite:///{tmp_path}/shop.db")

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    with app.background():  # on another thread: the task runs while this loop stands still
        first = add.delay(1, 2)
        second = add.delay(3, 4)
        assert (first.result(LONG), second.result(LONG)) == (3, 7)
        assert await app.ahandle(first.uuid) == 3
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert line.startswith(f"result() of task {first.uuid} blocks the event loop of its caller")


def test_waiting_by_sync_code_without_an_event_loop_is_not_logged(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    app: App[None] = App("waits", store=f"sqlite:///{tmp_path}/shop.db")

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    with app.background():
        assert add.delay(1, 2).result(LONG) == 3
    assert [record for record in caplog.records if record.levelno == logging.WARNING] == []
