"""Tasks in threads: context, cancel, timeout, and no leftover threads."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from onthedot import App, AsyncTaskHandle, Cancel, Retry, TaskCancelled, TaskFailed, TaskTimeout, current_task
from onthedot.clock.manual import ManualClock
from onthedot.executors.threads import ThreadExecutor
from tests.support.waits import SOON, until

pytestmark = pytest.mark.usefixtures("no_thread_left")


@pytest.fixture
def app(clock: ManualClock) -> Iterator[App]:
    app = App("threads", store="memory://", threads=2, stop_timeout=0)
    with app.override(clock=clock):
        yield app


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event that blocks threads; it is set at the end of the test in any case."""
    gate = threading.Event()
    yield gate
    gate.set()


async def is_running(handle: AsyncTaskHandle[Any]) -> bool:
    return await handle.state() == "running"


async def test_a_sync_function_runs_in_a_thread_and_knows_its_task(app: App) -> None:
    seen: dict[str, str] = {}

    def below() -> None:
        seen["uuid"] = current_task().uuid
        seen["thread"] = threading.current_thread().name

    @app.task
    def work() -> None:
        below()

    async with app.running():
        handle = await work.enqueue()
        await handle
    assert seen["uuid"] == handle.uuid
    assert seen["thread"].startswith("onthedot-threads-")


async def test_slots_bound_how_many_run_at_once_and_all_of_them_are_used(app: App) -> None:
    both = threading.Barrier(2)
    lock = threading.Lock()
    now = 0
    most = 0

    @app.task
    def work() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        both.wait(SOON)  # returns only if a second task runs, too
        with lock:
            now -= 1

    async with app.running():
        for handle in await work.enqueue_many([{}] * 10):
            await handle
    assert most == 2


@pytest.mark.parametrize(
    ("raised", "state", "words"),
    [
        (OSError("gone"), "failed", "gone"),
        (SystemExit(3), "failed", "3"),
        (KeyboardInterrupt(), "failed", ""),
        (StopIteration("odd"), "failed", "odd"),
        (asyncio.CancelledError("mine"), "failed", "mine"),
        (Cancel("no need"), "cancelled", "no need"),
        (Retry(7), "scheduled", ""),
    ],
)
async def test_whatever_a_thread_raises_ends_that_task_only(
    app: App, raised: BaseException, state: str, words: str
) -> None:
    @app.task(max_retries=1, retry_on=())
    def act(good: bool) -> str:
        if not good:
            raise raised
        return "fine"

    async def has_state() -> bool:
        return await handle.state() == state

    async with app.running():
        handle = await act.enqueue(good=False)
        await until(has_state)
        info = await handle.info()
        assert words in (info.error.message if info.error else info.reason)
        assert await (await act.enqueue(good=True)) == "fine"


async def test_progress_of_a_thread_is_visible(app: App, gate: threading.Event) -> None:
    @app.task
    def work() -> None:
        current_task().progress(1, 2)
        gate.wait(SOON)
        current_task().progress(2, 2)

    async with app.running():
        handle = await work.enqueue()

        async def progressed() -> bool:
            return (await handle.info()).progress == (1, 2)

        await until(progressed)
        gate.set()
        await handle
        assert (await handle.info()).progress == (2, 2)


async def test_a_thread_can_spawn_a_task(app: App) -> None:
    @app.task
    def child(number: int) -> int:
        return number

    @app.task
    def parent() -> str:
        return current_task().spawn(child.s(5)).uuid

    async with app.running():
        assert await child.ahandle(await (await parent.enqueue())) == 5


async def test_a_thread_can_add_a_task_and_wait_for_it(app: App) -> None:
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    @app.task
    def both(number: int) -> int:
        return double.delay(number).result(timeout=SOON) + double.delay(number + 1).result(timeout=SOON)

    async with app.running():
        assert await (await both.enqueue(10)) == 42


# -- cancelling


