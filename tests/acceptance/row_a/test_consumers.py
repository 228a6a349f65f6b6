"""The asyncio scheduler: its six acceptance cases, and the risks that its description lists."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from onthedot import App, BaseTaskConsumer, Task, TaskConsumerRegistry
from onthedot.clock.manual import ManualClock
from tests.support.consumers import Work, idle, running, scheduler_of
from tests.support.waits import SOON, every_chance, until

pytestmark = pytest.mark.usefixtures("no_thread_left", "no_hidden_trouble")


# -- the six cases


async def test_tasks_run_in_the_order_of_their_times() -> None:
    clock = ManualClock()
    work = Work(count=3)
    start = clock.moment()
    async with running(work, clock=clock) as scheduler:
        for n in (2, 0, 1):
            scheduler.add_task(Task("work", {"n": n}, start + timedelta(seconds=1 + n)))
        clock.advance(999)
        await idle(scheduler)
        assert work.ran() == []
        for n in range(3):
            clock.advance(1 if n == 0 else 1000)
            await until(lambda n=n: len(work.ran()) == n + 1)
            assert work.ran() == list(range(n + 1))


async def test_late_tasks_run_in_the_order_of_their_times() -> None:
    now = datetime.now(UTC)
    work = Work()
    scheduler = scheduler_of(work)
    for n in (1, 2, 0):
        scheduler.add_task(Task("work", {"n": n}, now - timedelta(seconds=10 - n)))
    await scheduler.start()
    await until(lambda: len(work.ended) == 3)
    await scheduler.stop()
    assert work.ran() == [0, 1, 2]


async def test_earlier_task_that_is_added_later_runs_first() -> None:
    clock = ManualClock()
    work = Work()
    start = clock.moment()
    async with running(work, clock=clock) as scheduler:
        scheduler.add_task(Task("work", {"n": 5}, start + timedelta(seconds=5)))
        await idle(scheduler)
        clock.advance(500)
        scheduler.add_task(Task("work", {"n": 1}, start + timedelta(seconds=1)))
        await idle(scheduler)
        clock.advance(499)
        await idle(scheduler)
        assert work.ran() == []
        clock.advance(1)
        await until(lambda: work.ran() == [1])
        clock.advance(3999)
        await idle(scheduler)
        assert work.ran() == [1]
        clock.advance(1)
        await until(lambda: work.ran() == [1, 5])


@pytest.mark.timed
async def test_earlier_task_runs_first_in_real_time() -> None:
    work = Work()
    begin = datetime.now(UTC)
    started: list[datetime] = []

    async def note(task: Task) -> None:
        started.append(datetime.now(UTC))

    work.do = note
    async with running(work) as scheduler:
        scheduler.add_task(Task("work", {"n": 5}, begin + timedelta(seconds=1)))
        await idle(scheduler)
        scheduler.add_task(Task("work", {"n": 1}, begin + timedelta(seconds=0.2)))
        await until(lambda: work.ran() == [1])
        assert 0.2 <= (started[0] - begin).total_seconds() < 0.9, "the earlier task runs first"
        await until(lambda: work.ran() == [1, 5])


async def test_task_with_a_past_time_runs_at_once() -> None:
    clock = ManualClock()
    work = Work()
    async with running(work, clock=clock) as scheduler:
        await idle(scheduler)
        scheduler.add_task(Task("work", {"n": 0}, clock.moment() - timedelta(seconds=1)))
        await until(lambda: work.ran() == [0])  # the clock was not advanced


@pytest.mark.parametrize("count", [1, 2])
async def test_source_never_exceeds_its_concurrency(count: int) -> None:
    work = Work(count=count, gated=True)
    async with running(work) as scheduler:
        for n in range(5):
            scheduler.add_task(Task("work", {"n": n}))
        await until(lambda: len(work.started) == count)
        await every_chance()
        assert len(work.started) == count
        work.gate.set()
        await until(lambda: len(work.ended) == 5)
    assert work.most == count
    assert work.ran() == [0, 1, 2, 3, 4]
    if count == 1:
        assert work.started == work.ended


async def test_task_of_an_unknown_source_is_logged_and_fails(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    work = Work()
    lost = Task("nobody", {"n": 1}, clock.moment() + timedelta(seconds=1))
    async with running(work, clock=clock) as scheduler:
        handle = scheduler.add_task(lost)
        await idle(scheduler)
        assert (handle.state(), caplog.records) == ("scheduled", []), "the source is checked when the task is due"
        clock.advance(1000)
        await until(handle.done)
        assert handle.state() == "failed"
        (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert (line.levelno, line.getMessage()) == (
            logging.ERROR,
            f"[drop] Unknown task source: nobody {lost.to_dict()}",
        )
        scheduler.add_task(Task("work", {"n": 2}, clock.moment()))
        await until(lambda: work.ran() == [2])

        nobody = Work("nobody")
        scheduler.registry.register(nobody)
        assert handle.retry() is True
        await until(lambda: nobody.ended == [lost])


async def test_stop_finishes_running_tasks_and_starts_no_other() -> None:
    """50 tasks, 2 slots: 48 are pending. If they waited for a semaphore, all of them would run after stop()."""
    work = Work(count=2, gated=True)
    scheduler = scheduler_of(work)
    for n in range(50):
        scheduler.add_task(Task("work", {"n": n}))
    await scheduler.start()
    await until(lambda: len(work.started) == 2)
    stopping = asyncio.ensure_future(scheduler.stop())
    await until(lambda: scheduler.status()["status"] == "stopping")
    await every_chance()
    assert not stopping.done(), "the two are not cancelled"
    work.gate.set()
    assert await stopping is True
    await every_chance()
    assert (work.ran(), len(work.ended)) == ([0, 1], 2)

    await scheduler.start()
    await until(lambda: len(work.ended) == 50)
    await scheduler.stop()
    assert work.ran() == list(range(50)), "each once, in order"


# -- limits and numbers


async def test_scheduler_concurrency_limits_all_sources_together() -> None:
    many = [Work(f"work-{n}", count=5, gated=True) for n in range(4)]
    async with running(*many, concurrency=3) as scheduler:
        for n in range(20):
            scheduler.add_task(Task(f"work-{n % 4}", {"n": n}))
        await until(lambda: sum(len(work.started) for work in many) == 3)
        await every_chance()
        inside = sum(len(work.started) for work in many)
        for work in many:
            work.gate.set()
        await until(lambda: sum(len(work.ended) for work in many) == 20)
    assert inside == 3


async def test_one_slot_means_strict_order_across_sources() -> None:
    at = datetime.now(UTC)
    order = []

    async def note(task: Task) -> None:
        order.append(task.args["n"])

    many = [Work(f"work-{n}", count=5, do=note) for n in range(3)]
    scheduler = scheduler_of(*many, concurrency=1)
    for n in range(60):
        scheduler.add_task(Task(f"work-{n * 7 % 3}", {"n": n}, at - timedelta(seconds=n % 5)))
    await scheduler.start()
    await until(lambda: len(order) == 60)
    await scheduler.stop()
    assert order == sorted(range(60), key=lambda n: (-(n % 5), n))


@pytest.mark.once
@pytest.mark.timeout(240)
async def test_two_hundred_thousand_due_tasks_need_few_coroutines() -> None:
    most = ran = 0

    class Count(BaseTaskConsumer):
        name = "count"
        concurrent_count = 5

        async def consume(self, task: Task) -> None:
            nonlocal most, ran
            ran += 1
            most = max(most, len(asyncio.all_tasks()))
            if ran % 50 == 0:
                await asyncio.sleep(0)  # some suspend, so that several run at once
                most = max(most, len(asyncio.all_tasks()))

    consumer = Count()
    scheduler = scheduler_of(consumer)
    at = datetime.now(UTC)
    for _ in range(200_000):
        scheduler.add_task(Task("count", None, at))
    await scheduler.start()
    await until(lambda: ran == 200_000, timeout=200)
    await scheduler.stop()
    assert most < 50


# -- stop, threads, apps


async def test_cancelled_stop_cancels_no_consumer() -> None:
    work = Work(gated=True)
    scheduler = scheduler_of(work)
    scheduler.add_task(Task("work", {"n": 1}))
    scheduler.add_task(Task("work", {"n": 2}))
    await scheduler.start()
    await until(lambda: work.ran() == [1])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(scheduler.stop(), 0.1)
    assert (scheduler.status()["status"], scheduler.status()["running_count"]) == ("stopping", 1)
    work.gate.set()
    await until(lambda: scheduler.status()["status"] == "stopped")
    assert (work.ran(), len(work.ended)) == ([1], 1)
    assert await scheduler.stop() is False


async def test_sync_consume_runs_in_a_thread() -> None:
    here = threading.get_ident()
    seen = Counter[int]()
    gate = threading.Event()

    class Blocking(BaseTaskConsumer):
        name = "blocking"
        concurrent_count = 2

        def consume(self, task: Task) -> None:
            seen[threading.get_ident()] += 1
            gate.wait(10)

    async with running(Blocking()) as scheduler:
        handles = [scheduler.add_task(Task("blocking")) for _ in range(4)]
        await until(lambda: seen.total() == 2)  # returns only if the event loop is free
        await every_chance()
        assert seen.total() == 2
        gate.set()
        await until(lambda: all(handle.done() for handle in handles))
    assert here not in seen
    assert seen.total() == 4


async def test_app_runs_registered_consumers() -> None:
    work = Work("email", count=2, gated=True)
    app = App("shop", store="memory://")
    app.register(work)
    async with app.running():
        handles = [await app.named("email").enqueue(n=n) for n in range(3)]
        await until(lambda: len(work.started) == 2)
        await every_chance()
        assert work.ran() == [0, 1]
        work.gate.set()
        assert [await handle for handle in handles] == [None] * 3
    assert work.ran() == [0, 1, 2]
    assert {task.source for task in work.ended} == {"email"}


async def test_app_never_reads_the_global_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskConsumerRegistry, "sources", {})
    work = Work("email")
    app = App("shop", store="memory://")
    TaskConsumerRegistry.register(work)
    async with app.running():
        handle = await app.named("email").enqueue()
        with suppress(Exception):
            await handle.result(timeout=SOON)
        assert await handle.state() == "failed"
    assert work.started == []
