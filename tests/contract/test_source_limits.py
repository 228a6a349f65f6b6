"""Limits of a source: concurrency, rate and pause, over all sessions."""

from __future__ import annotations

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Store
from tests.contract.steps import Worker, add, limit, states, task, tasks


async def test_source_cap_holds_over_all_sessions(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    await limit(store, "a", cap=3)
    uuids = await add(store, *tasks(5))
    assert await worker.runs(total=2) == uuids[:2]
    assert await other.runs() == uuids[2:3]
    assert await worker.runs() == []
    assert await states(store, uuids[3:]) == ["ready", "ready"]
    await other.settle(other.done(uuids[2]))
    assert await worker.runs() == uuids[3:4]


async def test_source_cap_does_not_count_chores(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a", cap=1)
    (expired,) = await add(store, task(expires=10))
    clock.advance(10)
    assert await worker.chores() == {expired: "expired"}
    (uuid,) = await add(store, task())
    assert await worker.runs() == [uuid]


async def test_limited_source_does_not_block_others(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a", cap=1)
    first, _, _, free = await add(store, *tasks(3), task("b"))
    assert await worker.runs("a", "b", total=2) == [first, free]


async def test_lowered_source_cap_stops_no_running_task(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    uuids = await add(store, *tasks(4))
    assert await worker.runs(total=3) == uuids[:3]
    await limit(store, "a", cap=1)
    assert await worker.runs() == []
    await worker.settle(worker.done(uuids[0]), worker.done(uuids[1]))
    assert await worker.runs() == []
    await worker.settle(worker.done(uuids[2]))
    assert await worker.runs() == uuids[3:]


async def test_death_releases_the_source_cap(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    await limit(store, "a", cap=1)
    first, _ = await add(store, *tasks(2))
    assert await worker.runs() == [first]
    await worker.crash()
    assert await other.runs() == [first]


async def test_paused_source_starts_nothing(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    uuids = await add(store, *tasks(2))
    assert await worker.runs(total=1) == uuids[:1]
    await limit(store, "a", paused=True, owner="operator", reason="deploy")
    assert await worker.runs() == []
    assert await worker.settle(worker.done(uuids[0])) == ["ok"]
    await limit(store, "a", owner="operator")
    assert await worker.runs() == uuids[1:]


async def test_code_does_not_resume_a_source_that_the_operator_paused(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await add(store, task())
    await limit(store, "a", paused=True, owner="operator")
    await limit(store, "a", cap=10, owner="code")
    assert await worker.runs() == []


async def test_operator_limit_of_a_source_overrides_code_field_by_field(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a", cap=1, owner="code")
    await limit(store, "a", rate=1.0, burst=5, owner="operator")
    uuids = await add(store, *tasks(9))
    assert await worker.runs() == uuids[:1]
    await limit(store, "a", cap=3, owner="operator")
    assert await worker.runs() == uuids[1:3]
    await limit(store, "a", cap=1, owner="code")
    await worker.settle(*(worker.done(uuid) for uuid in uuids[:3]))
    assert await worker.runs() == uuids[3:6]


async def test_source_rate_counts_starts(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a", rate=2.0, burst=2)
    uuids = await add(store, *tasks(6, cost=7))  # costs apply to lanes only
    assert await worker.runs() == uuids[:2]
    await worker.settle(worker.done(uuids[0]), worker.done(uuids[1]))
    clock.advance(499)
    assert await worker.runs() == []
    clock.advance(1)
    assert await worker.runs() == uuids[2:3]
    clock.advance(60_000)
    assert await worker.runs() == uuids[3:5]


async def test_fraction_of_a_token_starts_nothing(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a", rate=1.0, burst=2.5)
    uuids = await add(store, *tasks(5))
    assert await worker.runs() == uuids[:2]
    clock.advance(499)
    assert await worker.runs() == []
    clock.advance(1)
    assert await worker.runs() == uuids[2:3]


async def test_source_and_lane_limits_hold_together(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a", cap=2)
    await limit(store, "a/*", cap=1)
    k1, k2, l1, l2 = await add(store, *tasks(2, lane="a/k"), *tasks(2, lane="a/l"))
    assert await worker.runs() == [k1, l1]
    await worker.settle(worker.done(k1))
    assert await worker.runs() == [k2]
    await worker.settle(worker.done(l1))
    assert await worker.runs() == [l2]


async def test_mode_is_kept_and_limits_nothing(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a", owner="operator", mode="frozen")
    assert [each.mode for each in await store.limits()] == ["frozen"]
    assert await worker.runs() == []
    (uuid,) = await add(store, task())
    assert await worker.runs() == [uuid]
    await limit(store, "a", owner="operator", mode="degraded", cap=3)
    (stored,) = await store.limits()
    assert (stored.mode, stored.cap) == ("degraded", 3)
    await limit(store, "a", owner="operator")
    assert [each.mode for each in await store.limits()] == [""]
