"""settle: every way to end or to go on, and the three verdicts."""

from __future__ import annotations

from math import ceil, floor

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Completed, Lease, Store
from tests.contract.steps import Worker, add, look, state, states, task, tasks

DAY = 86_400_000


async def running(store: Store, worker: Worker, unique: str | None = None) -> str:
    """One task that this worker runs."""
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique=unique))
    assert uuid in await worker.runs()
    return uuid


async def test_done(store: Store, worker: Worker, clock: ManualClock) -> None:
    uuid = await running(store, worker)
    started = floor(clock.now())
    clock.advance(7.5)
    assert await worker.settle(worker.done(uuid, b"42", keep=DAY)) == ["ok"]
    record = await look(store, uuid)
    assert (record.state, record.history.result) == ("succeeded", b"42")
    assert (record.history.started, record.history.ended) == (started, floor(clock.now()))
    assert record.history.keep_until == floor(clock.now()) + DAY
    assert (record.history.settled_fence, record.history.session) == (worker.leases[uuid].fence, worker.name)


async def test_failed(store: Store, worker: Worker, clock: ManualClock) -> None:
    uuid = await running(store, worker)
    assert await worker.settle(worker.failed(uuid, b"ValueError", keep=DAY)) == ["ok"]
    record = await look(store, uuid)
    assert (record.state, record.history.error) == ("failed", b"ValueError")
    assert (record.history.ended, record.history.keep_until) == (floor(clock.now()), floor(clock.now()) + DAY)


