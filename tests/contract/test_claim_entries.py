"""Entries of claims are deleted with their last task, so a store does not grow with what was claimed."""

from __future__ import annotations

import pytest

from onthedot.stores.contract import Store
from tests.contract.steps import Worker, add, tasks
from tests.contract.stored_claims import count_claims
from tests.faults import scaled


async def test_no_claim_is_left_of_a_client_that_cancels(store: Store, worker: Worker) -> None:
    """The client sends no heartbeat and no claim request."""
    uuids = await add(store, *tasks(30))
    for uuid in uuids:
        assert await worker.cancel(uuid) == [uuid]
        assert await worker.settle(worker.cancelled(uuid)) == ["ok"]
    assert await count_claims(store) == 0


@pytest.mark.long
async def test_no_claim_is_left_of_thousands_of_cancels(store: Store, worker: Worker) -> None:
    for _ in range(scaled(2, 60)):
        uuids = await add(store, *tasks(100))
        for uuid in uuids:
            assert await worker.cancel(uuid) == [uuid]
            assert await worker.settle(worker.cancelled(uuid)) == ["ok"]
    assert await count_claims(store) == 0


async def test_a_claim_remains_until_its_last_chore_is_settled(store: Store, worker: Worker) -> None:
    first, second = await add(store, *tasks(2))
    assert await worker.cancel(first, second) == [first, second]
    assert await worker.settle(worker.cancelled(first)) == ["ok"]
    assert await count_claims(store) == 1
    assert await worker.settle(worker.cancelled(second), worker.cancelled(first)) == ["ok", "repeat"]
    assert await count_claims(store) == 0


async def test_no_claim_is_left_of_a_worker_that_settles_chores(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    uuids = await add(store, *tasks(3))
    await store.cancel("someone else", uuids)
    await store.close_session("someone else")
    assert list(await worker.chores()) == uuids
    await worker.claim(outcomes=[worker.cancelled(uuid) for uuid in uuids])
    assert await count_claims(store) == 0
