"""The checks that `doctor` and the monitor of a queue go by: each at its bound, and a look over a real store."""

from __future__ import annotations

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreUnavailable
from onthedot.operations import health
from onthedot.operations.health import Vitals, checks, clock, crowded, examine, failing, look, memory, unserved
from onthedot.operations.workers import WorkerInfo
from onthedot.stores.capabilities import ServerInfo
from onthedot.stores.memory import MemoryStore
from tests.contract.steps import Worker, add, task

FIVE = [WorkerInfo("w1", concurrency={"async": 3, "thread": 2}, sources=("a",))]


def test_unserved_is_what_has_been_ready_for_more_than_a_minute() -> None:
    assert [check.ok for check in unserved({"a": 1_000}, now=61_000)] == [True]
    assert [(check.ok, check.what) for check in unserved({"a": 1_000, "b": 0}, now=61_001)] == [
        (False, "a"),
        (False, "b"),
    ]


def test_crowded_is_more_than_twice_the_slots_of_the_fleet() -> None:
    assert crowded({("a", "running"): 6, ("b", "running"): 4}, FIVE).ok
    assert not crowded({("a", "running"): 7, ("b", "running"): 4}, FIVE).ok
    assert crowded({}, []).ok
    assert not crowded({("a", "running"): 1}, []).ok, "somebody's, who is gone"


def test_failing_is_more_than_one_in_a_hundred() -> None:
    assert failing({}).ok
    assert failing({("a", "succeeded"): 99, ("a", "failed"): 1, ("a", "cancelled"): 50}).ok
    check = failing({("a", "succeeded"): 98, ("a", "failed"): 1, ("b", "failed"): 2})
    assert (check.ok, check.text) == (False, "3 of 101 runs failed, most of them of b; see `onthedot failed`")


def test_failing_counts_from_an_earlier_look_and_what_was_purged_says_nothing() -> None:
    before = {("a", "succeeded"): 500, ("a", "failed"): 50}
    assert failing({("a", "succeeded"): 400, ("a", "failed"): 50}, before).ok
    assert not failing({("a", "succeeded"): 400, ("a", "failed"): 51}, before).ok
    assert failing({("a", "succeeded"): 600, ("a", "failed"): 51}, before).ok


def test_the_clock_may_be_off_by_a_second() -> None:
    assert clock(ServerInfo(now=5_000), now=6_000).ok
    assert clock(ServerInfo(now=6_000), now=5_000).ok
    assert "2.0 s behind the store's" in clock(ServerInfo(now=5_000), now=3_000).text
    assert not clock(ServerInfo(now=5_000), now=6_001).ok


def test_memory_may_be_four_fifths_full() -> None:
    assert memory(ServerInfo(now=0, memory=900)) == []
    assert [check.ok for check in memory(ServerInfo(now=0, memory=80, memory_limit=100))] == [True]
    assert [check.ok for check in memory(ServerInfo(now=0, memory=81, memory_limit=100))] == [False]


class Elsewhere(MemoryStore):
    """As if it were a server's."""

    async def server(self) -> ServerInfo:
        return ServerInfo(now=1, memory=1, memory_limit=1)


async def test_a_look() -> None:
    clock = ManualClock()
    store, start = MemoryStore(clock), int(clock.now())
    worker = Worker(store, "w1")
    await store.heartbeat("w1", b'{"sources": ["a"], "concurrency": {"async": 1}}', 1_000_000)
    await add(store, task("a"), task("b", after=1_000), task("b", after=5_000), task("c", after=100_000))
    clock.advance(70_000)
    await worker.claim("a")
    vitals = await look(store, clock.now())
    assert (vitals.unserved, [info.id for info in vitals.workers]) == ({"b": start + 1_000}, ["w1"])
    found = checks(vitals)
    assert [(check.ok, check.what) for check in found] == [(False, "b"), (True, "running"), (True, "failures")]
    assert found[0].text.startswith("ready for 69 s")


async def test_a_look_far_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest ones are on the last pages."""
    monkeypatch.setattr(health, "PAGE", 2)
    clock = ManualClock()
    store, start = MemoryStore(clock), int(clock.now())
    for _ in range(10):
        await add(store, task("b"))
        clock.advance(1_000)
    assert (await look(store, clock.now())).unserved == {"b": start}
    clock.advance(60_000)
    assert (await look(store, clock.now())).unserved == {"b": start + 8_000}, "late enough: it needs no older one"


async def test_a_store_with_a_clock_of_its_own_is_asked() -> None:
    vitals = await look(Elsewhere(ManualClock()), 0)
    assert [check.what for check in checks(vitals)] == ["served", "running", "failures", "clock", "memory"]
    assert vitals.server == ServerInfo(now=1, memory=1, memory_limit=1)


async def test_health_is_true_if_nothing_is_wrong() -> None:
    async def looking(answer: Vitals | Exception) -> Vitals:
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert await examine(looking(Vitals(0, {}, FIVE, {})))
    assert not await examine(looking(Vitals(0, {("a", "failed"): 1}, FIVE, {})))
    gone = await examine(looking(StoreUnavailable("nobody answers")))
    assert not gone
    assert [(check.what, check.text) for check in gone.checks] == [("store", "nobody answers")]
