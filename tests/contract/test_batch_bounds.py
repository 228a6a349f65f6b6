"""bounds: every call is bounded, also with many blocked tasks. The naive store has no bounds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import BATCH, MAX_ADD, DeadlinePassed, Store
from tests.contract.steps import Worker, add, limit, member, names, states, task, tasks, waiting


async def test_claim_parks_at_most_a_batch_of_a_paused_lane(store: Store, worker: Worker) -> None:
    """A key is paused when all its tasks are admitted already: each claim parks a batch of them."""
    await worker.heartbeat()
    await add(store, *tasks(BATCH, lane="a/k"))
    await add(store, *tasks(BATCH, lane="a/k"))
    (free,) = await add(store, task(lane="a/other"))
    while (await worker.claim("b")).more:
        pass
    await limit(store, "a/k", paused=True, owner="operator")
    first = await worker.claim(total=1)
    assert first.tasks == []
    assert "a" not in first.idle, "the claim reports that there is more"
    parked = (await store.tally())["a", "parked"]
    assert BATCH <= parked < 2 * BATCH
    for _ in range(3):
        if free in await worker.runs(total=1):
            break
    else:
        raise AssertionError("the other key waits for ever")
    assert (await store.tally())["a", "parked"] == 2 * BATCH


async def parked(store: Store, worker: Worker, number: int, **options: Any) -> None:
    """This many parked tasks of a key with a cap of one."""
    await limit(store, "a/*", cap=1)
    for _ in range(0, number, BATCH):
        await add(store, *tasks(BATCH, lane="a/blocked", **options))
    while (await worker.claim(total=1)).more:
        pass
    assert (await store.tally())["a", "parked"] == number - 1


async def test_blocked_key_does_not_block_other_keys(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await parked(store, worker, 3 * BATCH, boost=10 * 60_000)  # they have the lower rank
    (other,) = await add(store, task(lane="a/other"))
    assert await worker.runs(total=1) == [other]


async def test_first_parked_task_starts_when_its_lane_has_capacity(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    uuids = await add(store, *tasks(BATCH, lane="a/k"))
    assert await worker.runs() == uuids[:1]
    for before, after in pairwise(uuids[:20]):
        turn = await worker.turn("a", outcomes=[worker.done(before)])
        assert turn.claim is not None
        assert names(turn.claim.tasks) == [after]


async def test_paused_source_does_not_block_other_sources(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    for _ in range(3):
        await add(store, *tasks(BATCH, "paused", boost=10 * 60_000))
    await limit(store, "paused", paused=True, reason="deploy", owner="operator")
    (other,) = await add(store, task("a"))
    claimed = await worker.claim("paused", "a", total=1)
    assert names(claimed.tasks) == [other]
    assert claimed.idle == {"paused": None, "a": None}, "it is idle until it is resumed"
    assert claimed.next_in is None or claimed.next_in > 1000


async def test_many_lanes_are_refilled_in_batches(store: Store, worker: Worker, clock: ManualClock) -> None:
    """One task per key, one per second and key: after a second each claim admits a batch."""
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


async def test_empty_lanes_are_purged_and_return_with_their_tokens(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    """They return with the same number of tokens."""
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


async def test_ten_thousand_tasks_that_wait_for_one_counter_all_run_once(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    added: list[str] = []
    for _ in range(10):
        added += await add(store, *(waiting(("f", 1)) for _ in range(1000)))
    (child,) = await add(store, member("f", source="b"))
    await worker.runs("b")
    claim = await worker.claim(outcomes=[worker.done(child)], total=2000)
    ran = [each.uuid for each in claim.tasks]
    while claim.tasks:
        assert len(claim.tasks) <= BATCH
        claim = await worker.claim(outcomes=[worker.done(each.uuid) for each in claim.tasks], total=2000)
        ran += [each.uuid for each in claim.tasks]
    assert sorted(ran) == sorted(added)
    assert await states(store, added[::1000]) == ["succeeded"] * 10


async def test_largest_add_is_stored_in_one_step_and_each_of_its_tasks_runs_once(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    number = MAX_ADD - 1
    flow = [*(member("f") for _ in range(number)), waiting(("f", number), source="b")]
    with pytest.raises(DeadlinePassed):
        await store.add(flow, clock.now() - 1)
    assert await store.tally() == {}
    added = await add(store, *flow)
    assert all(not each.fresh for each in await store.add(flow))
    ran: list[str] = []
    claim = await worker.claim("a", "b", total=2000)
    while claim.tasks:
        ran += [each.uuid for each in claim.tasks]
        claim = await worker.claim("a", "b", outcomes=[worker.done(each.uuid) for each in claim.tasks], total=2000)
    assert sorted(ran[:number]) == sorted(added[:number])
    assert ran[number:] == added[number:]
