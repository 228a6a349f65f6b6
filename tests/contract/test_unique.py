"""unique: one live task a key of a source; keep the first, or let the second take its place."""

from __future__ import annotations

from math import floor

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Added, Store
from tests.contract.steps import Worker, add, limit, look, state, states, task


async def test_keep(store: Store) -> None:
    first, second = task(unique="k", body=b"1"), task(unique="k", body=b"2", after=1000)
    await store.add([first])
    assert list(await store.add([second])) == [Added(first.uuid, fresh=False)]
    assert (await look(store, first.uuid)).body == b"1"
    assert list(await store.get([second.uuid])) == [None]


async def test_in_one_call(store: Store) -> None:
    first, second = task(unique="k"), task(unique="k")
    assert list(await store.add([first, second])) == [Added(first.uuid, fresh=True), Added(first.uuid, fresh=False)]


async def test_the_scope_is_the_source(store: Store) -> None:
    answers = await store.add([task("a", unique="k"), task("b", unique="k"), task("a", unique="l"), task("a")])
    assert [added.fresh for added in answers] == [True] * 4


async def test_whatever_it_is_doing(store: Store, worker: Worker) -> None:
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
async def test_the_end_frees_the_key(store: Store, worker: Worker, how: str, keep: int) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k"))
    await worker.runs()
    await worker.settle(getattr(worker, how)(uuid, keep=keep))
    (added,) = await store.add([task(unique="k")])
    assert added.fresh


async def test_a_chores_end_frees_the_key(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k", after=1000))
    await worker.cancel(uuid)
    await worker.settle(worker.cancelled(uuid))
    (added,) = await store.add([task(unique="k")])
    assert added.fresh


async def test_replace_what_waits(store: Store, worker: Worker, clock: ManualClock) -> None:
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


async def test_replace_what_is_ready_by_later(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k"))
    await add(store, task(unique="k", after=100, on_conflict="replace"))
    assert await state(store, uuid) == "scheduled"
    assert await worker.runs() == []
    clock.advance(100)
    assert await worker.runs() == [uuid]


async def test_replace_what_is_later_by_now(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k", after=100))
    await add(store, task(unique="k", on_conflict="replace"))
    assert await worker.runs() == [uuid]


async def test_replace_keeps_what_has_happened(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k"))
    await worker.runs()
    outcome = worker.retry(uuid, after=1000)
    await worker.settle(outcome)
    history = (await look(store, uuid)).history
    await add(store, task(unique="k", after=2000, on_conflict="replace"))
    assert (await look(store, uuid)).history == history
    assert await worker.settle(outcome) == ["repeat"]


async def test_replace_frees_its_place_in_the_lane(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    first, second = await add(store, task(unique="k", lane="a/k"), task(lane="a/k"))
    await worker.claim("b")
    assert await states(store, [first, second]) == ["ready", "parked"]
    await add(store, task(unique="k", lane="a/k", after=1000, on_conflict="replace"))
    assert await worker.runs() == [second]


async def test_what_runs_is_not_replaced(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k", body=b"1"))
    await worker.runs()
    before = await look(store, uuid)
    assert list(await store.add([task(unique="k", body=b"2", on_conflict="replace")])) == [Added(uuid, fresh=False)]
    assert await look(store, uuid) == before


async def test_a_changed_suspicion_holds(store: Store, worker: Worker) -> None:
    """The new policy may make a suspect of it, or none, at the same place in the order."""
    await worker.heartbeat()
    (uuid, other) = await add(store, task(unique="k"), task("a", max_crashes=1))
    await add(store, task(unique="k", on_conflict="replace", max_crashes=1))
    assert await worker.runs(suspects=0) == []
    assert await worker.runs(suspects=1) == [uuid]
    await worker.settle(worker.done(uuid))
    assert await worker.runs(suspects=1) == [other]


async def test_a_key_for_a_time_is_held_after_the_end(store: Store, worker: Worker, clock: ManualClock) -> None:
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


async def test_a_key_for_a_time_outlives_its_record(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k", unique_for=1000))
    await worker.runs()
    await worker.settle(worker.done(uuid, keep=0))
    assert list(await store.add([task(unique="k")])) == [Added(uuid, fresh=False)]
    clock.advance(1000)
    (added,) = await store.add([task(unique="k")])
    assert added.fresh


async def test_a_key_for_a_time_is_free_while_its_task_lives(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (first,) = await add(store, task(unique="k", unique_for=1000, after=5000))
    clock.advance(1000)
    (second,) = await store.add([task(unique="k", after=4000)])
    assert second.fresh
    clock.advance(4000)
    assert await worker.runs(total=1) == [first]
    await worker.settle(worker.done(first))  # not its key any more
    assert await add(store, task(unique="k")) == [second.uuid]


async def test_the_replacing_policy_says_how_long(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k"))
    clock.advance(400)
    await add(store, task(unique="k", unique_for=1000, on_conflict="replace"))
    await worker.runs()
    await worker.settle(worker.done(uuid))
    clock.advance(599)
    assert await add(store, task(unique="k")) == [uuid]
    clock.advance(1)  # a thousand from its adding, which was the first
    (added,) = await store.add([task(unique="k")])
    assert added.fresh
