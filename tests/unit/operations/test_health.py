"""The checks of `doctor` and of the monitor of a queue: each at its limit, and on a real store."""

from __future__ import annotations

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreUnavailable
from onthedot.operations import health
from onthedot.operations.health import (
    Vitals,
    check_clock,
    check_failures,
    check_memory,
    check_running,
    check_served,
    check_vitals,
    read_health,
    read_vitals,
)
from onthedot.operations.workers import WorkerInfo
from onthedot.stores.capabilities import ServerInfo
from onthedot.stores.memory import MemoryStore
from tests.contract.steps import Worker, add, task

FIVE = [WorkerInfo("w1", concurrency={"async": 3, "thread": 2}, sources=("a",))]


def test_source_is_unserved_after_a_minute_without_a_worker() -> None:
    assert [check.ok for check in check_served({"a": 1_000}, now=61_000)] == [True]
    assert [(check.ok, check.what) for check in check_served({"a": 1_000, "b": 0}, now=61_001)] == [
        (False, "a"),
        (False, "b"),
    ]


def test_more_than_two_running_tasks_per_slot_are_a_problem() -> None:
    assert check_running({("a", "running"): 6, ("b", "running"): 4}, FIVE).ok
    assert not check_running({("a", "running"): 7, ("b", "running"): 4}, FIVE).ok
    assert check_running({}, []).ok
    assert not check_running({("a", "running"): 1}, []).ok, "somebody's, who is gone"


def test_more_than_one_failed_run_in_a_hundred_is_a_problem() -> None:
    assert check_failures({}).ok
    assert check_failures({("a", "succeeded"): 99, ("a", "failed"): 1, ("a", "cancelled"): 50}).ok
    check = check_failures({("a", "succeeded"): 98, ("a", "failed"): 1, ("b", "failed"): 2})
    assert (check.ok, check.text) == (False, "3 of 101 runs failed, most of them of b; see `onthedot failed`")


def test_failures_are_counted_since_earlier_vitals_whatever_was_purged() -> None:
    before = {("a", "succeeded"): 500, ("a", "failed"): 50}
    assert check_failures({("a", "succeeded"): 400, ("a", "failed"): 50}, before).ok
    assert not check_failures({("a", "succeeded"): 400, ("a", "failed"): 51}, before).ok
    assert check_failures({("a", "succeeded"): 600, ("a", "failed"): 51}, before).ok


def test_clock_may_be_off_by_a_second() -> None:
    assert check_clock(ServerInfo(now=5_000), now=6_000).ok
    assert check_clock(ServerInfo(now=6_000), now=5_000).ok
    assert "2.0 s behind the store's" in check_clock(ServerInfo(now=5_000), now=3_000).text
    assert not check_clock(ServerInfo(now=5_000), now=6_001).ok


def test_server_memory_may_be_four_fifths_full() -> None:
    assert check_memory(ServerInfo(now=0, memory=900)) == []
    assert [check.ok for check in check_memory(ServerInfo(now=0, memory=80, memory_limit=100))] == [True]
    assert [check.ok for check in check_memory(ServerInfo(now=0, memory=81, memory_limit=100))] == [False]


class Elsewhere(MemoryStore):
    """A store that reports a server."""

    async def server(self) -> ServerInfo:
        return ServerInfo(now=1, memory=1, memory_limit=1)


async def test_vitals_are_read_from_a_store() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    start = int(clock.now())
    worker = Worker(store, "w1")
    await store.heartbeat("w1", b'{"sources": ["a"], "concurrency": {"async": 1}}', 1_000_000)
    await add(store, task("a"), task("b", after=1_000), task("b", after=5_000), task("c", after=100_000))
    clock.advance(70_000)
    await worker.claim("a")
    vitals = await read_vitals(store, clock.now())
    assert (vitals.unserved, [info.id for info in vitals.workers]) == ({"b": start + 1_000}, ["w1"])
    found = check_vitals(vitals)
    assert [(check.ok, check.what) for check in found] == [(False, "b"), (True, "running"), (True, "failures")]
    assert found[0].text.startswith("ready for 69 s")


async def test_oldest_ready_task_is_found_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PAGE", 2)
    clock = ManualClock()
    store = MemoryStore(clock)
    start = int(clock.now())
    for _ in range(10):
        await add(store, task("b"))
        clock.advance(1_000)
    assert (await read_vitals(store, clock.now())).unserved == {"b": start}


async def test_server_info_is_read_from_a_store_that_has_a_server() -> None:
    vitals = await read_vitals(Elsewhere(ManualClock()), 0)
    assert [check.what for check in check_vitals(vitals)] == ["served", "running", "failures", "clock", "memory"]
    assert vitals.server == ServerInfo(now=1, memory=1, memory_limit=1)


async def test_health_report_is_true_if_all_checks_are_ok() -> None:
    async def looking(answer: Vitals | Exception) -> Vitals:
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert await read_health(looking(Vitals(0, {}, FIVE, {})))
    assert not await read_health(looking(Vitals(0, {("a", "failed"): 1}, FIVE, {})))
    gone = await read_health(looking(StoreUnavailable("nobody answers")))
    assert not gone
    assert [(check.what, check.text) for check in gone.checks] == [("store", "nobody answers")]
