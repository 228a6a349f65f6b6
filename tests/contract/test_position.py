"""position: the blockers of a pending task and the tasks ahead, by the rules of the claim, without side effects."""

from __future__ import annotations

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Blocker, Limit, Position, Store
from tests.contract.steps import Worker, add, limit, names, state, states, task, tasks


async def position_of(store: Store, uuid: str) -> Position:
    position = await store.position(uuid)
    assert position is not None, f"{uuid} does not wait"
    return position


async def holds(store: Store, uuid: str) -> list[tuple[str, str, int]]:
    """Name, reason and number of running tasks of each blocker."""
    return [(hold.limit.name, hold.reason, hold.running) for hold in (await position_of(store, uuid)).blockers]


async def only_hold(store: Store, uuid: str) -> Blocker:
    (hold,) = (await position_of(store, uuid)).blockers
    return hold


async def ahead(store: Store, *uuids: str) -> list[int]:
    return [(await position_of(store, uuid)).ahead for uuid in uuids]


async def test_task_without_limits_has_no_blockers(store: Store) -> None:
    (uuid,) = await add(store, task())
    position = await position_of(store, uuid)
    assert (list(position.blockers), position.ahead) == ([], 0)


async def test_running_ended_and_unknown_tasks_have_no_position(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    assert await store.position("nobody") is None
    (uuid,) = await add(store, task())
    assert await worker.runs() == [uuid]
    assert await store.position(uuid) is None
    await worker.settle(worker.failed(uuid))
    assert await store.position(uuid) is None
    await store.revive([uuid])
    assert await ahead(store, uuid) == [0]


async def test_chore_has_no_position(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    expired, cancelled = await add(store, *tasks(2, expires=10))
    await worker.cancel(cancelled)
    assert await store.position(cancelled) is None
    clock.advance(10)
    assert await worker.chores() == {expired: "expired"}
    assert await store.position(expired) is None


# -- tasks ahead


async def test_ready_tasks_of_its_source_with_a_lower_rank_are_ahead(store: Store) -> None:
    first, second, boosted, _ = await add(store, *tasks(2), task(boost=5000), task("b"))
    assert await ahead(store, boosted, first, second) == [0, 1, 2]


async def test_suspects_are_counted_as_ahead(store: Store) -> None:
    suspect, plain, last = await add(store, task(max_crashes=1), task(), task(max_crashes=1))
    assert await ahead(store, suspect, plain, last) == [0, 1, 2]


async def test_running_tasks_are_not_ahead(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    uuids = await add(store, *tasks(5))
    assert await worker.runs(total=3) == uuids[:3]
    assert await ahead(store, *uuids[3:]) == [0, 1]
    await worker.settle(worker.release(uuids[0]))
    assert await ahead(store, uuids[0], *uuids[3:]) == [0, 1, 2]


async def test_ready_tasks_are_ahead_of_a_scheduled_one(store: Store, clock: ManualClock) -> None:
    first, later, boosted = await add(store, task(), task(after=1000), task(after=1000, boost=5000))
    assert await ahead(store, first, later, boosted) == [0, 1, 0]


async def test_parked_tasks_of_its_lane_are_ahead_of_a_parked_one(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "@api", cap=1)
    runs, *parked = await add(store, *tasks(3, lane="@api"), task("b", lane="@api"), *tasks(2, lane="a/free"))
    assert await worker.runs(total=1) == [runs]
    assert await states(store, parked) == ["parked", "parked", "parked", "ready", "ready"]
    assert await ahead(store, *parked) == [0, 1, 2, 0, 1]


async def test_requeued_task_is_counted_once(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    first, *rest = await add(store, *tasks(4, lane="a/k"))
    for _ in range(3):  # admitted and released
        assert await worker.runs() == [first]
        await worker.settle(worker.release(first))
    assert await worker.runs() == [first]
    assert await ahead(store, *rest) == [0, 1, 2]


async def test_number_ahead_is_exact_for_many_tasks(store: Store) -> None:
    await store.add(tasks(1000, boost=1))
    await store.add(tasks(1000))
    (last,) = await add(store, task())
    (boosted,) = await add(store, task(boost=1))
    assert await ahead(store, last, boosted) == [2001, 1000]


# -- blockers


async def test_pause_is_a_blocker(store: Store) -> None:
    (uuid,) = await add(store, task())
    await limit(store, "a", paused=True, owner="operator", reason="deploy")
    hold = await only_hold(store, uuid)
    assert (hold.reason, hold.limit.paused, hold.limit.reason, hold.opens_in) == ("paused", True, "deploy", None)
    await limit(store, "a", owner="operator")
    assert await holds(store, uuid) == []


async def test_source_cap_is_a_blocker(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a", cap=2)
    first, _, third = await add(store, *tasks(3))
    assert await holds(store, third) == []  # two are ahead, but none runs
    assert len(await worker.runs()) == 2
    assert await holds(store, third) == [("a", "cap", 2)]
    await limit(store, "a", cap=3)
    assert await holds(store, third) == []
    await limit(store, "a", cap=1)
    await worker.settle(worker.done(first))
    assert await holds(store, third) == [("a", "cap", 1)]


async def test_blocker_has_the_effective_limit(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=5, rate=1.0, burst=3, owner="code")
    await limit(store, "a/*", cap=2, owner="operator")
    await limit(store, "a/k", paused=True, reason="quiet", owner="operator")
    (uuid,) = await add(store, task(lane="a/k"))
    found = (await only_hold(store, uuid)).limit
    assert found == Limit("a/k", 2, 1.0, 3, True, "quiet", owner=found.owner)


async def test_source_rate_is_a_blocker(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a", rate=2.0, burst=2)
    *running, uuid = await add(store, *tasks(3))
    assert await holds(store, uuid) == []
    assert await worker.runs() == running
    hold = await only_hold(store, uuid)
    assert (hold.reason, hold.running, hold.opens_in) == ("rate", 2, pytest.approx(500))
    clock.advance(499)
    assert (await only_hold(store, uuid)).opens_in == pytest.approx(1)
    clock.advance(1)
    assert await holds(store, uuid) == []
    assert await worker.runs() == [uuid]


async def test_lane_cap_is_a_blocker(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    first, second, other = await add(store, *tasks(2, lane="a/k"), task(lane="a/l"))
    assert await worker.runs(total=1) == [first]
    assert await holds(store, second) == [("a/k", "cap", 1)]
    assert await holds(store, other) == []
    await worker.settle(worker.done(first))
    assert await holds(store, second) == []


async def test_admitted_tasks_count_for_the_lane_cap(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    first, second = await add(store, *tasks(2, lane="a/k"))
    await worker.claim("b")
    assert await states(store, [first, second]) == ["ready", "parked"]
    assert await holds(store, first) == []
    assert await holds(store, second) == [("a/k", "cap", 0)]
    await worker.cancel(first)
    assert await holds(store, second) == []


async def test_lane_rate_is_a_blocker(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=2)
    *running, cheap, dear = await add(store, *tasks(3, lane="a/k"), task(lane="a/k", cost=2))
    assert await worker.runs() == running
    clock.advance(250)
    assert [(await only_hold(store, uuid)).opens_in for uuid in (cheap, dear)] == pytest.approx([750, 1750])
    clock.advance(750)
    assert await holds(store, cheap) == []
    assert (await only_hold(store, dear)).opens_in == pytest.approx(1000)


async def test_reserved_tokens_do_not_open_a_lane(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=2)
    _, second, dear = await add(store, *tasks(2, lane="a/k"), task(lane="a/k", cost=2))
    await worker.claim("b")
    assert await states(store, [second, dear]) == ["ready", "parked"]
    hold = await only_hold(store, dear)
    assert (hold.reason, hold.opens_in) == ("rate", None)


async def test_cost_above_the_burst_is_blocked_until_the_bucket_is_full(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=2)
    first, dear = await add(store, task(lane="a/k", cost=2), task(lane="a/k", cost=3))
    assert await worker.runs() == [first]
    hold = await only_hold(store, dear)
    assert (hold.reason, hold.opens_in) == ("rate", pytest.approx(2000))
    clock.advance(2000)
    assert await holds(store, dear) == []
    assert await worker.runs() == [dear]


async def test_blockers_list_the_source_before_the_lane(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a", cap=1)
    await limit(store, "a/*", cap=1)
    first, second = await add(store, *tasks(2, lane="a/k"))
    assert await worker.runs() == [first]
    assert await holds(store, second) == [("a", "cap", 1), ("a/k", "cap", 1)]


async def test_position_of_a_scheduled_task_is_computed_as_if_due(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    first, later = await add(store, task(lane="a/k"), task(lane="a/k", after=1000))
    assert await holds(store, later) == []
    assert await worker.runs() == [first]
    assert await holds(store, later) == [("a/k", "cap", 1)]


async def test_ready_task_of_a_full_lane_is_blocked(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(lane="a/k"))
    await worker.claim("b")
    assert await state(store, uuid) == "ready"
    await limit(store, "a/k", paused=True)
    assert await holds(store, uuid) == [("a/k", "paused", 0)]
    assert await worker.runs() == []


async def test_looking_changes_nothing(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a", rate=1.0, burst=1)
    await limit(store, "b/*", cap=1, rate=1.0, burst=1)
    uuids = await add(store, *tasks(2), *tasks(2, "b", lane="b/k"))
    first, second, third, fourth = uuids
    await worker.claim("c")
    before = await states(store, uuids)
    tally = await store.tally()
    for _ in range(3):
        for uuid in uuids:
            await position_of(store, uuid)
    assert (await states(store, uuids), await store.tally()) == (before, tally)
    assert names((await worker.claim("a", "b")).tasks) == [first, third]
    for step in (300, 300, 399):  # the reads have changed no time
        clock.advance(step)
        assert [hold.opens_in is None for hold in (await position_of(store, fourth)).blockers] == [True]
        assert len((await position_of(store, second)).blockers) == 1
        assert await worker.runs("a", "b") == []
    clock.advance(1)
    await worker.settle(worker.done(third))
    assert await worker.runs("a", "b") == [second, fourth]


async def test_rate_that_comes_after_the_admission_names_the_time_of_the_tokens(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/1", rate=1.0, burst=2)
    await add(store, task(lane="a/1", cost=2))
    assert len(await worker.runs()) == 1  # the bucket is empty
    await limit(store, "a/1", cap=5)  # no rate: the next one is admitted at once
    (uuid,) = await add(store, task(lane="a/1", cost=2))
    await worker.claim("other")  # promotes it
    await limit(store, "a/1", rate=1.0, burst=2)
    blocker = await only_hold(store, uuid)
    assert blocker.reason == "rate"
    assert blocker.opens_in == pytest.approx(2000, abs=1)
