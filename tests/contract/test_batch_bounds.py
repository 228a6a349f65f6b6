"""bounds: no call loops without one, however many tasks a limit holds back. Not for the naive store, which does."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import BATCH, Store
from tests.contract.steps import Worker, add, limit, names, task, tasks


async def test_no_claim_walks_past_more_than_a_batch_of_a_lane_that_has_closed(store: Store, worker: Worker) -> None:
    """A key that is paused when all of its tasks are let in already: they go back behind it a batch a claim."""
    await worker.heartbeat()
    await add(store, *tasks(BATCH, lane="a/k"))
    await add(store, *tasks(BATCH, lane="a/k"))
    (free,) = await add(store, task(lane="a/other"))
    while (await worker.claim("b")).more:
        pass
    await limit(store, "a/k", paused=True, owner="operator")
    first = await worker.claim(total=1)
    assert first.tasks == []
    assert "a" not in first.idle, "there is more to look at"
    parked = (await store.tally())["a", "parked"]
    assert BATCH <= parked < 2 * BATCH
    for _ in range(3):
        if free in await worker.runs(total=1):
            break
    else:
        raise AssertionError("the other key waits for ever")
    assert (await store.tally())["a", "parked"] == 2 * BATCH


async def parked(store: Store, worker: Worker, number: int, **options: Any) -> None:
    """So many of a key that may run one at a time, and does."""
    await limit(store, "a/*", cap=1)
    for _ in range(0, number, BATCH):
        await add(store, *tasks(BATCH, lane="a/blocked", **options))
    while (await worker.claim(total=1)).more:
        pass
    assert (await store.tally())["a", "parked"] == number - 1


async def test_a_key_that_is_held_back_holds_up_no_other(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await parked(store, worker, 3 * BATCH, boost=10 * 60_000)  # they would be first, too
    (other,) = await add(store, task(lane="a/other"))
    assert await worker.runs(total=1) == [other]


async def test_the_first_of_a_key_goes_on_when_its_lane_opens(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    uuids = await add(store, *tasks(BATCH, lane="a/k"))
    assert await worker.runs() == uuids[:1]
    for before, after in pairwise(uuids[:20]):
        turn = await worker.turn("a", outcomes=[worker.done(before)])
        assert turn.claim is not None
        assert names(turn.claim.tasks) == [after]


async def test_a_paused_source_holds_up_no_other(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    for _ in range(3):
        await add(store, *tasks(BATCH, "paused", boost=10 * 60_000))
    await limit(store, "paused", paused=True, reason="deploy", owner="operator")
    (other,) = await add(store, task("a"))
    claimed = await worker.claim("paused", "a", total=1)
    assert names(claimed.tasks) == [other]
    assert claimed.idle == {"paused": None, "a": None}, "nobody asks for it again before somebody resumes it"
    assert claimed.next_in is None or claimed.next_in > 1000


async def test_many_lanes_fill_up_at_once(store: Store, worker: Worker, clock: ManualClock) -> None:
    """A key each, one a second each: all are let in when their second is over, a batch a claim."""
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=1)
    first = await add(store, *(task(lane=f"a/{key}") for key in range(BATCH)))
    second = await add(store, *(task(lane=f"a/{key}") for key in range(BATCH)))
    running: list[str] = []
    while more := await worker.runs():
        running += more
    assert sorted(running) == sorted(first)
    clock.advance(999)
    assert await worker.runs() == []
    clock.advance(1)
    running = []
    while more := await worker.runs():
        running += more
    assert sorted(running) == sorted(second)


async def test_lanes_that_are_over_are_forgotten(store: Store, worker: Worker, clock: ManualClock) -> None:
    """They come back as they were: those with tokens left full, the others not."""
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=2)
    await limit(store, "b/*", cap=1)
    keys = range(30)
    for _ in range(2):
        uuids = await add(
            store, *(task("a", lane=f"a/{key}") for key in keys), *(task("b", lane=f"b/{key}") for key in keys)
        )
        assert len(await worker.runs("a", "b")) == 60
        await worker.settle(*(worker.done(uuid, keep=0) for uuid in uuids))
        await store.purge(10)
    await add(store, *(task("a", lane=f"a/{key}") for key in keys))
    assert await worker.runs() == []
    clock.advance(1000)
    assert len(await worker.runs()) == 30
