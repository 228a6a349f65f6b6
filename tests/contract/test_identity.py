"""The identity of a store: lost data is detected by it."""

from __future__ import annotations

from onthedot.stores.contract import Store, StoreIdentity
from tests.contract.steps import Worker, add, task


async def identity(worker: Worker) -> StoreIdentity:
    found = (await worker.claim()).identity
    assert found is not None
    return found


async def test_identity_is_the_same_for_all_sessions(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    first = await identity(worker)
    assert first.id
    assert (await identity(other)).id == first.id
    await add(store, task())
    assert (await identity(worker)).id == first.id


async def test_identity_has_the_last_fence_of_all_sessions(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    await add(store, task())
    taken = await worker.claim()
    assert taken.identity is not None
    assert taken.identity.last_fence == taken.fence > 0
    assert (await identity(other)).last_fence == taken.fence


async def test_cancel_raises_the_last_fence(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    before = await identity(worker)
    (uuid,) = await add(store, task(after=1000))
    await worker.cancel(uuid)
    after = await identity(worker)
    assert after.last_fence == worker.leases[uuid].fence > before.last_fence
