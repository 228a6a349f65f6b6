"""settle: every outcome, and the three verdicts."""

from __future__ import annotations

from math import ceil, floor

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Completed, Lease, Store
from tests.contract.steps import Worker, add, look, state, states, task, tasks

DAY = 86_400_000


async def running(store: Store, worker: Worker, unique: str | None = None) -> str:
    """The uuid of a task that this worker runs."""
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique=unique))
    assert uuid in await worker.runs()
    return uuid


async def test_completed_task_has_a_result(store: Store, worker: Worker, clock: ManualClock) -> None:
    uuid = await running(store, worker)
    started = floor(clock.now())
    clock.advance(7.5)
    assert await worker.settle(worker.done(uuid, b"42", keep=DAY)) == ["ok"]
    record = await look(store, uuid)
    assert (record.state, record.history.result) == ("succeeded", b"42")
    assert (record.history.started, record.history.ended) == (started, floor(clock.now()))
    assert record.history.keep_until == floor(clock.now()) + DAY
    assert (record.history.settled_fence, record.history.session) == (worker.leases[uuid].fence, worker.name)


async def test_ended_task_is_failed_with_an_error(store: Store, worker: Worker, clock: ManualClock) -> None:
    uuid = await running(store, worker)
    assert await worker.settle(worker.failed(uuid, b"ValueError", keep=DAY)) == ["ok"]
    record = await look(store, uuid)
    assert (record.state, record.history.error) == ("failed", b"ValueError")
    assert (record.history.ended, record.history.keep_until) == (floor(clock.now()), floor(clock.now()) + DAY)


