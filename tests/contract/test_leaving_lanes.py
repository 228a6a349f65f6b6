"""A task that leaves its lane admits the next one; a task that is not in it (scheduled, chore, lifted) admits none.

Capacity that time alone has released is used by the next turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Store
from tests.contract.steps import Worker, add, limit, state, states, task, tasks

Way = Callable[[Store, str], Awaitable[object]]
OUT: dict[str, Way] = {
    "cancel": lambda store, uuid: store.cancel("client", [uuid]),
    "lift": lambda store, uuid: store.lift("client", [uuid]),
    "replace": lambda store, uuid: store.add([task(unique=uuid, lane="a/k", after=500, on_conflict="replace")]),
}
ways = pytest.mark.parametrize("way", list(OUT))


async def one_waits(store: Store, worker: Worker) -> str:
    """The uuid of a parked task whose lane has capacity again in a second."""
    await limit(store, "a/k", rate=1.0, burst=1)
    first, second = await add(store, task(lane="a/k"), task(lane="a/k"))
    assert await worker.runs() == [first]
    assert await state(store, second) == "parked"
    return second


@ways
async def test_scheduled_task_that_leaves_admits_no_other(
    store: Store, worker: Worker, clock: ManualClock, way: str
) -> None:
    await worker.heartbeat()
    (later,) = await add(store, task("a", "u", unique="u", lane="a/k", after=5000))
    parked = await one_waits(store, worker)
    clock.advance(1000)
    await OUT[way](store, later)
    assert await state(store, parked) == "parked"
    assert await worker.runs() == [parked]


@pytest.mark.parametrize("place", ["ready", "parked"])
@pytest.mark.parametrize("way", ["cancel", "lift"])
async def test_lifted_task_that_leaves_admits_no_other(
    store: Store, worker: Worker, clock: ManualClock, way: str, place: str
) -> None:
    await worker.heartbeat()
    await limit(store, "a/k", cap=0 if place == "parked" else 1)
    (lifted,) = await add(store, task(lane="a/k"))
    await worker.claim("b")
    assert await state(store, lifted) == place
    await store.lift("mover", [lifted])
    await store.close_session("mover")
    parked = await one_waits(store, worker)
    clock.advance(1000)
    await OUT[way](store, lifted)
    assert await states(store, [lifted, parked]) == [place, "parked"]
    assert await worker.runs() == [parked]


async def test_chore_that_ends_admits_no_other(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    parked = await one_waits(store, worker)
    (doomed,) = await add(store, task(lane="a/k"))
    await worker.claim("b")
    await store.cancel("client", [doomed])
    await store.close_session("client")
    clock.advance(1000)
    (leased,) = (await store.cancel("another", [doomed])).tasks
    assert (leased.uuid, leased.state) == (doomed, "parked")
    assert await state(store, parked) == "parked"
    assert await worker.runs() == [parked]


@ways
async def test_ready_task_that_leaves_admits_the_next(store: Store, worker: Worker, way: str) -> None:
    await worker.heartbeat()
    await limit(store, "a/k", cap=1)
    first, second = await add(store, task("a", "u", unique="u", lane="a/k"), task(lane="a/k"))
    await worker.claim("b")
    assert await states(store, [first, second]) == ["ready", "parked"]
    await OUT[way](store, first)
    assert await state(store, second) == "ready"


@ways
async def test_parked_task_that_leaves_admits_a_cheaper_one(
    store: Store, worker: Worker, clock: ManualClock, way: str
) -> None:
    await worker.heartbeat()
    await limit(store, "a/k", rate=1.0, burst=2)
    dear = task("a", "u", unique="u", lane="a/k", cost=2)
    first, second, third = await add(store, task(lane="a/k", cost=2), dear, task(lane="a/k"))
    assert await worker.runs() == [first]
    assert await states(store, [second, third]) == ["parked", "parked"]
    clock.advance(1000)
    await OUT[way](store, second)
    assert await state(store, third) == "ready"


async def test_task_that_is_parked_again_leaves_its_tokens_to_cheaper_ones(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    """It was admitted before there was a rate; the next turn admits the first parked task that can start."""
    await worker.heartbeat()
    dear, cheap = await add(store, task(lane="a/k", cost=2), task("b", lane="a/k", boost=1000))
    await worker.claim("c")
    await limit(store, "a/k", rate=1.0, burst=2)
    assert await worker.runs("b") == [cheap]
    assert await worker.settle(worker.retry(cheap)) == ["ok"]
    assert await states(store, [dear, cheap]) == ["ready", "parked"]
    assert await worker.runs("a", "b") == []
    assert await state(store, dear) == "parked"
    assert await worker.runs("a", "b") == [cheap]
    clock.advance(2000)
    assert await worker.runs("a", "b") == [dear]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_outcomes_of_one_lane_are_settled_in_order(
    store: Store, worker: Worker, clock: ManualClock, order: tuple[int, int]
) -> None:
    """The first one that is released takes the tokens, whatever its rank."""
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=4)
    uuids = await add(store, *tasks(2, lane="a/k", cost=2))
    assert await worker.runs() == uuids
    clock.advance(2000)
    assert await worker.settle(*(worker.release(uuids[each]) for each in order)) == ["ok", "ok"]
    assert await states(store, [uuids[each] for each in order]) == ["ready", "parked"]


async def test_many_outcomes_of_one_lane_admit_as_many_tasks(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=5)
    uuids = await add(store, *tasks(9, lane="a/k"))
    assert await worker.runs() == uuids[:5]
    outcomes = [worker.done(uuids[0]), worker.retry(uuids[1], after=1000), *(worker.done(uuid) for uuid in uuids[2:4])]
    assert await worker.settle(*outcomes) == ["ok"] * 4
    assert await states(store, uuids[4:]) == ["running", *["ready"] * 4]
