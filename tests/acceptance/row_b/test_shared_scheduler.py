"""The shared scheduler of a process: its acceptance cases, on memory and SQLite."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onthedot import (
    BaseTaskConsumer,
    Scheduler,
    SchedulerStateError,
    Task,
    TaskConsumerRegistry,
    get_scheduler,
    start_scheduler,
    stop_scheduler,
)
from onthedot.clock.manual import ManualClock
from tests.acceptance.shared import EMPTY, PAST, Failing, Ticking, add, asleep, driven, register, shared_status
from tests.support.consumers import Work, idle
from tests.support.waits import LONG, every_chance, until

pytestmark = pytest.mark.usefixtures("own_globals", "no_hidden_trouble")
EXAMPLES = Path(__file__).parents[3] / "examples"


# -- the singleton


def test_status_before_the_first_start_is_empty(store: str, file: Path) -> None:
    assert shared_status() == EMPTY
    assert not file.exists(), "reading the status opens nothing"


def test_shared_scheduler_is_one_object_with_default_settings(store: str, file: Path) -> None:
    scheduler = get_scheduler()
    assert scheduler is get_scheduler()
    runtime = scheduler.runtime
    assert (runtime.url, runtime.name) == (f"sqlite:///{file}" if store == "sqlite" else "memory://", "onthedot")
    config = runtime.config
    assert (config.slots["async"], config.one_pool, config.poll_interval, config.stop_timeout) == (1, True, 10, 5)
    assert scheduler.registry is TaskConsumerRegistry


async def test_one_of_ten_concurrent_starts_succeeds(store: str, caplog: pytest.LogCaptureFixture) -> None:
    answers = await asyncio.gather(*(start_scheduler() for _ in range(10)))
    assert Counter(answers) == {True: 1, False: 9}
    assert shared_status()["status"] == "running"
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 9
    assert Counter(await asyncio.gather(*(stop_scheduler() for _ in range(10)))) == {True: 1, False: 9}
    assert await stop_scheduler() is False
    assert asyncio.all_tasks() == {asyncio.current_task()}


class Interrupted:
    """A lock that switches threads after its release, as a busy machine would do at the worst moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()
        time.sleep(0.005)