async def test_ended_task_is_cancelled_with_an_error(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    assert await worker.settle(worker.cancelled(uuid, b"by hand")) == ["ok"]
    record = await look(store, uuid)
    assert (record.state, record.history.error) == ("cancelled", b"by hand")


async def test_retry_is_counted(store: Store, worker: Worker, clock: ManualClock) -> None:
    uuid = await running(store, worker)
    started = floor(clock.now())
    clock.advance(2.5)
    assert await worker.settle(worker.retry(uuid, after=1000, error=b"E1")) == ["ok"]
    record = await look(store, uuid)
    assert (record.state, record.due) == ("scheduled", ceil(clock.now() + 1000))
    assert (record.history.retries, record.attempt, record.history.error) == (1, 2, b"E1")
    assert record.history.started == started
    clock.advance(1000)
    assert await worker.runs() == []
    clock.advance(0.5)
    assert await worker.runs() == [uuid]


async def test_snooze_is_not_counted(store: Store, worker: Worker, clock: ManualClock) -> None:
    uuid = await running(store, worker)
    assert await worker.settle(worker.snooze(uuid, after=1000)) == ["ok"]
    record = await look(store, uuid)
    assert (record.state, record.due, record.attempt) == ("scheduled", floor(clock.now()) + 1000, 1)
    assert record.history.retries == 0


async def test_release_leaves_the_record_unchanged(store: Store, worker: Worker, clock: ManualClock) -> None:
    uuid = await running(store, worker)
    due = (await look(store, uuid)).due
    clock.advance(500)
    assert await worker.settle(worker.release(uuid)) == ["ok"]
    record = await look(store, uuid)
    assert (record.state, record.due, record.attempt, record.history.started) == ("ready", due, 1, None)


async def test_release_after_a_retry_keeps_the_last_start(store: Store, worker: Worker, clock: ManualClock) -> None:
    uuid = await running(store, worker)
    started = floor(clock.now())
    await worker.settle(worker.retry(uuid))
    clock.advance(500)
    assert await worker.runs() == [uuid]
    await worker.settle(worker.release(uuid))
    record = await look(store, uuid)
    assert (record.history.started, record.attempt) == (started, 2)


async def test_error_of_a_retry_is_noted_in_the_journal(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    await worker.settle(worker.retry(uuid, error=b"E1"))
    await worker.runs()
    await worker.settle(worker.retry(uuid, error=b"E2"))
    notes = [note for _, note in await store.notes(uuid, 0, 10)]
    assert [(note.kind, note.name, note.data) for note in notes] == [("error", "1", b"E1"), ("error", "2", b"E2")]


async def test_task_requeued_for_now_is_claimed_in_the_same_turn(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    before = worker.leases[uuid].fence
    turn = await worker.turn(outcomes=[worker.retry(uuid)])
    assert turn.verdicts == ["ok"] or turn.verdicts == ("ok",)
    assert turn.claim is not None
    assert [(record.uuid, record.attempt) for record in turn.claim.tasks] == [(uuid, 2)]
    assert turn.claim.fence > before


async def test_task_with_keep_zero_is_dropped_at_its_end(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    assert await worker.settle(worker.done(uuid, keep=0)) == ["ok"]
    assert list(await store.get([uuid])) == [None]
    assert await worker.settle(worker.done(uuid, keep=0)) != ["ok"]


async def test_repeated_settle_returns_repeat_and_changes_nothing(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    uuid = await running(store, worker)
    for outcome in (worker.done(uuid, b"1"), worker.done(uuid, b"1"), worker.failed(uuid), worker.retry(uuid)):
        before = await store.get([uuid])
        verdict = await worker.settle(outcome)
        assert verdict == (["ok"] if before[0] and before[0].state == "running" else ["repeat"])
        clock.advance(10)
    record = await look(store, uuid)
    assert (record.state, record.history.result) == ("succeeded", b"1")


async def test_repeated_retry_is_counted_once(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    outcome = worker.retry(uuid, after=1000)
    assert await worker.settle(outcome) == ["ok"]
    before = await look(store, uuid)
    assert await worker.settle(outcome) == ["repeat"]
    assert await look(store, uuid) == before


async def test_old_lease_does_not_settle_a_newer_run(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    old = worker.done(uuid, b"old")
    await worker.settle(worker.retry(uuid))
    assert await worker.runs() == [uuid]
    assert await worker.settle(old) != ["ok"]
    assert await state(store, uuid) == "running"
    assert await worker.settle(worker.done(uuid, b"new")) == ["ok"]
    assert (await look(store, uuid)).history.result == b"new"
    assert await worker.settle(old) == ["lost"]


async def test_settle_of_an_unknown_lease_is_lost(store: Store, worker: Worker, other: Worker) -> None:
    uuid = await running(store, worker)
    await other.heartbeat()
    lease = worker.leases[uuid]
    strangers = [
        Completed(Lease("nobody", lease.fence, worker.name)),
        Completed(Lease(uuid, lease.fence + 1, worker.name)),
        Completed(Lease(uuid, 0, worker.name)),
        Completed(Lease(uuid, lease.fence, other.name)),
    ]
    assert await worker.settle(*strangers) == ["lost"] * 4
    assert await state(store, uuid) == "running"


async def test_unclaimed_task_cannot_be_settled(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    assert (
        await worker.settle(Completed(Lease(uuid, 0, worker.name)), Completed(Lease(uuid, 1, worker.name)))
        == ["lost"] * 2
    )
    assert await state(store, uuid) == "ready"


async def test_lease_of_another_session_is_lost(store: Store, worker: Worker, other: Worker) -> None:
    uuid = await running(store, worker)
    await other.heartbeat()
    await worker.crash()
    assert await other.runs() == [uuid]
    assert await worker.settle(worker.done(uuid, b"late")) == ["lost"]
    assert await other.settle(other.done(uuid, b"mine")) == ["ok"]
    assert await worker.settle(worker.done(uuid, b"late")) == ["lost"]
    assert (await look(store, uuid)).history.result == b"mine"


async def test_verdicts_have_the_order_of_outcomes(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    first, second, third = await add(store, *tasks(3))
    await worker.runs()
    await worker.settle(worker.done(second))
    verdicts = await worker.settle(
        worker.failed(first),
        worker.done(second),
        Completed(Lease(third, 0, "x")),
        worker.done(third),
        worker.retry(third),
    )
    assert verdicts == ["ok", "repeat", "lost", "ok", "repeat"]
    assert await states(store, [first, second, third]) == ["failed", "succeeded", "succeeded"]


async def test_effects_are_added_with_the_outcome(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    child = task("b")
    later = task("b", after=100)
    outcome = worker.done(uuid, adds=[child, later])
    assert await worker.settle(outcome) == ["ok"]
    assert await states(store, [child.uuid, later.uuid]) == ["ready", "scheduled"]
    assert await worker.settle(outcome) == ["repeat"]
    assert await worker.runs("b") == [child.uuid]


async def test_effects_of_a_lost_outcome_are_not_added(store: Store, worker: Worker, other: Worker) -> None:
    uuid = await running(store, worker)
    await other.heartbeat()
    child = task("b")
    second = task("b")
    await worker.crash()
    assert await worker.settle(worker.done(uuid, adds=[child])) == ["lost"]
    assert await other.runs() == [uuid]
    await other.settle(other.done(uuid))
    assert await other.settle(other.done(uuid, adds=[second])) == ["repeat"]
    assert list(await store.get([child.uuid, second.uuid])) == [None, None]


async def test_retry_adds_its_effects(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    child = task("b")
    await worker.settle(worker.retry(uuid, effects=worker.done(uuid, adds=[child]).effects))
    assert await worker.runs("a", "b") == [uuid, child.uuid]


async def test_effect_may_take_the_unique_key_of_the_ended_task(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker, unique="poll")
    following = task(unique="poll", after=1000)
    await worker.settle(worker.done(uuid, adds=[following]))
    assert await states(store, [uuid, following.uuid]) == ["succeeded", "scheduled"]


@pytest.mark.parametrize("how", ["failed", "retry", "release"])
async def test_effect_does_not_replace_a_task_that_a_later_outcome_settles(
    store: Store, worker: Worker, how: str
) -> None:
    """The effect finds the task running, so it does not replace it."""
    await worker.heartbeat()
    first, second = await add(store, task(), task(unique="k", body=b"old"))
    assert await worker.runs() == [first, second]
    outcomes = {"failed": worker.failed, "retry": worker.retry, "release": worker.release}
    new = task(unique="k", body=b"new", after=1000, on_conflict="replace")
    assert await worker.settle(worker.done(first, adds=[new]), outcomes[how](second)) == ["ok", "ok"]
    record = await look(store, second)
    assert (record.state, record.body) == ("failed" if how == "failed" else "ready", b"old")
    assert await worker.runs() == ([] if how == "failed" else [second])


async def test_turn_without_a_request_claims_and_promotes_nothing(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    uuid = await running(store, worker)
    waiting, later = await add(store, task(), task(after=10))
    clock.advance(10)
    await worker.settle(worker.done(uuid))
    assert await states(store, [uuid, waiting, later]) == ["succeeded", "ready", "scheduled"]
