"""The shared scheduler: its states and its status."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from onthedot import (
    IntervalSchedule,
    Scheduler,
    Task,
    TaskConsumerRegistry,
    get_scheduler,
    get_scheduler_status,
    start_scheduler,
    stop_scheduler,
)
from tests.acceptance.shared import EMPTY, PAST, add, register, shared_status
from tests.support.consumers import Work
from tests.support.waits import LONG, every_chance, until

pytestmark = pytest.mark.usefixtures("own_globals", "no_hidden_trouble")


# -- states


async def test_status_shows_the_four_states_in_order(store: str) -> None:
    """A thread reads the status without pause. Starting and stopping last until it has seen them."""
    work = Work(gated=True)
    go = asyncio.Event()
    register(work)
    seen = ["stopped"]
    ending = threading.Event()

    def read() -> None:
        while not ending.is_set():
            seen.append(get_scheduler_status()["status"])

    real = get_scheduler().runtime.store
    beat = real.heartbeat

    async def held(*args: Any) -> Any:
        await go.wait()
        return await beat(*args)

    real.heartbeat = held
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(2):
            go.clear()
            work.gate.clear()
            work.started.clear()
            starting = asyncio.ensure_future(start_scheduler())
            await until(lambda: seen[-1] == "starting")
            go.set()
            assert await starting is True
            assert get_scheduler_status()["status"] == "running"
            add("work")
            await until(lambda: work.started and seen[-1] == "running")
            stopping = asyncio.ensure_future(stop_scheduler())
            await until(lambda: seen[-1] == "stopping")
            work.gate.set()
            assert await stopping is True
            assert get_scheduler_status()["status"] == "stopped"
            await until(lambda: seen[-1] == "stopped")
    finally:
        ending.set()
        reader.join()
    life = ["starting", "running", "stopping", "stopped"]
    assert [status for status, _ in groupby(seen)] == ["stopped", *life, *life]


@pytest.mark.usefixtures("fast_thread_switches")
async def test_states_of_a_hundred_starts_never_go_backwards() -> None:
    """Not every state is seen, but those that are seen come in order."""
    order = ["stopped", "starting", "running", "stopping"]
    seen = [("stopped", 0)]
    ending = threading.Event()
    life = 0

    def read() -> None:
        while not ending.is_set():
            before = life
            status = get_scheduler_status()["status"]
            if before == life:  # otherwise it is unknown to which start it belongs
                seen.append((status, before))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(100):
            await start_scheduler()
            await stop_scheduler()
            life += 1
    finally:
        ending.set()
        reader.join()
    assert {status for status, _ in seen} <= set(order)
    for (before, of), (after, now) in pairwise(seen):
        if of == now and after != "stopped":
            assert order.index(before) <= order.index(after), (before, after)


@pytest.mark.parametrize("verb", ["open", "put_schedules", "heartbeat"])
async def test_failed_start_returns_to_stopped(store: str, verb: str) -> None:
    real = get_scheduler().runtime.store
    works = getattr(real, verb)

    async def fails(*args: Any) -> None:
        raise OSError("no route")

    setattr(real, verb, fails)
    with pytest.raises(OSError, match="no route"):
        await start_scheduler()
    assert shared_status() == EMPTY
    setattr(real, verb, works)
    assert await start_scheduler() is True
    assert await stop_scheduler() is True


# -- status


class Planned(Work):
    schedule = IntervalSchedule(3600)


async def pause(name: str) -> None:
    store = get_scheduler().runtime.store
    (record,) = [each for each in (await store.schedules()) if each.name == name]
    assert list(await store.put_schedules([replace(record, paused=True)])) == [True]


async def test_status_has_nine_correct_fields(store: str) -> None:
    """3 schedules, 1 of them paused; 1 task runs, 7 more are due, 2 are delayed."""
    work = Work(gated=True, count=5)
    register(work, *(Planned(f"plan-{n}") for n in range(3)))
    await start_scheduler()
    assert shared_status() == EMPTY | {"status": "running", "scheduled_count": 3, "enabled_scheduled_count": 3}
    await pause("plan-1")
    running = add("work", 0)
    await until(lambda: work.started)
    for n in range(1, 8):
        add("work", n)
    for n in (8, 9):
        add("work", n, datetime.now(UTC) + timedelta(hours=1))
    full = {
        "status": "running", "poll_interval": 10, "queue_count": 7, "scheduled_count": 3, "enabled_scheduled_count": 2,
        "running_count": 1, "is_executing": True, "current_task_id": running.uuid,
    }  # fmt: skip
    await until(lambda: shared_status() == full)
    assert get_scheduler().status()["delayed_count"] == 2
    await every_chance()
    assert shared_status() == full
    assert await asyncio.to_thread(shared_status) == full

    work.gate.set()
    await until(lambda: len(work.ended) == 8)
    done = {"status": "running", "scheduled_count": 3, "enabled_scheduled_count": 2}
    await until(lambda: shared_status() == EMPTY | done)
    await stop_scheduler()
    assert shared_status() == EMPTY | done | {"status": "stopped"}


async def test_status_counts_own_adds_at_once(store: str) -> None:
    """Before a start, while a task runs, and after the stop, also while a refresh is in flight."""
    work = Work(gated=True)
    register(work)
    add("work", 0)
    assert shared_status() == EMPTY | {"queue_count": 1}
    await start_scheduler()
    await until(lambda: work.started)
    await until(lambda: shared_status()["queue_count"] == 0)
    end = time.monotonic() + 0.5
    n = 0
    while time.monotonic() < end:
        n += 1
        if n % 3:
            add("work", n)
        else:
            await get_scheduler().add(Task("work", {"n": n}, datetime.now(UTC) + timedelta(hours=1)))
        status = get_scheduler().status()
        assert (status["queue_count"], status["delayed_count"], status["running_count"]) == (n - n // 3, n // 3, 1)
        if n % 10 == 0:
            await asyncio.sleep(0.02)  # so that other threads run
    work.gate.set()
    await until(lambda: len(work.ended) == n - n // 3 + 1)
    await until(lambda: get_scheduler().status()["queue_count"] == 0)
    await stop_scheduler()
    add("work", n + 1)
    status = get_scheduler().status()
    assert (status["queue_count"], status["delayed_count"]) == (1, n // 3)


def test_task_for_now_is_due_at_once(store: str) -> None:
    """It is not due only from the next whole millisecond on, when no worker would be woken."""
    for n in range(1, 101):
        get_scheduler().add_task(Task("work"))
        assert shared_status()["queue_count"] == n


def test_status_counts_adds_of_many_threads(store: str) -> None:
    """The sum is right when the last thread returns, although none of them has waited for the others."""
    wrong: list[tuple[int, int]] = []

    def adds() -> None:
        for n in range(25):
            add("work", n)
            if (count := shared_status()["queue_count"]) <= n:
                wrong.append((n, count))

    threads = [threading.Thread(target=adds) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [], "at least the own adds"
    assert shared_status()["queue_count"] == 200


async def test_status_shows_changes_of_other_processes(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Another scheduler on the same file stands for another process: it adds and runs tasks."""
    monkeypatch.setenv("ONTHEDOT_STORE", f"sqlite:///{file}")
    register(Work(gated=True))
    await start_scheduler()
    other = Scheduler(store=f"sqlite:///{file}", registry=TaskConsumerRegistry())
    handles = [other.add_task(Task("elsewhere", {"n": n}, PAST)) for n in range(3)]
    await until(lambda: shared_status()["queue_count"] == 3)
    assert handles[0].cancel() is True
    await until(lambda: shared_status()["queue_count"] == 2)
    await stop_scheduler()
    other.runtime.portal.close()


async def test_status_never_waits_for_the_store(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """A slow read blocks the reader thread, and a foreign program locks the file; the status is still answered."""
    monkeypatch.setenv("ONTHEDOT_STORE", f"sqlite:///{file}")
    work = Work(gated=True)
    register(work)
    await start_scheduler()
    running = add("work")
    await until(lambda: work.started)
    entered = threading.Event()
    gate = threading.Event()
    ended = list[bool]()

    def slow_page(*_: object) -> None:
        entered.set()
        ended.append(gate.wait(LONG))

    page = asyncio.ensure_future(get_scheduler().runtime.store.read(slow_page))
    await until(entered.is_set)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        answers = [shared_status() for _ in range(1000)]
        answers += await asyncio.to_thread(lambda: [shared_status() for _ in range(1000)])
        assert ended == [], "no caller has waited for the reader"
        other.execute("COMMIT")
        assert {(each["status"], each["current_task_id"]) for each in answers} == {("running", running.uuid)}
        add("work", 1)
        assert shared_status()["queue_count"] == answers[-1]["queue_count"] + 1, "adds of this process are counted"
    finally:
        other.close()
        gate.set()
    await page
    await until(lambda: shared_status()["queue_count"] == 1)
    work.gate.set()
    await stop_scheduler()