@pytest.mark.parametrize("raises", [True, False])
async def test_a_cancelled_thread_sees_the_request(app: App, raises: bool) -> None:
    @app.task
    def work() -> str:
        while not current_task().cancelled():
            time.sleep(0.001)
        if raises:
            current_task().raise_if_cancelled()
        return "stopped half way"

    async with app.running():
        handle = await work.enqueue()
        await until(lambda: is_running(handle))
        assert await handle.cancel()
        error = await handle.exception()
        if raises:
            assert isinstance(error, TaskCancelled)
            assert error.reason == "cancelled"
        else:
            assert await handle == "stopped half way"


async def test_a_thread_that_ignores_a_cancel_shows_cancel_wanted(app: App, gate: threading.Event) -> None:
    @app.task(max_retries=3, backoff=[0])
    def work() -> None:
        gate.wait(SOON)
        raise OSError("failed anyway")

    async with app.running():
        handle = await work.enqueue()
        await until(lambda: is_running(handle))
        await handle.cancel()
        info = await handle.info()
        assert (info.state, info.cancel_wanted) == ("running", True)
        gate.set()
        assert isinstance(await handle.exception(), TaskCancelled)  # and is not retried
        assert not (await handle.info()).cancel_wanted


async def test_waiting_for_a_cancelled_task_fails_the_waiting_task(app: App) -> None:
    @app.task
    async def child() -> None:
        raise Cancel("the child's own reason")

    @app.task
    def parent() -> None:
        child.delay().result(timeout=SOON)

    async with app.running():
        error = await (await parent.enqueue()).exception()
    assert isinstance(error, TaskFailed)
    assert "the child's own reason" in error.message


# -- timeouts


