"""Scheduler: idle behaviour, status, and the shared scheduler."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from onthedot import (
    Scheduler,
    Task,
    get_scheduler,
)
from onthedot.clock.manual import ManualClock
from tests.support.consumers import Work, running, scheduler_of
from tests.support.waits import SOON, every_chance, until

pytestmark = pytest.mark.usefixtures("own_globals", "no_hidden_trouble")


# -- being idle


def count_turns(scheduler: Scheduler) -> list[None]:
    """Grows by one with every turn."""
    store = scheduler.runtime.store
    turns = list[None]()
    real = store.turn

    async def counted(*args: Any, **keywords: Any) -> Any:
        turns.append(None)
        return await real(*args, **keywords)

    store.turn = counted
    return turns


async def test_an_idle_scheduler_never_wakes() -> None:
    clock = ManualClock()
    work = Work()
    scheduler = scheduler_of(work, poll_interval=10)
    with scheduler.runtime.override(replace(scheduler.runtime.config, clock=clock)):
        turns = count_turns(scheduler)
        await scheduler.start()
        scheduler.add_task(Task("work", {"n": 1}, clock.moment() + timedelta(hours=1)))  # waiting is idle, too
        await every_chance()
        before = len(turns)
        for _ in range(99):
            clock.advance(100)
            await every_chance()
        assert len(turns) == before, "not within its poll interval"
        clock.advance(100)
        await until(lambda: len(turns) > before)
        await every_chance()
        assert len(turns) == before + 1, "and once then"
        await scheduler.stop()


async def test_a_poll_is_one_turn_for_any_number_of_sources() -> None:
    clock = ManualClock()
    scheduler = scheduler_of(*(Work(f"work{number}") for number in range(30)), poll_interval=10, concurrency=2)
    with scheduler.runtime.override(replace(scheduler.runtime.config, clock=clock)):
        turns = count_turns(scheduler)
        await scheduler.start()
        await every_chance()
        before = len(turns)
        clock.advance(10_000)
        await until(lambda: len(turns) > before)
        await every_chance()
        assert len(turns) == before + 1
        await scheduler.stop()


async def test_due_tasks_start_in_the_first_turn() -> None:
    """Though its source had nothing before and was not worth asking."""
    clock = ManualClock()
    work = Work(gated=True)
    scheduler = scheduler_of(work, poll_interval=10)
    with scheduler.runtime.override(replace(scheduler.runtime.config, clock=clock)):
        turns = count_turns(scheduler)
        await scheduler.start()
        scheduler.add_task(Task("work", {"n": 1}, clock.moment() + timedelta(seconds=1)))
        await every_chance()
        before = len(turns)
        clock.advance(1000)
        await until(lambda: work.ran() == [1])
        assert len(turns) == before + 1
        work.gate.set()
        await scheduler.stop()


async def test_an_alarm_is_two_turns_for_any_number_of_sources() -> None:
    """One that makes it ready and tells of it, one that claims it: not one for each that may be meant."""
    clock = ManualClock()
    works = [Work(f"work{number}", gated=True) for number in range(30)]
    scheduler = scheduler_of(*works, poll_interval=10, concurrency=2)
    with scheduler.runtime.override(replace(scheduler.runtime.config, clock=clock)):
        turns = count_turns(scheduler)
        await scheduler.start()
        scheduler.add_task(Task("work29", {"n": 1}, clock.moment() + timedelta(seconds=1)))
        await every_chance()
        before = len(turns)
        clock.advance(1000)
        await until(lambda: works[29].ran() == [1])
        await every_chance()
        assert len(turns) - before <= 2
        works[29].gate.set()
        await scheduler.stop()


async def test_a_full_scheduler_does_not_spin() -> None:
    """All slots taken and more waiting: nothing to do until one is free."""
    clock = ManualClock()
    work = Work(gated=True)
    scheduler = scheduler_of(work, poll_interval=10)
    with scheduler.runtime.override(replace(scheduler.runtime.config, clock=clock)):
        turns = count_turns(scheduler)
        for n in range(3):
            scheduler.add_task(Task("work", {"n": n}, clock.moment()))
        scheduler.add_task(Task("work", {"n": 3}, clock.moment() + timedelta(seconds=1)))
        await scheduler.start()
        await until(lambda: work.ran() == [0])
        await every_chance()
        clock.advance(1000)
        await every_chance()
        before = len(turns)
        await every_chance()
        assert len(turns) == before
        assert before < 10
        work.gate.set()
        await until(lambda: len(work.started) == 4)
        await scheduler.stop()


async def test_lost_hint_delays_by_one_poll_interval() -> None:
    clock = ManualClock()
    work = Work()
    async with running(work, clock=clock, poll_interval=10) as scheduler:
        await every_chance()
        worker = scheduler.runtime.worker
        assert worker is not None
        worker.hint_listener.receive = lambda hint: None  # type: ignore[method-assign]
        scheduler.add_task(Task("work", {"n": 1}, clock.moment()))
        await every_chance()
        assert work.ran() == []
        clock.advance(10_000)
        await until(lambda: work.ran() == [1])


# -- status, and the one that all share


def test_always_the_same_object_from_any_thread() -> None:
    found: list[Scheduler] = []
    barrier = threading.Barrier(16)

    def look() -> None:
        barrier.wait()
        found.append(get_scheduler())

    threads = [threading.Thread(target=look) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {id(each) for each in found} == {id(get_scheduler())}
    assert isinstance(found[0], Scheduler)


async def test_current_task_is_the_one_that_runs_longest() -> None:
    work = Work(gated=True, count=3)
    async with running(work) as scheduler:
        handles = []
        for n in range(3):
            handles.append(scheduler.add_task(Task("work", {"n": n})))
            await until(lambda n=n: len(work.started) == n + 1)
        assert scheduler.status()["current_task_id"] == handles[0].uuid
        assert scheduler.status()["running_count"] == 3
        work.gate.set()
        await until(lambda: all(handle.done() for handle in handles))


async def test_wait_from_another_thread_leaves_no_thread() -> None:
    async with running(Work()) as scheduler:
        handle = scheduler.add_task(Task("work"))
        assert await asyncio.to_thread(handle.result, timeout=SOON) is None
