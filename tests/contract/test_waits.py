"""A waiting task: it leaves `waiting` once, in the next turn after one of its counters has its value."""

from __future__ import annotations

from math import floor

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import BATCH, History, Store
from tests.contract.steps import Worker, add, limit, look, member, state, states, task, value, waiting

MINUTE = 60_000


async def test_new_task_waits_and_is_counted(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, waiting(("f", 1)))
    record = await look(store, uuid)
    assert (record.state, record.history) == ("waiting", History())
    assert record.wait is not None
    assert record.wait.counters == (("f", 1),)
    claim = await worker.claim()
    assert (claim.tasks, claim.idle) == ([], {"a": None})
    assert dict(await store.tally()) == {("a", "waiting"): 1}
    assert await store.position(uuid) is None


@pytest.mark.parametrize("order", ["before", "after"])
async def test_wait_ends_when_the_counter_has_its_value(store: Store, worker: Worker, order: str) -> None:
    await worker.heartbeat()
    child = member("f")
    callback = waiting(("f", 1))
    await add(store, child)
    if order == "after":
        await add(store, callback)
    assert await worker.runs() == [child.uuid]
    await worker.settle(worker.done(child.uuid))
    if order == "before":
        await add(store, callback)
    assert await state(store, callback.uuid) == "waiting"
    assert await worker.runs() == [callback.uuid]
    await worker.settle(worker.done(callback.uuid))
    assert await state(store, callback.uuid) == "succeeded"


async def test_turn_that_settles_a_link_claims_the_next(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    chain = [member("0"), *(waiting((str(n), 1), increments=(str(n + 1),)) for n in range(5))]
    await add(store, *chain)
    (uuid,) = await worker.runs()
    for link in chain[1:]:
        assert await worker.runs(outcomes=[worker.done(uuid)]) == [link.uuid]
        uuid = link.uuid


async def test_value_0_is_reached_at_once(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, waiting(("f", 0)))
    assert await state(store, uuid) == "waiting"
    assert await worker.runs() == [uuid]


@pytest.mark.parametrize("number", range(8))
async def test_first_of_eight_counters_ends_the_wait(store: Store, worker: Worker, number: int) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, waiting(*((f"f{n}", 2) for n in range(8))))
    children = [member(f"f{n}", source="b") for n in range(8)] + [member(f"f{number}", source="b")]
    await add(store, *children)
    assert len(await worker.runs("b")) == 9
    for child in children[:-1]:
        assert await worker.runs(outcomes=[worker.done(child.uuid)]) == []
    assert await worker.runs(outcomes=[worker.done(children[-1].uuid)]) == [uuid]
    for child in children:
        assert await value(store, child.links.increments[0] if child.links else "") != (0, 0)


