"""expires: a task that has not started in time ends without running, also if it is paused."""

from __future__ import annotations

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Store
from tests.contract.steps import Worker, add, limit, look, state, task


async def test_task_runs_until_its_expiry(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(expires=100))
    clock.advance(99.75)
    assert await worker.runs() == [uuid]


async def test_expired_task_is_a_chore(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(expires=100))
    clock.advance(100)
    claimed = await worker.claim()
    assert list(claimed.tasks) == []
    assert [(record.uuid, record.history.reason) for record in claimed.chores] == [(uuid, "expired")]
    await worker.settle(worker.cancelled(uuid, b"expired"))
    record = await look(store, uuid)
    assert (record.state, record.history.started) == ("cancelled", None)


async def test_expiry_counts_from_the_due_time(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(after=1000, expires=100))
    clock.advance(1099)
    assert await worker.chores() == {}
    clock.advance(1)
    assert await worker.chores() == {uuid: "expired"}


async def test_task_expires_without_a_claim_in_between(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(after=1000, expires=100))
    clock.advance(60_000)
    claimed = await worker.claim()
    assert ([r.uuid for r in claimed.tasks], [r.uuid for r in claimed.chores]) == ([], [uuid])


async def test_task_added_after_its_expiry_is_a_chore(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(at=int(clock.now()) - 5000, expires=100))
    assert await worker.chores(total=10) == {uuid: "expired"}


async def test_parked_task_expires(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=0)
    (uuid,) = await add(store, task(lane="a/k", expires=100))
    await worker.claim()
    assert await state(store, uuid) == "parked"
    clock.advance(100)
    assert await worker.chores() == {uuid: "expired"}


async def test_expired_task_leaves_its_lane(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    first, second = await add(store, task(lane="a/k", expires=100), task(lane="a/k"))
    await worker.claim("b")
    clock.advance(100)
    claimed = await worker.claim("a")
    assert ([r.uuid for r in claimed.tasks], [r.uuid for r in claimed.chores]) == ([second], [first])


async def test_running_task_does_not_expire(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(expires=100))
    await worker.runs()
    clock.advance(1000)
    assert await worker.chores() == {}
    assert await worker.settle(worker.done(uuid)) == ["ok"]


@pytest.mark.parametrize("how", ["retry", "snooze"])
async def test_retried_task_does_not_expire(store: Store, worker: Worker, clock: ManualClock, how: str) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(expires=100))
    await worker.runs()
    await worker.settle(getattr(worker, how)(uuid, after=50))
    clock.advance(5000)
    assert await worker.runs() == [uuid]


async def test_crashed_task_does_not_expire(store: Store, worker: Worker, other: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (uuid,) = await add(store, task(expires=100))
    await worker.runs()
    started = int(clock.now())
    await worker.crash()
    assert (await look(store, uuid)).history.started == started
    clock.advance(100)
    assert await other.runs() == [uuid]


@pytest.mark.parametrize("how", ["release", "close"])
async def test_released_task_expires(store: Store, worker: Worker, other: Worker, clock: ManualClock, how: str) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (uuid,) = await add(store, task(expires=100))
    await worker.runs()
    await (worker.settle(worker.release(uuid)) if how == "release" else store.close_session(worker.name))
    clock.advance(100)
    assert await other.chores() == {uuid: "expired"}


async def test_task_released_after_its_expiry_is_a_chore(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(expires=100))
    await worker.runs()
    clock.advance(500)
    await worker.settle(worker.release(uuid))
    assert await worker.chores(total=10) == {uuid: "expired"}


async def test_revived_task_that_had_started_does_not_expire(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(expires=100))
    await worker.run_to_failure(uuid)
    await store.revive([uuid])
    clock.advance(500)
    assert await worker.runs() == [uuid]


async def test_revived_task_that_never_started_has_a_new_expiry(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(expires=100))
    clock.advance(100)
    await worker.chores()
    await worker.settle(worker.cancelled(uuid))
    await store.revive([uuid])
    clock.advance(99)
    assert await worker.chores() == {}
    clock.advance(1)
    assert await worker.chores() == {uuid: "expired"}