def test_one_of_ten_threads_starts_the_scheduler() -> None:
    """Each thread has its own event loop: one starts the scheduler, the others get an error."""
    get_scheduler().runtime.host.start_lock = Interrupted()
    for _ in range(3):
        answers: list[bool | str] = []
        barrier = threading.Barrier(10)

        async def one(answers: list[bool | str] = answers, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(LONG)
            try:
                answers.append(won := await start_scheduler())
            except SchedulerStateError:
                answers.append("refused")
                return
            await until(lambda: len(answers) == 10)
            assert won is await stop_scheduler()

        threads = [threading.Thread(target=lambda: asyncio.run(one())) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Counter(answers) == {True: 1, "refused": 9}
        assert shared_status()["status"] == "stopped"


# -- one task at a time


async def test_tasks_run_first_in_first_out_across_sources(store: str) -> None:
    order: list[str] = []

    async def note(task: Task) -> None:
        order.append(task.args["n"])

    class InThread(BaseTaskConsumer):
        name = "b"
        concurrent_count = 5

        def consume(self, task: Task) -> None:
            order.append(task.args["n"])

    a = Work("a", count=5, do=note)
    register(a, InThread())
    for n in ("a1", "b1", "a2", "b2"):
        add(n[0], n)
    await start_scheduler()
    await until(lambda: len(order) == 4)
    for n in ("b3", "a3", "a4", "b4"):  # while running
        add(n[0], n)
    await until(lambda: len(order) == 8)
    await stop_scheduler()
    assert order == ["a1", "b1", "a2", "b2", "b3", "a3", "a4", "b4"]


async def test_only_one_task_runs_with_any_source_limits(store: str) -> None:
    many = [Work(name, count=5, gated=True) for name in ("a", "b")]
    register(*many)
    for n in range(4):
        add("ab"[n % 2], n)
    await start_scheduler()
    await until(lambda: many[0].started)
    await every_chance()
    assert [work.ran() for work in many] == [[0], []]
    await until(lambda: shared_status()["queue_count"] == 3)
    for work in many:
        work.gate.set()
    await until(lambda: sum(len(work.ended) for work in many) == 4)
    await stop_scheduler()


async def test_due_checks_continue_during_a_task_of_thirty_seconds(store: str) -> None:
    clock = ManualClock()
    order = []

    async def note(task: Task) -> None:
        order.append((task.source, (task.schedule_at - begin).total_seconds()))

    slow = Work("slow", gated=True, do=note)
    tick = Ticking("tick", do=note)
    register(slow, tick)
    with driven(clock):
        begin = clock.moment()
        await start_scheduler()
        add("slow", 1, begin)
        add("slow", 2, begin + timedelta(seconds=15))
        await until(lambda: slow.started)
        for waiting, wakes in ((1, 10), (3, 5), (4, 10)):  # after 10, 20 and 30 seconds
            await asleep(clock, wakes)
            clock.advance(10_000)
            await until(lambda waiting=waiting: shared_status()["queue_count"] == waiting)
            assert shared_status()["is_executing"] is True
        assert (slow.ran(), tick.started) == ([1], [])
        slow.gate.set()
        await until(lambda: len(order) == 5)
        await stop_scheduler()
    assert order == [("slow", 0), ("tick", 10), ("slow", 15), ("tick", 20), ("tick", 30)], "in the order of due times"


async def test_schedule_adds_a_task_and_advances_in_one_step(store: str) -> None:
    """The task and the last and next run of the schedule change in one step."""
    clock = ManualClock()
    tick = Ticking("tick")
    register(tick)
    with driven(clock):
        await start_scheduler()
        for runs in (1, 2):
            await asleep(clock, 10)
            clock.advance(10_000)
            await until(lambda runs=runs: len(tick.ended) == runs)
            (record,) = await get_scheduler().runtime.store.schedules()
            nominal = int(clock.now())
            assert (record.runs, record.last_at, record.next_at) == (runs, nominal, nominal + 10_000)
        await stop_scheduler()


# -- stop


class Control:
    """Measures how late the machine itself is, by the oversleep of a plain sleep."""

    async def late(self, seconds: float) -> float:
        begin = time.monotonic()
        await asyncio.sleep(seconds)
        return time.monotonic() - begin - seconds


@pytest.mark.timed
async def test_stop_cancels_a_long_task_after_five_seconds(
    monkeypatch: pytest.MonkeyPatch, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On both stores, and in a thread, which cannot be cancelled. They run side by side to share the five seconds."""
    gate = threading.Event()

    class Sleeps(BaseTaskConsumer):
        name = "work"
        max_retries = 3

        async def consume(self, task: Task) -> None:
            await asyncio.sleep(60)

    class Blocks(BaseTaskConsumer):
        name = "work"
        max_retries = 3

        def consume(self, task: Task) -> None:
            gate.wait(60)

    schedulers: list[Scheduler] = []
    for url, consumer in (("memory://", Sleeps()), (f"sqlite:///{file}", Sleeps()), ("memory://", Blocks())):
        monkeypatch.setenv("ONTHEDOT_STORE", url)
        monkeypatch.setattr("onthedot.api.scheduler.shared", None)
        monkeypatch.setattr(TaskConsumerRegistry, "sources", {"work": consumer})
        schedulers.append(get_scheduler())
    handles = [scheduler.add_task(Task("work", None, PAST)) for scheduler in schedulers]
    for scheduler in schedulers:
        await scheduler.start()
    await until(lambda: all(scheduler.status()["running_count"] == 1 for scheduler in schedulers))

    async def stop(scheduler: Scheduler) -> float:
        begin = time.monotonic()
        assert await scheduler.stop() is True
        return time.monotonic() - begin

    *took, late = await asyncio.gather(*map(stop, schedulers), Control().late(5))
    assert min(took) >= 5.0, took
    assert max(took) <= 5.5 + late, took
    gate.set()
    for scheduler, handle in zip(schedulers, handles, strict=True):
        assert (handle.state(), handle.info().attempt) == ("ready", 1)
        (record,) = await asyncio.to_thread(record_of, scheduler, handle.uuid)
        assert (record.history.retries, record.history.crashes, record.history.earlier) == (0, 0, 0)
        status = scheduler.status()
        assert (status["status"], status["queue_count"], status["running_count"]) == ("stopped", 1, 0)
        scheduler.runtime.portal.close()
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []


def record_of(scheduler: Scheduler, uuid: str) -> Any:
    return scheduler.runtime.portal.run_sync(lambda client: client.store.get((uuid,)))


async def test_stop_waits_for_a_task_that_ends_within_five_seconds(store: str) -> None:
    work = Work(gated=True)
    register(work)
    handle = add("work", 1)
    add("work", 2)
    await start_scheduler()
    await until(lambda: work.started)
    stopping = asyncio.ensure_future(stop_scheduler())
    await until(lambda: shared_status()["status"] == "stopping")
    await every_chance()
    assert (stopping.done(), shared_status()["running_count"]) == (False, 1)
    work.gate.set()
    assert await stopping is True
    assert (handle.state(), work.done(), work.cancelled) == ("succeeded", [1], 0)
    assert shared_status() == EMPTY | {"queue_count": 1}


@pytest.mark.timed
async def test_idle_scheduler_stops_at_once(store: str) -> None:
    took = []
    for _ in range(3):  # the machine may stall once
        await start_scheduler()
        await idle(get_scheduler())
        begin = time.monotonic()
        assert await stop_scheduler() is True
        took.append(time.monotonic() - begin)
    assert min(took) < 0.2


async def test_scheduler_can_be_started_again(store: str) -> None:
    work = Work()
    register(work)
    for n in range(3):
        handle = add("work", n)
        assert await start_scheduler() is True
        await until(handle.done)
        assert await stop_scheduler() is True
    assert work.done() == [0, 1, 2]


# -- failures


async def test_failures_are_kept_and_found(store: str) -> None:
    work = Work()
    register(type("Once", (Failing,), {"max_retries": 0})(), work)
    bad = add("bad", 1)
    good = add("work", 2)
    await start_scheduler()
    await until(lambda: bad.done() and good.done())
    assert (bad.state(), good.state()) == ("failed", "succeeded"), "other tasks are not affected"
    await until(lambda: shared_status() == EMPTY | {"status": "running"})
    await stop_scheduler()

    (failed,) = await get_scheduler().find(state="failed")
    assert (failed.uuid, failed.source, failed.attempt) == (bad.uuid, "bad", 1)
    assert failed.error is not None
    assert (failed.error.type, failed.error.message) == ("ValueError", "no luck")
    assert "raise ValueError" in failed.error.traceback

    TaskConsumerRegistry.unregister("bad")
    mended = Work("bad")
    register(mended)
    assert await get_scheduler().retry(failed.uuid) == [bad.uuid]
    await start_scheduler()
    await until(lambda: bad.state() == "succeeded")
    await stop_scheduler()
    assert len(await get_scheduler().find(state="failed")) == 0
    assert mended.done() == [1]


# -- failures of the loop


@pytest.mark.usefixtures("fast_thread_switches")
async def test_failing_loop_is_logged_and_continues(store: str, caplog: pytest.LogCaptureFixture) -> None:
    work = Work()
    register(work)
    await start_scheduler()
    await idle(get_scheduler())
    real = get_scheduler().runtime.store
    turn = real.turn
    failures = 2

    async def fails(*args: Any) -> Any:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError("no route")
        return await turn(*args)

    real.turn = fails
    handle = add("work", 1)
    await until(handle.done)
    assert shared_status()["status"] == "running"
    assert get_scheduler().status()["last_error"] == "OSError: no route"
    await stop_scheduler()
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    caplog.clear()
    assert len(lines) == 2
    assert "no route" in lines[0]
    assert lines[1].startswith("the store is back after ")


@pytest.mark.once
def test_example_program_prints_what_it_promises(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "shared_scheduler.py"],
        capture_output=True, text=True, timeout=LONG, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "stopped: 0 wait, 0 of 0 schedules are enabled"
    assert lines.index("hello ann") < lines.index("hello bob"), "one at a time, in order"
    assert "INFO Scheduler started" in lines
    assert "tick" in lines
    assert "failed: greet, ValueError: nobody to greet" in lines
    assert lines[-1] == "stopped: 0 wait, 1 of 1 schedules are enabled"
    assert list(tmp_path.iterdir()) == []
