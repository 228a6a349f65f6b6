"""bounds: no call loops without one, however many tasks a limit holds back. Not for the naive store, which does."""

from __future__ import annotations

from onthedot.stores.contract import BATCH, Store
from tests.contract.steps import Worker, add, limit, task, tasks


async def test_no_claim_walks_past_more_than_a_batch_of_a_lane_that_has_closed(store: Store, worker: Worker) -> None:
    """A key that is paused when all of its tasks are let in already: they go back behind it a batch a claim."""
    await worker.beat()
    await add(store, *tasks(BATCH, lane="a/k"))
    await add(store, *tasks(BATCH, lane="a/k"))
    (free,) = await add(store, task(lane="a/other"))
    while (await worker.claim("b")).more:
        pass
    await limit(store, "a/k", paused=True, by="operator")
    first = await worker.claim(total=1)
    assert first.tasks == []
    assert "a" not in first.rest, "there is more to look at"
    parked = (await store.tally())["a", "parked"]
    assert BATCH <= parked < 2 * BATCH
    for _ in range(3):
        if free in await worker.runs(total=1):
            break
    else:
        raise AssertionError("the other key waits for ever")
    assert (await store.tally())["a", "parked"] == 2 * BATCH
