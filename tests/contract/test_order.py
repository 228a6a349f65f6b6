"""Order: by (rank = due − boost, seq) over all requested sources; no task before its due time."""

from __future__ import annotations

from math import floor

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.definitions.new_task import AGING
from onthedot.stores.contract import BATCH, SlotPool, Store
from tests.contract.steps import Worker, add, look, states, task, tasks


async def test_older_due_times_are_claimed_first(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    now = floor(clock.now())
    late, early = await add(store, task(at=now - 1), task(at=now - 2))
    assert await worker.runs() == [early, late]


async def test_equal_due_times_are_claimed_in_the_order_of_adding(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    uuids = await add(store, *tasks(20, at=floor(clock.now())))
    assert await worker.runs() == uuids


async def test_boosted_task_is_claimed_first_and_ages(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    now = floor(clock.now())
    old, plain, boosted = await add(store, task(at=now - 6000), task(at=now), task(at=now, boost=5000))
    assert await worker.runs() == [old, boosted, plain]


@pytest.mark.parametrize("priority", [1, 4, 9])
async def test_each_priority_level_waits_one_minute_longer(
    store: Store, worker: Worker, clock: ManualClock, priority: int
) -> None:
    """There is always a new task of priority 10; no task starts early, and none waits longer than this."""
    await worker.heartbeat()
    step = 20_000
    waited = 0
    (low,) = await add(store, task(boost=priority * AGING))
    while True:
        await add(store, task(boost=10 * AGING))
        (uuid,) = await worker.runs(total=1)
        await worker.settle(worker.done(uuid, keep=0))
        if uuid == low:
            break
        clock.advance(step)
        waited += step
    assert (10 - priority) * AGING - step <= waited <= (10 - priority) * AGING


async def test_equal_ranks_are_claimed_in_the_order_of_adding(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    now = floor(clock.now())
    uuids = await add(store, task(at=now, boost=500), task(at=now - 500), task(at=now - 100, boost=400))
    assert await worker.runs() == uuids


async def test_claim_has_one_order_over_all_requested_sources(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    uuids = await add(store, task("b"), task("a"), task("c"), task("a"), task("b"))
    assert await worker.runs("a", "b", "c") == uuids


async def test_claim_takes_only_requested_sources(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    _, mine = await add(store, task("b"), task("a"))
    assert await worker.runs("a") == [mine]


async def test_claim_obeys_the_capacity_of_a_source_and_the_total(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    a1, a2, a3, b1, b2, b3 = await add(store, *tasks(3, "a"), *tasks(3, "b"))
    assert await worker.runs(room={"a": 1, "b": 2}, total=10) == [a1, b1, b2]
    assert await worker.runs(room={"a": 9, "b": 9}, total=2) == [a2, a3]
    assert await worker.runs(room={"a": 9, "b": 0}, total=2) == []
    assert await worker.runs("b") == [b3]


async def test_pools_are_served_in_order(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    b1, a1, c1, a2, _ = await add(store, task("b"), task("a"), task("c"), task("a"), task("a"))
    pools = [SlotPool(2, {"a": 5, "c": 5}), SlotPool(5, {"b": 5})]
    assert await worker.runs(pools=pools) == [a1, c1, b1]
    assert await worker.runs(pools=[SlotPool(1, {"a": 1})]) == [a2]


async def test_no_task_is_claimed_before_its_due_time(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    clock.advance(0.5)
    (uuid,) = await add(store, task(after=10))  # due at the next whole millisecond
    clock.advance(10.25)
    assert await worker.runs() == []
    clock.advance(0.25)
    assert await worker.runs() == [uuid]


async def test_claim_without_slots_promotes_due_tasks(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    uuids = await add(store, task("a", after=10), task("b", after=10), task("c", after=11))
    clock.advance(10)
    assert await worker.runs(total=0) == []
    assert await states(store, uuids) == ["ready", "ready", "scheduled"]


async def test_promotion_is_bounded_and_in_the_order_of_alarms(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    now = floor(clock.now())
    first = await add(store, *tasks(BATCH - 1, at=now + 2))
    last, earliest = await add(store, task(at=now + 2), task(at=now + 1))
    clock.advance(2)
    assert (await worker.claim(total=0)).more
    assert set(await states(store, [*first, earliest])) == {"ready"}
    assert await states(store, [last]) == ["scheduled"]
    assert not (await worker.claim(total=0)).more
    assert await states(store, [last]) == ["ready"]


async def test_retried_task_has_a_new_rank(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    first, second = await add(store, *tasks(2))
    await worker.runs(total=1)
    clock.advance(1)
    await worker.settle(worker.retry(first))
    assert await worker.runs() == [second, first]


async def test_released_task_keeps_its_rank(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    first, second = await add(store, *tasks(2))
    due = (await look(store, first)).due
    await worker.runs(total=1)
    clock.advance(1000)
    await worker.settle(worker.release(first))
    assert (await look(store, first)).due == due
    assert await worker.runs() == [first, second]


async def test_reaped_task_keeps_its_rank(store: Store, worker: Worker, other: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    first, second = await add(store, *tasks(2))
    assert await other.runs(total=1) == [first]
    clock.advance(1000)
    await other.crash()
    assert await worker.runs() == [first, second]