async def test_a_timeout_is_reported_at_once_but_the_slot_stays_taken(
    app: App, clock: ManualClock, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    began: list[str] = []
    wanted: list[bool] = []

    @app.task(timeout=5)
    def stuck() -> str:
        began.append(current_task().uuid)
        gate.wait(SOON)
        wanted.append(current_task().cancelled())
        return "too late"

    @app.task
    def quick(number: int) -> int:
        return number

    async with app.running():
        handle = await stuck.enqueue()
        other = await stuck.enqueue()
        await until(lambda: len(began) == 2)
        clock.advance(5_000)
        for each in (handle, other):
            error = await each.exception()
            assert isinstance(error, TaskTimeout)
            assert error.message == "no result after 5 s"
        blocked = await quick.enqueue(7)
        assert app.status()["running_count"] == 2
        with pytest.raises(TimeoutError):  # both slots are taken by threads that still run
            await blocked.result(timeout=0.05)
        gate.set()
        assert await blocked == 7
        assert await handle.state() == "failed"  # a late result changes nothing
    await until(lambda: len(wanted) == 2)
    assert wanted == [True, True]
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 2
    for uuid in (handle.uuid, other.uuid):
        (warning,) = [each for each in warnings if uuid in each]
        assert "onthedot-threads-" in warning
        assert "executor='process'" in warning


async def test_the_timeout_warning_names_the_thread(
    app: App, clock: ManualClock, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    names: dict[str, str] = {}

    @app.task(timeout=5)
    def stuck() -> None:
        names["stuck"] = threading.current_thread().name
        gate.wait(SOON)

    @app.task
    def innocent() -> None:
        names["innocent"] = threading.current_thread().name
        gate.wait(SOON)

    async with app.running():
        await innocent.enqueue()
        handle = await stuck.enqueue()
        await until(lambda: len(names) == 2)
        clock.advance(5_000)
        await handle.exception()
    (warning,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert names["stuck"] in warning
    assert names["innocent"] not in warning


def test_a_failure_is_reported_once_although_its_thread_outlives_the_loop(
    app: App, clock: ManualClock, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    began = threading.Event()

    @app.task(timeout=5)
    def stuck() -> None:
        began.set()
        gate.wait(SOON)

    async def work() -> None:
        async with app.running():
            handle = await stuck.enqueue()
            await until(began.is_set)
            clock.advance(5_000)
            assert isinstance(await handle.exception(), TaskTimeout)

    asyncio.run(work())
    assert [each.getMessage()[:6] for each in caplog.records if each.levelno == logging.ERROR] == ["[fail]"]


async def test_a_timed_out_task_is_retried_while_its_thread_still_runs(
    app: App, clock: ManualClock, gate: threading.Event
) -> None:
    began: list[int] = []
    both = threading.Barrier(2)

    @app.task
    def meet() -> int:
        return both.wait(SOON)

    @app.task(timeout=5, max_retries=1, backoff=[1])
    def slow_once() -> int:
        attempt = current_task().attempt
        began.append(attempt)
        if attempt == 1:
            gate.wait(SOON)
        return attempt

    async def again() -> bool:
        return await handle.state() == "scheduled"

    async with app.running():
        handle = await slow_once.enqueue()
        await until(lambda: began == [1])
        clock.advance(5_000)
        await until(again)
        clock.advance(1_000)
        assert await handle == 2  # in the other slot
        gate.set()
        await until(lambda: app.status()["running_count"] == 0)
        assert await handle == 2
        pair = [await meet.enqueue(), await meet.enqueue()]
        assert {await each.result(timeout=SOON) for each in pair} == {0, 1}, "both slots are free again"


# -- stopping


async def test_stop_waits_for_threads_until_its_timeout(gate: threading.Event) -> None:
    app = App("stopping", store="memory://", stop_timeout=0.05)
    began = threading.Event()
    done = threading.Event()

    @app.task
    def stuck() -> None:
        began.set()
        gate.wait(SOON)
        done.set()

    with app.override(store="memory://"):
        async with app.running():
            handle = await stuck.enqueue()
            await until(began.is_set)
        assert not done.is_set()
        info = await app.get(handle.uuid)
        assert (info.attempt, info.retries, info.reason) == (1, 0, "shutdown")
    gate.set()


def test_background_and_shutdown_leave_no_thread() -> None:
    app = App("background", store="memory://")

    @app.task
    def name() -> str:
        return threading.current_thread().name

    for _ in range(3):
        with app.background():
            assert name.delay().result(timeout=SOON).startswith("onthedot-background-")


# -- the executor itself


async def test_idle_threads_are_used_again() -> None:
    threads = ThreadExecutor("reuse")
    names = [await threads.run(lambda: threading.current_thread().name) for _ in range(50)]
    assert set(names) == {"reuse-1"}
    threads.close()


async def test_a_burst_starts_as_many_threads_as_calls() -> None:
    threads = ThreadExecutor("burst")
    gate = threading.Barrier(20)

    def call(number: int) -> int:
        gate.wait(SOON)
        if number % 2:
            raise ArithmeticError(number)
        return number

    ends = await asyncio.gather(*[threads.run(lambda n=n: call(n)) for n in range(20)], return_exceptions=True)
    assert [str(end) for end in ends] == [str(n) for n in range(20)]
    threads.close()


async def test_a_cancelled_call_does_not_affect_the_others(gate: threading.Event) -> None:
    threads = ThreadExecutor("given-up")
    stuck = asyncio.ensure_future(threads.run(lambda: gate.wait(SOON)))
    await asyncio.sleep(0)
    stuck.cancel()
    assert await threads.run(lambda: "other") == "other"
    gate.set()
    assert await threads.run(lambda: "later") == "later"
    threads.close()
    await asyncio.wait([stuck])


def test_a_thread_may_outlive_its_loop(gate: threading.Event) -> None:
    threads = ThreadExecutor("outlives")

    async def leave() -> None:
        call = asyncio.ensure_future(threads.run(lambda: gate.wait(SOON)))
        await asyncio.sleep(0)
        call.cancel()

    asyncio.run(leave())
    threads.close()
    gate.set()
