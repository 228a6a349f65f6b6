"""unique: one live task per key of a source; the first is kept or replaced by the second."""

from __future__ import annotations

from math import floor

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Added, Store
from tests.contract.steps import Worker, add, limit, look, state, states, task


async def test_keep_returns_the_existing_task(store: Store) -> None:
    first = task(unique="k", body=b"1")
    second = task(unique="k", body=b"2", after=1000)
    await store.add([first])
    assert list(await store.add([second])) == [Added(first.uuid, fresh=False)]
    assert (await look(store, first.uuid)).body == b"1"
    assert list(await store.get([second.uuid])) == [None]


async def test_unique_key_twice_in_one_call_is_stored_once(store: Store) -> None:
    first = task(unique="k")
    second = task(unique="k")
    assert list(await store.add([first, second])) == [Added(first.uuid, fresh=True), Added(first.uuid, fresh=False)]


async def test_scope_of_a_unique_key_is_the_source(store: Store) -> None:
    answers = await store.add([task("a", unique="k"), task("b", unique="k"), task("a", unique="l"), task("a")])
    assert [added.fresh for added in answers] == [True] * 4


async def test_unique_key_is_held_in_every_live_state(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k"))
    await worker.runs()
    assert await add(store, task(unique="k")) == [uuid]
    await worker.settle(worker.retry(uuid, after=1000))
    assert await add(store, task(unique="k")) == [uuid]
    await worker.cancel(uuid)
    assert await add(store, task(unique="k")) == [uuid]


@pytest.mark.parametrize("how", ["done", "failed", "cancelled"])
@pytest.mark.parametrize("keep", [0, 1000])
async def test_end_releases_the_unique_key(store: Store, worker: Worker, how: str, keep: int) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k"))
    await worker.runs()
    await worker.settle(getattr(worker, how)(uuid, keep=keep))
    (added,) = await store.add([task(unique="k")])
    assert added.fresh


async def test_end_of_a_chore_releases_the_unique_key(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k", after=1000))
    await worker.cancel(uuid)
    await worker.settle(worker.cancelled(uuid))
    (added,) = await store.add([task(unique="k")])
    assert added.fresh


async def test_replace_changes_a_pending_task(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    old = task(unique="k", body=b"1", after=1000, tags=("old",))
    await store.add([old])
    before = await look(store, old.uuid)
    clock.advance(500)
    new = task(unique="k", body=b"2", after=1000, on_conflict="replace", tags=("new",), boost=7, lane="a/k")
    assert list(await store.add([new])) == [Added(old.uuid, fresh=False)]
    record = await look(store, old.uuid)
    assert (record.body, record.lane, record.policy) == (b"2", "a/k", new.policy)
    assert (record.due, record.state) == (floor(clock.now()) + 1000, "scheduled")
    assert (record.seq, record.added) == (before.seq, before.added)
    clock.advance(999)
    assert await worker.runs() == []
    clock.advance(1)
    assert await worker.runs() == [old.uuid]


async def test_replace_can_delay_a_ready_task(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k"))
    await add(store, task(unique="k", after=100, on_conflict="replace"))
    assert await state(store, uuid) == "scheduled"
    assert await worker.runs() == []
    clock.advance(100)
    assert await worker.runs() == [uuid]


async def test_replace_can_make_a_scheduled_task_ready(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k", after=100))
    await add(store, task(unique="k", on_conflict="replace"))
    assert await worker.runs() == [uuid]


async def test_replace_keeps_the_history(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k"))
    await worker.runs()
    outcome = worker.retry(uuid, after=1000)
    await worker.settle(outcome)
    history = (await look(store, uuid)).history
    await add(store, task(unique="k", after=2000, on_conflict="replace"))
    assert (await look(store, uuid)).history == history
    assert await worker.settle(outcome) == ["repeat"]


async def test_replace_releases_the_capacity_of_the_old_lane(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    first, second = await add(store, task(unique="k", lane="a/k"), task(lane="a/k"))
    await worker.claim("b")
    assert await states(store, [first, second]) == ["ready", "parked"]
    await add(store, task(unique="k", lane="a/k", after=1000, on_conflict="replace"))
    assert await worker.runs() == [second]


async def test_running_task_is_not_replaced(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k", body=b"1"))
    await worker.runs()
    before = await look(store, uuid)
    assert list(await store.add([task(unique="k", body=b"2", on_conflict="replace")])) == [Added(uuid, fresh=False)]
    assert await look(store, uuid) == before


async def test_replace_can_change_whether_a_task_is_a_suspect(store: Store, worker: Worker) -> None:
    """The new policy may change it at the same rank."""
    await worker.heartbeat()
    (uuid, other) = await add(store, task(unique="k"), task("a", max_crashes=1))
    await add(store, task(unique="k", on_conflict="replace", max_crashes=1))
    assert await worker.runs(suspects=0) == []
    assert await worker.runs(suspects=1) == [uuid]
    await worker.settle(worker.done(uuid))
    assert await worker.runs(suspects=1) == [other]


async def test_timed_unique_key_is_held_after_the_end(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k", unique_for=1000))
    await worker.runs()
    await worker.settle(worker.done(uuid))
    clock.advance(999)
    assert list(await store.add([task(unique="k")])) == [Added(uuid, fresh=False)]
    assert list(await store.add([task(unique="k", on_conflict="replace", body=b"2")])) == [Added(uuid, fresh=False)]
    assert await state(store, uuid) == "succeeded"
    clock.advance(1)
    (added,) = await store.add([task(unique="k")])
    assert added.fresh


async def test_timed_unique_key_outlives_its_record(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k", unique_for=1000))
    await worker.runs()
    await worker.settle(worker.done(uuid, keep=0))
    assert list(await store.add([task(unique="k")])) == [Added(uuid, fresh=False)]
    clock.advance(1000)
    (added,) = await store.add([task(unique="k")])
    assert added.fresh


async def test_timed_unique_key_may_end_before_its_task(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (first,) = await add(store, task(unique="k", unique_for=1000, after=5000))
    clock.advance(1000)
    (second,) = await store.add([task(unique="k", after=4000)])
    assert second.fresh
    clock.advance(4000)
    assert await worker.runs(total=1) == [first]
    await worker.settle(worker.done(first))  # the key belongs to another task now
    assert await add(store, task(unique="k")) == [second.uuid]


async def test_replacing_policy_decides_the_time_of_the_unique_key(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k"))
    clock.advance(400)
    await add(store, task(unique="k", unique_for=1000, on_conflict="replace"))
    await worker.runs()
    await worker.settle(worker.done(uuid))
    clock.advance(599)
    assert await add(store, task(unique="k")) == [uuid]
    clock.advance(1)  # a thousand ms from the first add
    (added,) = await store.add([task(unique="k")])
    assert added.fresh
