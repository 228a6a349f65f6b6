"""stopped → starting → running → stopping → stopped, for every way to run a worker."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from onthedot import (
    BaseTaskConsumer,
    SchedulerStateError,
    StoreRefused,
    Task,
)
from onthedot.stores.contract import Store
from tests.support.consumers import Work, scheduler_of, status
from tests.support.waits import SOON, every_chance, until

pytestmark = pytest.mark.usefixtures("no_thread_left")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, str]]]:
    """Lines of onthedot.scheduler, and all above INFO."""
    caplog.set_level(logging.INFO)
    return lambda: [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "onthedot.scheduler" or record.levelno > logging.INFO
    ]


STARTED = ("INFO", "Scheduler started")
STOPPED = ("INFO", "Scheduler stopped")


# -- start


async def test_start_and_stop_are_logged_once_each(lines: Callable[[], list[tuple[str, str]]]) -> None:
    scheduler = scheduler_of(Work())
    assert status(scheduler) == "stopped"
    assert await scheduler.stop() is False, "nothing to stop"
    for _ in range(2):
        assert await scheduler.start() is True
        assert status(scheduler) == "running"
        assert await scheduler.stop() is True
        assert status(scheduler) == "stopped"
        assert await scheduler.stop() is False
    assert lines() == [STARTED, STOPPED] * 2, "a second stop logs nothing"
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_second_start_has_no_effect_and_warns(lines: Callable[[], list[tuple[str, str]]]) -> None:
    work = Work()
    scheduler = scheduler_of(work)
    assert await scheduler.start() is True
    tasks = asyncio.all_tasks()
    assert await scheduler.start() is False
    assert asyncio.all_tasks() == tasks
    (warning,) = [text for level, text in lines() if level == "WARNING"]
    assert "already running" in warning
    scheduler.add_task(Task("work", {"n": 1}))
    await until(lambda: work.done() == [1])
    await scheduler.stop()
    assert work.ran() == [1], "one loop, not two"


async def test_stop_during_start_waits_for_the_start(lines: Callable[[], list[tuple[str, str]]]) -> None:
    scheduler = scheduler_of(Work())
    entered = asyncio.Event()
    leased = hold(scheduler.runtime.store, "heartbeat")
    go = asyncio.Event()
    leased.append(lambda: (entered.set(), go.wait())[1])
    first = asyncio.ensure_future(scheduler.start())
    await entered.wait()
    assert status(scheduler) == "starting"
    assert await scheduler.start() is False
    stopping = asyncio.ensure_future(scheduler.stop())  # waits for the start, then ends it
    await every_chance()
    assert not stopping.done()
    go.set()
    assert (await first, await stopping) == (True, True)
    assert status(scheduler) == "stopped"
    assert [level for level, _ in lines()] == ["WARNING", "INFO", "INFO"]


def hold(store: Store, verb: str) -> list[Callable[[], Any]]:
    """Functions in the returned list are awaited before the next calls of a verb, one per call."""
    pending: list[Callable[[], Any]] = []
    real = getattr(store, verb)

    async def held(*args: Any, **keywords: Any) -> Any:
        if pending:
            await pending.pop(0)()
        return await real(*args, **keywords)

    setattr(store, verb, held)
    return pending


async def refuse(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("verb", ["open", "put_schedules", "heartbeat"])
async def test_failed_start_can_be_repeated(verb: str, lines: Callable[[], list[tuple[str, str]]]) -> None:
    work = Work()
    scheduler = scheduler_of(work)
    scheduler.add_task(Task("work", {"n": 1}))
    hold(scheduler.runtime.store, verb).append(lambda: refuse(OSError("no route")))
    with pytest.raises(OSError, match="no route"):
        await scheduler.start()
    assert (status(scheduler), await scheduler.stop()) == ("stopped", False)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert await scheduler.start() is True
    await until(lambda: work.done() == [1])
    await scheduler.stop()
    assert lines() == [STARTED, STOPPED]


async def test_cancelled_start_leaves_stopped() -> None:
    scheduler = scheduler_of(Work())
    never = asyncio.Event()
    hold(scheduler.runtime.store, "heartbeat").append(never.wait)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(scheduler.start(), 0.01)
    assert status(scheduler) == "stopped"
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert await scheduler.start() is True
    assert await scheduler.stop() is True


# -- stop


async def test_start_while_stopping_is_refused() -> None:
    work = Work(gated=True)
    scheduler = scheduler_of(work)
    scheduler.add_task(Task("work"))
    await scheduler.start()
    await until(lambda: work.started)
    stopping = asyncio.ensure_future(scheduler.stop())
    await until(lambda: status(scheduler) == "stopping")
    with pytest.raises(SchedulerStateError, match="while stopping"):
        await scheduler.start()
    work.gate.set()
    assert await stopping is True
    assert await scheduler.start() is True
    await scheduler.stop()


async def test_several_stops_wait_for_the_same_stop(lines: Callable[[], list[tuple[str, str]]]) -> None:
    work = Work(gated=True)
    scheduler = scheduler_of(work)
    scheduler.add_task(Task("work"))
    await scheduler.start()
    await until(lambda: work.started)
    stops = [asyncio.ensure_future(scheduler.stop()) for _ in range(3)]
    await every_chance()
    assert not any(stop.done() for stop in stops)
    stops[0].cancel()  # the first caller gives up: the others still wait for the stop
    work.gate.set()
    ends = await asyncio.gather(*stops, return_exceptions=True)
    assert isinstance(ends[0], asyncio.CancelledError)
    assert ends[1:] == [False, False]
    assert (work.cancelled, len(work.ended)) == (0, 1)
    assert lines() == [STARTED, STOPPED]


@pytest.mark.parametrize("steps", range(8))
async def test_no_task_starts_after_stop_is_called(steps: int) -> None:
    """Wherever the loop is when stop() is called: queued tasks are requeued, uncounted."""
    work = Work(count=3, gated=True)
    scheduler = scheduler_of(work)
    handles = [scheduler.add_task(Task("work", {"n": n})) for n in range(30)]
    await scheduler.start()
    await until(lambda: len(work.started) == 3)
    work.gate.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    begun = list(work.started)
    await scheduler.stop()
    assert work.started == begun
    assert {handle.state() for handle in handles[len(begun) :]} <= {"ready", "scheduled"}
    await scheduler.start()
    await until(lambda: len(work.ended) == 30)
    await scheduler.stop()
    assert work.ran() == list(range(30))
    assert {handle.info().attempt for handle in handles} == {1}


async def test_running_tasks_are_requeued_uncounted_after_the_stop_timeout() -> None:
    work = Work(gated=True)
    scheduler = scheduler_of(work, stop_timeout=0.05)
    handle = scheduler.add_task(Task("work", {"n": 1}))
    await scheduler.start()
    await until(lambda: work.started)
    assert await asyncio.wait_for(scheduler.stop(), SOON) is True
    assert (work.cancelled, work.ended, handle.state()) == (1, [], "ready")
    work.gate.set()
    await scheduler.start()
    await until(handle.done)
    await scheduler.stop()
    assert (work.ran(), work.done(), handle.info().attempt) == ([1, 1], [1], 1)


async def test_thread_that_does_not_return_does_not_delay_a_stop_with_timeout() -> None:
    gate = threading.Event()
    inside = threading.Event()

    class Stuck(BaseTaskConsumer):
        name = "stuck"

        def consume(self, task: Task) -> None:
            inside.set()
            gate.wait(2 * SOON)

    scheduler = scheduler_of(Stuck(), stop_timeout=0.05)
    handle = scheduler.add_task(Task("stuck"))
    await scheduler.start()
    await until(inside.is_set)
    try:
        assert await asyncio.wait_for(scheduler.stop(), SOON) is True
        assert handle.state() == "ready"
    finally:
        gate.set()


async def test_stop_on_another_loop_is_refused() -> None:
    scheduler = scheduler_of(Work())
    await scheduler.start()
    with pytest.raises(SchedulerStateError, match="another event loop"):
        await asyncio.to_thread(lambda: asyncio.run(scheduler.stop()))
    with pytest.raises(SchedulerStateError, match="another"):
        await asyncio.to_thread(lambda: asyncio.run(scheduler.start()))
    assert await scheduler.stop() is True


def test_scheduler_runs_on_one_loop_after_the_other() -> None:
    scheduler = scheduler_of()

    async def once(n: int) -> None:
        work = Work()
        scheduler.registry.register(work)
        await scheduler.start()
        scheduler.add_task(Task("work", {"n": n}))
        await until(lambda: work.done() == [n])
        await scheduler.stop()
        scheduler.registry.unregister("work")

    for n in range(3):
        asyncio.run(once(n))


def test_scheduler_starts_again_after_its_loop_was_closed() -> None:
    """asyncio.run() ended without stop(), as after an error in the user's main()."""
    scheduler = scheduler_of()

    async def forgets() -> None:
        await scheduler.start()

    async def again() -> None:
        work = Work()
        scheduler.registry.register(work)
        assert await scheduler.start() is True
        scheduler.add_task(Task("work", {"n": 1}))
        await until(lambda: work.done() == [1])
        await scheduler.stop()

    asyncio.run(forgets())
    asyncio.run(again())


# -- failures of the loop


async def test_refusal_of_the_store_ends_the_loop(lines: Callable[[], list[tuple[str, str]]]) -> None:
    work = Work()
    scheduler = scheduler_of(work)
    await scheduler.start()
    hold(scheduler.runtime.store, "turn").append(lambda: refuse(StoreRefused("schema 7 is newer: upgrade onthedot")))
    handle = scheduler.add_task(Task("work", {"n": 1}))
    await until(lambda: status(scheduler) == "stopped")
    assert [text for level, text in lines() if level == "ERROR"] == [
        "Scheduler stopped: StoreRefused: schema 7 is newer: upgrade onthedot"
    ]
    assert scheduler.status()["last_error"] == "StoreRefused: schema 7 is newer: upgrade onthedot"
    assert await scheduler.stop() is False
    await every_chance()
    assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing is left running"
    assert await scheduler.start() is True, "after the cause was fixed"
    await until(handle.done)
    await scheduler.stop()
    assert work.done() == [1]
