"""claim: a repeated request returns the tasks that still run under it, and nothing new."""

from __future__ import annotations

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import DeadlinePassed, Store
from tests.contract.steps import Worker, add, limit, look, names, state, states, task, tasks


async def test_repeated_request_returns_the_same_tasks(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await add(store, *tasks(3))
    first = await worker.claim(total=2)
    again = await worker.claim(total=2, repeat=True)
    assert again.fence == first.fence
    assert names(again.tasks) == names(first.tasks)
    assert [record.attempt for record in again.tasks] == [1, 1]


async def test_repeated_request_leaves_out_settled_tasks(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    first, second = await add(store, *tasks(2))
    fence = (await worker.claim()).fence
    await worker.settle(worker.done(first))
    again = await worker.claim(repeat=True)
    assert (again.fence, names(again.tasks)) == (fence, [second])


async def test_repeated_request_leaves_out_tasks_of_a_later_claim(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    first, second = await add(store, *tasks(2))
    await worker.claim(total=1)
    again = await worker.turn(outcomes=[worker.retry(first)], total=1, repeat=True)
    assert again.claim is not None
    assert names(again.claim.tasks) == []
    assert await worker.runs() == [first, second]


async def test_repeated_request_claims_nothing_new(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (first,) = await add(store, task())
    assert await worker.runs() == [first]
    (second,) = await add(store, task())
    assert await worker.runs(repeat=True) == [first]
    assert await state(store, second) == "ready"
    assert await worker.runs() == [second]


async def test_repeat_of_an_empty_claim_is_empty(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    empty = await worker.claim()
    assert (empty.fence, list(empty.tasks), list(empty.chores)) == (0, [], [])
    (uuid,) = await add(store, task())
    assert await worker.runs(repeat=True) == []
    assert await worker.runs() == [uuid]


async def test_request_numbers_belong_to_a_session(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    first, second = await add(store, *tasks(2))
    assert await worker.runs(total=1) == [first]
    assert await other.runs(total=1) == [second]
    assert await worker.runs(repeat=True) == [first]
    assert await other.runs(repeat=True) == [second]


async def test_fences_grow_over_all_sessions(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    await add(store, *tasks(6))
    fences = [(await who.claim(total=1)).fence for who in (worker, other, other, worker)]
    (uuid,) = await add(store, task(after=1000))
    await worker.cancel(uuid)
    fences += [worker.leases[uuid].fence, (await other.claim(total=1)).fence]
    assert fences == sorted(set(fences))
    assert fences[0] > 0


async def test_claim_has_one_fence(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    expired, _ = await add(store, task("b", expires=10), task("a"))
    clock.advance(10)
    claimed = await worker.claim()
    assert names(claimed.chores) == [expired]
    assert await worker.settle(*(worker.done(uuid) for uuid in worker.leases)) == ["ok", "ok"]
    assert len({lease.fence for lease in worker.leases.values()}) == 1


async def test_repeated_request_returns_chores(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    first, second = await add(store, *tasks(2, expires=10))
    clock.advance(10)
    assert await worker.chores() == {first: "expired", second: "expired"}
    await worker.settle(worker.cancelled(first))
    assert await worker.chores(repeat=True) == {second: "expired"}


async def test_repeated_request_promotes_and_reaps(
    store: Store, worker: Worker, other: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    await other.heartbeat(5000)
    crashed, later = await add(store, task(), task(after=5000))
    assert await other.runs() == [crashed]
    assert await worker.runs() == []
    clock.advance(5000)
    assert await worker.runs(repeat=True) == []
    assert await states(store, [crashed, later]) == ["ready", "ready"]


async def test_turn_can_be_repeated(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    first, second = await add(store, *tasks(2))
    await worker.claim(total=1)
    outcome = worker.done(first, b"1")
    turn = await worker.turn(outcomes=[outcome])
    again = await worker.turn(outcomes=[outcome], repeat=True)
    assert (list(turn.verdicts), list(again.verdicts)) == (["ok"], ["repeat"])
    assert turn.claim is not None
    assert again.claim is not None
    assert names(turn.claim.tasks) == names(again.claim.tasks) == [second]
    assert turn.claim.fence == again.claim.fence


async def test_leased_task_is_not_claimed_by_another_session(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (uuid,) = await add(store, task())
    assert await worker.runs() == [uuid]
    assert await other.runs() == []
    assert (await look(store, uuid)).history.session == worker.name


async def test_claim_request_with_an_older_number_takes_nothing(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    first, second = await add(store, *tasks(2))
    assert await worker.runs(total=1) == [first]
    assert await worker.runs(total=0) == []
    late = await worker.claim(number=1)
    assert (late.fence, list(late.tasks), list(late.chores), late.more) == (0, [], [], True)
    assert await states(store, [first, second]) == ["running", "ready"]


async def test_late_request_takes_nothing_after_its_claim_was_settled(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    first, second = await add(store, *tasks(2))
    assert await worker.runs(total=1) == [first]
    turn = await worker.turn(outcomes=[worker.done(first)], total=0)
    assert list(turn.verdicts) == ["ok"]
    assert await worker.runs(number=1) == []
    assert await state(store, second) == "ready"


async def test_late_request_takes_nothing_after_requests_that_took_nothing(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    assert await worker.runs() == []
    assert await worker.runs() == []
    assert await worker.runs() == []
    (uuid,) = await add(store, task())
    assert await worker.runs(number=2) == []
    assert await worker.runs() == [uuid]


async def test_outcomes_of_a_late_request_are_settled(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    first, second = await add(store, *tasks(2))
    assert await worker.runs() == [first, second]
    await worker.turn(outcomes=[worker.done(second)], total=0)
    late = await worker.turn(outcomes=[worker.done(first)], number=1)
    assert list(late.verdicts) == ["ok"]


async def test_gap_in_the_numbers_returns_the_leases_of_the_session(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    """The store went back to an older state: it has lost the requests in between, and their outcomes."""
    await worker.heartbeat()
    chore, first, second, third, waiting = await add(store, task("b", expires=10), *tasks(4))
    clock.advance(10)
    before = await worker.claim(total=2)
    assert (names(before.chores), names(before.tasks)) == ([chore], [first, second])
    assert await worker.runs(total=1) == [third]
    await worker.settle(worker.done(second))
    late = worker.done(first)
    renewed = await worker.claim(total=1, lost=2)
    assert (names(renewed.chores), sorted(names(renewed.tasks))) == ([chore], sorted([first, third]))
    assert renewed.more
    assert renewed.fence > before.fence
    assert await worker.settle(late) == ["lost"]
    again = await worker.claim(total=1, repeat=True)
    assert (again.fence, names(again.tasks)) == (renewed.fence, names(renewed.tasks))
    assert await worker.settle(worker.done(first), worker.done(third), worker.cancelled(chore)) == ["ok"] * 3
    assert await worker.runs() == [waiting]


async def test_refused_call_does_not_make_a_gap_in_the_numbers(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    """Requests that took nothing are known, too: otherwise tasks whose outcome is under way would run again."""
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    assert await worker.runs() == [uuid]
    assert await worker.runs() == []
    deadline = clock.now()
    clock.advance(1)
    with pytest.raises(DeadlinePassed):
        await store.add([task()], deadline)
    assert await worker.runs() == []
    assert await worker.settle(worker.done(uuid)) == ["ok"]


async def test_gap_in_the_numbers_without_leases_claims(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    first, second = await add(store, *tasks(2))
    assert await other.runs(total=1) == [first]
    claimed = await worker.claim(lost=2)
    assert (names(claimed.tasks), claimed.more) == ([second], True)
    assert await other.settle(other.done(first)) == ["ok"]


async def test_renewed_leases_keep_counts_and_lanes(store: Store, worker: Worker, other: Worker) -> None:
    await limit(store, "one", cap=1)
    await worker.heartbeat()
    await other.heartbeat()
    first, second = await add(store, *tasks(2, lane="one"))
    assert await worker.runs() == [first]
    assert await worker.runs(lost=1) == [first]
    assert await other.runs() == []
    tally = await store.tally()
    assert (tally["a", "running"], tally["a", "parked"]) == (1, 1)
    assert await worker.settle(worker.done(first)) == ["ok"]
    assert await other.runs() == [second]


async def test_session_that_dies_after_its_leases_were_renewed_is_reaped(
    store: Store, worker: Worker, other: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat(5000)
    await other.heartbeat()
    (uuid,) = await add(store, task())
    assert await worker.runs() == [uuid]
    assert await worker.runs(lost=2) == [uuid]
    clock.advance(5000)
    assert await other.runs() == [uuid]
    assert (await look(store, uuid)).history.crashes == 1
