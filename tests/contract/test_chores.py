"""chores: tasks that must end without running are leased outside all limits, and settled."""

from __future__ import annotations

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import CHORES, CLIENT_LEASE, Lease, Store
from tests.contract.steps import Worker, add, limit, look, names, state, states, task, tasks


async def test_cancel_leases_pending_tasks_to_the_caller(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/k", cap=0)
    ready, later, laned = await add(store, task(), task(after=1000), task(lane="a/k"))
    await worker.claim("b")
    assert await states(store, [ready, later, laned]) == ["ready", "scheduled", "parked"]
    leased = await store.cancel(worker.name, [ready, later, laned])
    assert names(leased.tasks) == [ready, later, laned]
    assert leased.fence > 0
    assert [(record.history.reason, record.history.cancel_requested) for record in leased.tasks] == [
        ("cancel", True)
    ] * 3


async def test_cancelled_task_does_not_run(store: Store, worker: Worker, other: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    uuids = await add(store, task(), task(after=100), task(lane="a/k"))
    assert await worker.cancel(*uuids) == uuids
    clock.advance(100)
    assert await other.runs() == []
    assert await worker.settle(*(worker.cancelled(uuid) for uuid in uuids)) == ["ok"] * 3
    assert await states(store, uuids) == ["cancelled"] * 3
    assert [(await look(store, uuid)).history.started for uuid in uuids] == [None] * 3


async def test_cancel_marks_running_tasks(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    leased = await store.cancel(other.name, [uuid])
    assert (leased.fence, list(leased.tasks)) == (0, [])
    record = await look(store, uuid)
    assert (record.state, record.history.cancel_requested, record.history.session) == ("running", True, worker.name)
    assert await worker.settle(worker.done(uuid)) == ["ok"]


async def test_second_cancel_changes_nothing(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (uuid,) = await add(store, task())
    assert await worker.cancel(uuid, uuid) == [uuid]
    leased = await store.cancel(other.name, [uuid])
    assert (leased.fence, list(leased.tasks)) == (0, [])
    assert await worker.settle(worker.cancelled(uuid)) == ["ok"]


async def test_cancel_ignores_ended_and_unknown_tasks(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.run_to_failure(uuid)
    before = await look(store, uuid)
    leased = await store.cancel(worker.name, [uuid, "nobody"])
    assert (leased.fence, list(leased.tasks)) == (0, [])
    assert await look(store, uuid) == before


async def test_client_that_cancels_has_a_session_for_the_client_lease(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    client = Worker(store, "client")
    first, second = await add(store, *tasks(2, after=1_000_000))
    assert await client.cancel(first, second) == [first, second]
    assert "client" not in (await store.sessions())
    clock.advance(CLIENT_LEASE - 1)
    assert await worker.chores() == {}
    assert await client.settle(client.cancelled(first)) == ["ok"]
    clock.advance(1)
    assert await worker.chores() == {second: "cancel"}
    assert await client.settle(client.cancelled(second)) == ["lost"]
    assert await worker.settle(worker.cancelled(second)) == ["ok"]


@pytest.mark.parametrize("how", ["retry", "snooze", "release"])
async def test_cancel_requested_task_is_not_requeued(store: Store, worker: Worker, other: Worker, how: str) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    await store.cancel(other.name, [uuid])
    assert await worker.settle(getattr(worker, how)(uuid)) == ["ok"]
    claimed = await other.claim()
    assert list(claimed.tasks) == []
    assert [(record.uuid, record.history.reason) for record in claimed.chores] == [(uuid, "cancel")]
    assert await other.settle(other.cancelled(uuid)) == ["ok"]


@pytest.mark.parametrize("how", ["death", "close"])
async def test_cancel_requested_task_of_an_ended_session_becomes_a_chore(
    store: Store, worker: Worker, other: Worker, how: str
) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    await store.cancel(other.name, [uuid])
    await (worker.crash() if how == "death" else store.close_session(worker.name))
    assert await other.chores() == {uuid: "cancel"}


async def test_chores_are_handed_out_in_spite_of_limits_and_pauses(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    await limit(store, "a", cap=0, paused=True)
    await limit(store, "a/k", cap=0, rate=1.0, paused=True)
    uuids = await add(store, task(expires=10), task(lane="a/k", expires=10))
    clock.advance(10)
    assert await worker.chores(total=0, suspects=0, pools=[]) == dict.fromkeys(uuids, "expired")


async def test_chore_is_leased_like_a_run(store: Store, worker: Worker, other: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (uuid,) = await add(store, task(expires=10))
    clock.advance(10)
    assert await worker.chores() == {uuid: "expired"}
    assert (await other.chores(), await other.runs()) == ({}, [])
    assert (await look(store, uuid)).history.ended is None
    assert await worker.settle(worker.cancelled(uuid)) == ["ok"]
    assert await worker.settle(worker.cancelled(uuid)) == ["repeat"]
    assert await state(store, uuid) == "cancelled"


async def test_claim_returns_a_bounded_number_of_chores(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    uuids = await add(store, *tasks(CHORES + 1, expires=10))
    clock.advance(10)
    claimed = await worker.claim(total=0)
    assert names(claimed.chores) == uuids[:CHORES]
    assert claimed.more
    claimed = await worker.claim(total=0)
    assert names(claimed.chores) == uuids[CHORES:]
    assert not claimed.more


async def test_chores_come_in_the_order_in_which_they_became_chores(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    late, early = await add(store, task(expires=20), task(expires=10))
    clock.advance(20)
    assert names((await worker.claim(total=0)).chores) == [early, late]


async def test_tasks_of_unknown_sources_are_chores_in_a_private_store(store: Store, worker: Worker) -> None:
    if store.traits.shared:
        pytest.skip("another worker of a shared store may know the source")
    await worker.heartbeat()
    mine, unasked, stray, later = await add(store, task("a"), task("b"), task("c"), task("c", after=1000))
    claimed = await worker.claim("a", known=frozenset({"a", "b"}))
    assert names(claimed.tasks) == [mine]
    assert [(record.uuid, record.history.reason) for record in claimed.chores] == [(stray, "stray")]
    assert await states(store, [unasked, later]) == ["ready", "scheduled"]
    assert await worker.settle(worker.failed(stray)) == ["ok"]


async def test_tasks_of_unknown_sources_stay_without_known_sources(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (stray,) = await add(store, task("c"))
    assert await worker.chores() == {}
    assert await state(store, stray) == "ready"


async def test_cancel_of_an_admitted_task_admits_the_next(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    first, second = await add(store, *tasks(2, lane="a/k"))
    await worker.claim("b")
    assert await states(store, [first, second]) == ["ready", "parked"]
    await worker.cancel(first)
    assert await worker.runs() == [second]


async def test_task_pending_for_a_retry_can_be_cancelled(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    await worker.settle(worker.retry(uuid, after=1000))
    assert await worker.cancel(uuid) == [uuid]
    assert await worker.settle(worker.cancelled(uuid)) == ["ok"]
    assert (await look(store, uuid)).history.retries == 1


async def test_cancelled_chore_is_handed_out_once(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (uuid,) = await add(store, task(max_crashes=1))
    await other.runs()
    await other.crash()
    leased = await store.cancel("client", [uuid])
    assert [(record.uuid, record.history.reason) for record in leased.tasks] == [(uuid, "cancel")]
    client = Worker(store, "client")
    client.leases[uuid] = Lease(uuid, leased.fence, "client")
    assert await client.settle(client.cancelled(uuid)) == ["ok"]
    assert await worker.chores() == {}
    assert await state(store, uuid) == "cancelled"
