"""purge: drops tasks after their retention time, then the oldest above the maximum; never live tasks."""

from __future__ import annotations

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Store
from tests.contract.steps import Worker, add, states, task, tasks


async def ended(store: Store, worker: Worker, clock: ManualClock, *keeps: int) -> list[str]:
    """The uuids of tasks that ended one after the other, a millisecond apart."""
    await worker.heartbeat()
    uuids = await add(store, *tasks(len(keeps)))
    await worker.runs()
    for uuid, keep in zip(uuids, keeps, strict=True):
        assert await worker.settle(worker.done(uuid, keep=keep)) == ["ok"]
        clock.advance(1)
    return uuids


async def left(store: Store, uuids: list[str]) -> list[str]:
    return [uuid for uuid, state in zip(uuids, await states(store, uuids), strict=True) if state]


async def test_purge_drops_nothing_before_its_retention_time(store: Store, worker: Worker, clock: ManualClock) -> None:
    uuids = await ended(store, worker, clock, 1000)
    clock.advance(998)
    assert await store.purge(10) == 0
    clock.advance(1)
    assert await store.purge(10) == 1
    assert await left(store, uuids) == []


async def test_purge_drops_tasks_in_the_order_of_their_retention_times(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    first, second, third = await ended(store, worker, clock, 3000, 1000, 2000)
    clock.advance(10_000)
    assert await store.purge(1) == 1
    assert await left(store, [first, second, third]) == [first, third]
    assert await store.purge(1) == 1
    assert await left(store, [first, second, third]) == [first]
    assert await store.purge(5) == 1
    assert await store.purge(5) == 0


async def test_purge_drops_the_oldest_ends_above_the_maximum(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    uuids = await add(store, *tasks(4))
    await worker.runs()
    for uuid in reversed(uuids):
        await worker.settle(worker.failed(uuid))
        clock.advance(1)
    assert await store.purge(10, 3) == 1
    assert await left(store, uuids) == uuids[:3]
    assert await store.purge(1, 0) == 1
    assert await left(store, uuids) == uuids[:2]


async def test_purge_obeys_its_limit(store: Store, worker: Worker, clock: ManualClock) -> None:
    uuids = await ended(store, worker, clock, *[1000] * 5)
    clock.advance(10_000)
    assert await store.purge(3, 0) == 3
    assert await left(store, uuids) == uuids[3:]
    assert await store.purge(0) == 0


async def test_purge_keeps_live_tasks(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    running, ready, later = await add(store, task(), task("b"), task(after=1_000_000))
    await worker.runs()
    clock.advance(10_000)
    assert await store.purge(100, 0) == 0
    assert await states(store, [running, ready, later]) == ["running", "ready", "scheduled"]


async def test_purged_uuid_can_be_added_again(store: Store, worker: Worker, clock: ManualClock) -> None:
    (uuid,) = await ended(store, worker, clock, 1000)
    await store.purge(10, 0)
    (added,) = await store.add([task(uuid=uuid)])
    assert added.fresh
    assert await worker.settle(worker.done(uuid)) == ["lost"]
    assert await worker.runs() == [uuid]


async def test_task_that_ended_twice_in_a_millisecond_is_purged_once(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    twice, once = await add(store, *tasks(2))
    await worker.runs()
    await worker.settle(worker.failed(twice))
    await store.revive([twice])
    assert await worker.runs() == [twice]
    await worker.settle(worker.failed(twice))
    await worker.settle(worker.failed(once))
    assert await store.purge(100, 0) == 2
    assert await states(store, [twice, once]) == [None, None]
    assert not any((await store.tally()).values())