async def test_cancelled(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    assert await worker.settle(worker.cancelled(uuid, b"by hand")) == ["ok"]
    record = await look(store, uuid)
    assert (record.state, record.history.error) == ("cancelled", b"by hand")


async def test_a_retry_counts(store: Store, worker: Worker, clock: ManualClock) -> None:
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


async def test_a_snooze_does_not_count(store: Store, worker: Worker, clock: ManualClock) -> None:
    uuid = await running(store, worker)
    assert await worker.settle(worker.snooze(uuid, after=1000)) == ["ok"]
    record = await look(store, uuid)
    assert (record.state, record.due, record.attempt) == ("scheduled", floor(clock.now()) + 1000, 1)
    assert record.history.retries == 0


async def test_a_release_leaves_no_trace(store: Store, worker: Worker, clock: ManualClock) -> None:
    uuid = await running(store, worker)
    due = (await look(store, uuid)).due
    clock.advance(500)
    assert await worker.settle(worker.release(uuid)) == ["ok"]
    record = await look(store, uuid)
    assert (record.state, record.due, record.attempt, record.history.started) == ("ready", due, 1, None)


async def test_a_release_after_a_retry_keeps_the_start_before(store: Store, worker: Worker, clock: ManualClock) -> None:
    uuid = await running(store, worker)
    started = floor(clock.now())
    await worker.settle(worker.retry(uuid))
    clock.advance(500)
    assert await worker.runs() == [uuid]
    await worker.settle(worker.release(uuid))
    record = await look(store, uuid)
    assert (record.history.started, record.attempt) == (started, 2)


async def test_an_error_is_the_journals_too(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    await worker.settle(worker.retry(uuid, error=b"E1"))
    await worker.runs()
    await worker.settle(worker.retry(uuid, error=b"E2"))
    notes = [note for _, note in await store.notes(uuid, 0, 10)]
    assert [(note.kind, note.name, note.data) for note in notes] == [("error", "1", b"E1"), ("error", "2", b"E2")]


async def test_again_at_once_is_claimed_in_the_same_turn(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    before = worker.leases[uuid].fence
    turn = await worker.turn(outcomes=[worker.retry(uuid)])
    assert turn.verdicts == ["ok"] or turn.verdicts == ("ok",)
    assert turn.claim is not None
    assert [(record.uuid, record.attempt) for record in turn.claim.tasks] == [(uuid, 2)]
    assert turn.claim.fence > before


async def test_keep_nothing(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    assert await worker.settle(worker.done(uuid, keep=0)) == ["ok"]
    assert list(await store.get([uuid])) == [None]
    assert await worker.settle(worker.done(uuid, keep=0)) != ["ok"]


async def test_a_repeat_says_so_and_changes_nothing(store: Store, worker: Worker, clock: ManualClock) -> None:
    uuid = await running(store, worker)
    for outcome in (worker.done(uuid, b"1"), worker.done(uuid, b"1"), worker.failed(uuid), worker.retry(uuid)):
        before = await store.get([uuid])
        verdict = await worker.settle(outcome)
        assert verdict == (["ok"] if before[0] and before[0].state == "running" else ["repeat"])
        clock.advance(10)
    record = await look(store, uuid)
    assert (record.state, record.history.result) == ("succeeded", b"1")


async def test_a_repeated_retry_is_counted_once(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    outcome = worker.retry(uuid, after=1000)
    assert await worker.settle(outcome) == ["ok"]
    before = await look(store, uuid)
    assert await worker.settle(outcome) == ["repeat"]
    assert await look(store, uuid) == before


async def test_an_old_lease_does_not_settle_a_newer_run(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    old = worker.done(uuid, b"old")
    await worker.settle(worker.retry(uuid))
    assert await worker.runs() == [uuid]
    assert await worker.settle(old) != ["ok"]
    assert await state(store, uuid) == "running"
    assert await worker.settle(worker.done(uuid, b"new")) == ["ok"]
    assert (await look(store, uuid)).history.result == b"new"
    assert await worker.settle(old) == ["lost"]


async def test_lost(store: Store, worker: Worker, other: Worker) -> None:
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


async def test_never_claimed_cannot_be_settled(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    assert (
        await worker.settle(Completed(Lease(uuid, 0, worker.name)), Completed(Lease(uuid, 1, worker.name)))
        == ["lost"] * 2
    )
    assert await state(store, uuid) == "ready"


async def test_lost_to_another_session(store: Store, worker: Worker, other: Worker) -> None:
    uuid = await running(store, worker)
    await other.heartbeat()
    await worker.crash()
    assert await other.runs() == [uuid]
    assert await worker.settle(worker.done(uuid, b"late")) == ["lost"]
    assert await other.settle(other.done(uuid, b"mine")) == ["ok"]
    assert await worker.settle(worker.done(uuid, b"late")) == ["lost"]
    assert (await look(store, uuid)).history.result == b"mine"


async def test_each_outcome_has_its_verdict_in_order(store: Store, worker: Worker) -> None:
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


async def test_what_comes_along_comes_with_the_outcome(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    child, later = task("b"), task("b", after=100)
    outcome = worker.done(uuid, adds=[child, later])
    assert await worker.settle(outcome) == ["ok"]
    assert await states(store, [child.uuid, later.uuid]) == ["ready", "scheduled"]
    assert await worker.settle(outcome) == ["repeat"]
    assert await worker.runs("b") == [child.uuid]


async def test_what_comes_along_does_not_come_when_lost(store: Store, worker: Worker, other: Worker) -> None:
    uuid = await running(store, worker)
    await other.heartbeat()
    child, second = task("b"), task("b")
    await worker.crash()
    assert await worker.settle(worker.done(uuid, adds=[child])) == ["lost"]
    assert await other.runs() == [uuid]
    await other.settle(other.done(uuid))
    assert await other.settle(other.done(uuid, adds=[second])) == ["repeat"]
    assert list(await store.get([child.uuid, second.uuid])) == [None, None]


async def test_a_retry_brings_its_children_too(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    child = task("b")
    await worker.settle(worker.retry(uuid, effects=worker.done(uuid, adds=[child]).effects))
    assert await worker.runs("a", "b") == [uuid, child.uuid]


async def test_the_next_of_its_kind_may_have_its_key(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker, unique="poll")
    following = task(unique="poll", after=1000)
    await worker.settle(worker.done(uuid, adds=[following]))
    assert await states(store, [uuid, following.uuid]) == ["succeeded", "scheduled"]


@pytest.mark.parametrize("how", ["failed", "retry", "release"])
async def test_what_the_next_outcome_is_about_is_held_until_then(store: Store, worker: Worker, how: str) -> None:
    """What an outcome adds finds it running, and so does not replace it."""
    await worker.heartbeat()
    first, second = await add(store, task(), task(unique="k", body=b"old"))
    assert await worker.runs() == [first, second]
    outcomes = {"failed": worker.failed, "retry": worker.retry, "release": worker.release}
    new = task(unique="k", body=b"new", after=1000, on_conflict="replace")
    assert await worker.settle(worker.done(first, adds=[new]), outcomes[how](second)) == ["ok", "ok"]
    record = await look(store, second)
    assert (record.state, record.body) == ("failed" if how == "failed" else "ready", b"old")
    assert await worker.runs() == ([] if how == "failed" else [second])


async def test_settling_alone_claims_and_promotes_nothing(store: Store, worker: Worker, clock: ManualClock) -> None:
    uuid = await running(store, worker)
    waiting, later = await add(store, task(), task(after=10))
    clock.advance(10)
    await worker.settle(worker.done(uuid))
    assert await states(store, [uuid, waiting, later]) == ["succeeded", "ready", "scheduled"]