async def test_two_counters_in_one_turn_end_the_wait_once(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    children = [member("f", source="b"), member("g", source="b")]
    (uuid,) = await add(store, waiting(("f", 1), ("g", 1)))
    await add(store, *children)
    await worker.runs("b")
    assert await worker.runs(outcomes=[worker.done(child.uuid) for child in children]) == [uuid]
    await worker.settle(worker.suspended(uuid, ("f", 2)))
    assert await worker.runs() == []


@pytest.mark.parametrize("ends", ["ok", "ok bad", "bad bad"])
@pytest.mark.parametrize("requires", ["success", "any", "failure"])
async def test_requires_is_judged_when_the_wait_is_over(store: Store, worker: Worker, requires: str, ends: str) -> None:
    await worker.heartbeat()
    children = [member("f") for _ in ends.split()]
    (callback,) = await add(store, waiting(("f", len(children)), increments=("g",), requires=requires, source="b"))
    await add(store, *children)
    await worker.runs()
    for child, end in zip(children, ends.split(), strict=True):
        await worker.settle(worker.done(child.uuid) if end == "ok" else worker.failed(child.uuid))
    is_met = requires == "any" or (requires == "failure") == ("bad" in ends)
    claim = await worker.claim("b")
    found = [record.uuid for record in (claim.tasks if is_met else claim.chores)]
    assert found == [callback]
    assert len(claim.tasks) + len(claim.chores) == 1
    if not is_met:
        assert claim.chores[0].history.reason == "upstream"
        await worker.settle(worker.cancelled(callback))
        assert await value(store, "g") == (1, 1)


async def test_chore_of_a_wait_takes_no_slot(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    child = member("f")
    callback = waiting(("f", 1), requires="success", source="unknown")
    await add(store, child, callback)
    await worker.run_to_failure(child.uuid)
    assert await worker.chores() == {callback.uuid: "upstream"}


async def test_first_reached_counter_is_judged(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    bad = member("bad", source="b")
    good = member("good", source="b")
    (uuid,) = await add(store, waiting(("good", 1), ("bad", 1), requires="success"))
    await add(store, bad, good)
    await worker.runs("b")
    assert await worker.runs(outcomes=[worker.failed(bad.uuid), worker.done(good.uuid)]) == [uuid]


async def test_due_time_after_a_wait(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    at = floor(clock.now()) + 10 * MINUTE
    child = member("f", source="b")
    soon, delayed, later = await add(
        store, waiting(("f", 1)), waiting(("f", 1), delay=MINUTE), waiting(("f", 1), delay=MINUTE, at=at)
    )
    await add(store, child)
    await worker.runs("b")
    clock.advance(MINUTE)
    assert await worker.runs(outcomes=[worker.done(child.uuid)]) == [soon]
    assert (await look(store, soon)).due == floor(clock.now())
    assert await states(store, [delayed, later]) == ["scheduled", "scheduled"]
    assert (await look(store, delayed)).due == floor(clock.now()) + MINUTE
    clock.advance(MINUTE - 1)
    assert await worker.runs() == []
    clock.advance(1)
    assert await worker.runs() == [delayed]
    clock.advance(at - clock.now())
    assert await worker.runs() == [later]


async def test_expiry_counts_from_the_end_of_the_wait(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    child = member("f", source="b")
    (uuid,) = await add(store, waiting(("f", 1), expires=1000))
    await add(store, child)
    await worker.runs("b")
    clock.advance(MINUTE)
    assert await worker.chores() == {}
    await worker.turn("none", outcomes=[worker.done(child.uuid)])
    assert await state(store, uuid) == "ready"
    clock.advance(1000)
    assert await worker.chores() == {uuid: "expired"}


async def test_order_after_a_wait_is_by_due_time_and_priority(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    child = member("f", source="b")
    low, high = await add(store, waiting(("f", 1)), waiting(("f", 1), boost=5000))
    await add(store, child)
    await worker.runs("b")
    clock.advance(MINUTE)
    (plain,) = await add(store, task())
    clock.advance(1)
    await worker.turn("none", outcomes=[worker.done(child.uuid)])
    assert await worker.runs() == [high, plain, low]


# -- timeouts


async def test_timeout_of_a_task_that_never_started_is_an_expiry(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, waiting(("f", 1), timeout=1000, increments=("g",)))
    claim = await worker.claim()
    assert claim.next_in == 1000
    clock.advance(999)
    assert await worker.chores() == {}
    clock.advance(1)
    assert await worker.chores() == {uuid: "expired"}
    await worker.settle(worker.cancelled(uuid))
    assert await value(store, "g") == (1, 1)


async def test_timeout_of_a_started_task_makes_it_due(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    await worker.settle(worker.suspended(uuid, ("f", 1), timeout=1000, delay=MINUTE, requires="failure"))
    assert (await look(store, uuid)).history.wait_until == clock.now() + 1000
    clock.advance(999)
    assert await worker.runs() == []
    clock.advance(1)
    assert await worker.runs() == [uuid]
    record = await look(store, uuid)
    assert (record.due, record.history.wait, record.history.wait_until) == (floor(clock.now()), None, None)


async def test_timeout_leaves_nothing_that_the_counter_could_end(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    child = member("f", source="b")
    (uuid,) = await add(store, task())
    await add(store, child)
    await worker.runs()
    await worker.runs("b")
    await worker.settle(worker.suspended(uuid, ("f", 1), timeout=1000))
    clock.advance(1000)
    assert await worker.runs() == [uuid]
    await worker.settle(worker.suspended(uuid, ("f", 2)))
    assert await worker.runs(outcomes=[worker.done(child.uuid)]) == []
    assert await state(store, uuid) == "waiting"


async def test_counter_comes_before_a_timeout_of_the_same_moment(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    child = member("f", source="b")
    (uuid,) = await add(store, waiting(("f", 1), timeout=1000))
    await add(store, child)
    await worker.runs("b")
    clock.advance(1000)
    assert await worker.runs(outcomes=[worker.done(child.uuid)]) == [uuid]
    assert await worker.chores() == {}


# -- cancel


async def test_waiting_task_is_cancelled_like_any_other(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    child = member("f", source="b")
    (uuid,) = await add(store, waiting(("f", 1), timeout=MINUTE, increments=("g",)))
    await add(store, child)
    await worker.runs("b")
    assert await worker.cancel(uuid) == [uuid]
    assert await worker.runs(outcomes=[worker.done(child.uuid)]) == []
    await worker.settle(worker.cancelled(uuid))
    assert await state(store, uuid) == "cancelled"
    assert await value(store, "g") == (1, 1)


async def test_chore_of_a_canceller_that_died_is_handed_out(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, waiting(("f", 1)))
    assert [record.uuid for record in (await store.cancel("gone", [uuid])).tasks] == [uuid]
    clock.advance(MINUTE)
    assert await worker.chores() == {uuid: "cancel"}


# -- suspended


async def test_suspended_task_waits_and_runs_again(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    child = member("f", source="b")
    (uuid,) = await add(store, task())
    await add(store, child)
    await worker.runs("b")
    await worker.runs()
    started = floor(clock.now())
    clock.advance(MINUTE)
    outcome = worker.suspended(uuid, ("f", 1))
    assert await worker.settle(outcome) == ["ok"]
    assert await worker.settle(outcome) == ["repeat"]
    record = await look(store, uuid)
    assert (record.state, record.history.wait, record.history.started) == ("waiting", outcome.wait, started)
    assert await worker.runs() == []
    assert await worker.runs(outcomes=[worker.done(child.uuid)]) == [uuid]
    assert await worker.settle(worker.done(uuid)) == ["ok"]


async def test_wait_for_a_counter_that_has_its_value_is_over_at_once(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    child = member("f", source="b")
    (uuid,) = await add(store, task())
    await add(store, child)
    await worker.runs("b")
    await worker.runs()
    await worker.settle(worker.done(child.uuid))
    assert await worker.runs(outcomes=[worker.suspended(uuid, ("f", 1))]) == [uuid]


async def test_children_and_wait_are_one_step(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    child = member("f", source="b")
    outcome = worker.suspended(uuid, ("f", 1), adds=[child])
    assert await worker.runs("b", outcomes=[outcome]) == [child.uuid]
    assert await worker.runs(outcomes=[worker.done(child.uuid), outcome]) == [uuid]


async def test_suspension_moves_crashes_to_earlier_attempts(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (uuid,) = await add(store, task(max_crashes=2))
    await other.runs()
    await other.settle(other.retry(uuid))
    await other.runs()
    await other.crash()
    assert await worker.runs() == [uuid]
    await worker.settle(worker.suspended(uuid, ("f", 0)))
    record = await look(store, uuid)
    assert (record.attempt, record.history.crashes, record.history.retries, record.history.earlier) == (3, 0, 1, 1)
    assert not record.is_suspect
    assert record.history.error == b"boom"


async def test_snooze_may_reset_the_crashes(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (uuid,) = await add(store, task(max_crashes=2))
    await other.runs()
    await other.crash()
    await worker.runs()
    outcome = worker.retry(uuid, error=b"", reset_crashes=True)
    await worker.settle(outcome)
    record = await look(store, uuid)
    assert (record.attempt, record.history.crashes, record.history.retries, record.history.earlier) == (3, 0, 1, 1)


async def test_suspended_task_that_is_to_be_cancelled_becomes_a_chore(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    assert await worker.cancel(uuid) == []
    await worker.settle(worker.suspended(uuid, ("f", 0)))
    assert await worker.chores() == {uuid: "cancel"}


async def test_suspended_chore_stays_a_chore(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(after=MINUTE))
    await worker.cancel(uuid)
    await worker.settle(worker.suspended(uuid, ("f", 0)))
    assert await worker.chores() == {uuid: "cancel"}


async def test_suspension_of_a_lost_lease_changes_nothing(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    await worker.crash()
    assert await other.runs() == [uuid]
    assert await worker.settle(worker.suspended(uuid, ("f", 0), adds=[task(uuid="never")])) == ["lost"]
    assert await states(store, [uuid, "never"]) == ["running", None]


async def test_waiting_task_holds_no_slot_of_its_lane_and_source(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    await limit(store, "a", cap=1)
    first, second = await add(store, task(lane="a/k"), task(lane="a/k"))
    assert await worker.runs() == [first]
    assert await worker.runs(outcomes=[worker.suspended(first, ("f", 1))]) == [second]
    (child,) = await add(store, member("f", source="b"))
    await worker.runs("b")
    assert await worker.runs(outcomes=[worker.done(child)]) == []
    assert await state(store, first) == "parked"
    assert await worker.runs(outcomes=[worker.done(second)]) == [first]


async def test_task_with_a_lane_is_admitted_after_its_wait(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    uuids = await add(store, waiting(("f", 1), lane="a/k"), waiting(("f", 1), lane="a/k"))
    (child,) = await add(store, member("f", source="b"))
    await worker.runs("b")
    assert await worker.runs(outcomes=[worker.done(child)]) == uuids[:1]
    assert await states(store, uuids) == ["running", "parked"]


# -- bounds and notifications


async def test_turn_ends_at_most_a_batch_of_waits(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await add(store, *(waiting(("f", 1)) for _ in range(BATCH)))
    await add(store, *(waiting(("f", 1)) for _ in range(10)))
    (child,) = await add(store, member("f", source="b"))
    await worker.runs("b")
    claim = await worker.claim(outcomes=[worker.done(child)], total=2000)
    assert (len(claim.tasks), claim.more) == (BATCH, True)
    claim = await worker.claim(total=2000)
    assert (len(claim.tasks), claim.more) == (10, False)


async def test_repeated_add_does_not_wait_again(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    callback = waiting(("f", 0))
    await add(store, callback)
    assert await worker.runs() == [callback.uuid]
    assert [added.fresh for added in await store.add([callback])] == [False]
    assert await state(store, callback.uuid) == "running"
    assert await worker.runs() == []


async def test_end_of_a_wait_wakes_the_source(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (child,) = await add(store, member("f", source="b"))
    await add(store, waiting(("f", 1)))
    await worker.runs("b")
    claim = await worker.claim("none", outcomes=[worker.done(child)])
    assert "a" in claim.woken
