"""stopped → starting → running → stopping → stopped: the same at every door."""

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
from tests.support.waits import every_chance, until

pytestmark = [pytest.mark.timeout(20), pytest.mark.usefixtures("no_thread_left")]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, str]]]:
    """What the scheduler's own log said, and all that is worse than INFO."""
    caplog.set_level(logging.INFO)
    return lambda: [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "onthedot.scheduler" or record.levelno > logging.INFO
    ]


STARTED, STOPPED = ("INFO", "Scheduler started"), ("INFO", "Scheduler stopped")


# -- start


async def test_the_lines_of_a_life(lines: Callable[[], list[tuple[str, str]]]) -> None:
    scheduler = scheduler_of(Work())
    assert status(scheduler) == "stopped"
    assert await scheduler.stop() is False, "nothing to stop"
    for _ in range(2):
        assert await scheduler.start() is True
        assert status(scheduler) == "running"
        assert await scheduler.stop() is True
        assert status(scheduler) == "stopped"
        assert await scheduler.stop() is False
    assert lines() == [STARTED, STOPPED] * 2, "a second stop says nothing"
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_second_start_does_nothing_and_says_so(lines: Callable[[], list[tuple[str, str]]]) -> None:
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


async def test_two_starts_at_once(lines: Callable[[], list[tuple[str, str]]]) -> None:
    scheduler, entered = scheduler_of(Work()), asyncio.Event()
    leased, go = hold(scheduler.runtime.store, "heartbeat"), asyncio.Event()
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
    """What is put into the list is awaited before the next calls of a verb, one each."""
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
async def test_a_start_that_fails_can_be_tried_again(verb: str, lines: Callable[[], list[tuple[str, str]]]) -> None:
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


async def test_a_start_that_is_cancelled_leaves_stopped() -> None:
    scheduler, never = scheduler_of(Work()), asyncio.Event()
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


async def test_two_stops_share_one_end(lines: Callable[[], list[tuple[str, str]]]) -> None:
    work = Work(gated=True)
    scheduler = scheduler_of(work)
    scheduler.add_task(Task("work"))
    await scheduler.start()
    await until(lambda: work.started)
    stops = [asyncio.ensure_future(scheduler.stop()) for _ in range(3)]
    await every_chance()
    assert not any(stop.done() for stop in stops)
    stops[0].cancel()  # who asked first may give up: the others still get their end
    work.gate.set()
    ends = await asyncio.gather(*stops, return_exceptions=True)
    assert isinstance(ends[0], asyncio.CancelledError)
    assert ends[1:] == [False, False]
    assert (work.cancelled, len(work.ended)) == (0, 1)
    assert lines() == [STARTED, STOPPED]


@pytest.mark.parametrize("steps", range(8))
async def test_nothing_starts_from_the_first_moment_of_stop(steps: int) -> None:
    """Wherever the loop is when stop() is called: what has not begun goes back, uncounted."""
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


async def test_after_the_stop_timeout_the_running_go_back_uncounted() -> None:
    work = Work(gated=True)
    scheduler = scheduler_of(work, stop_timeout=0.05)
    handle = scheduler.add_task(Task("work", {"n": 1}))
    await scheduler.start()
    await until(lambda: work.started)
    assert await asyncio.wait_for(scheduler.stop(), 5) is True
    assert (work.cancelled, work.ended, handle.state()) == (1, [], "ready")
    work.gate.set()
    await scheduler.start()
    await until(handle.done)
    await scheduler.stop()
    assert (work.ran(), work.done(), handle.info().attempt) == ([1, 1], [1], 1)


async def test_a_thread_that_does_not_return_does_not_hold_up_a_stop_with_a_timeout() -> None:
    gate, inside = threading.Event(), threading.Event()

    class Stuck(BaseTaskConsumer):
        name = "stuck"

        def consume(self, task: Task) -> None:
            inside.set()
            gate.wait(20)

    scheduler = scheduler_of(Stuck(), stop_timeout=0.05)
    handle = scheduler.add_task(Task("stuck"))
    await scheduler.start()
    await until(inside.is_set)
    try:
        assert await asyncio.wait_for(scheduler.stop(), 5) is True
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


def test_one_loop_after_the_other() -> None:
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


def test_a_loop_that_was_closed_over_it_is_no_obstacle() -> None:
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


# -- when the loop fails


async def test_what_no_retry_mends_ends_it(lines: Callable[[], list[tuple[str, str]]]) -> None:
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
    assert asyncio.all_tasks() == {asyncio.current_task()}, "ended means ended"
    assert await scheduler.start() is True, "once a person has mended it"
    await until(handle.done)
    await scheduler.stop()
    assert work.done() == [1]
