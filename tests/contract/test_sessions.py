"""sessions: the presence of a process; its tasks are requeued when it dies."""

from __future__ import annotations

from math import floor

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Lease, Store
from tests.contract.steps import Worker, add, look, state, states, task, tasks


async def test_session_without_a_heartbeat_claims_nothing(store: Store, worker: Worker) -> None:
    (uuid,) = await add(store, task())
    turn = await worker.turn()
    assert (turn.alive, turn.claim) == (False, None)
    assert await state(store, uuid) == "ready"


async def test_first_heartbeat_opens_the_session(store: Store, worker: Worker) -> None:
    assert (await worker.heartbeat()).alive
    assert (await worker.turn()).alive
    assert (await worker.heartbeat()).alive


async def test_sessions_with_a_heartbeat_are_listed(store: Store, worker: Worker, other: Worker) -> None:
    await store.heartbeat("w1", b"one", 1000)
    await store.heartbeat("w2", b"two", 1000)
    await store.heartbeat("w1", b"one!", 1000)
    assert dict(await store.sessions()) == {"w1": b"one!", "w2": b"two"}
    await worker.crash()
    await store.close_session("w2")
    assert dict(await store.sessions()) == {}


async def test_session_after_its_lease_is_not_listed(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat(5000)
    (uuid,) = await add(store, task())
    assert await worker.runs() == [uuid]
    clock.advance(4999)
    assert list(await store.sessions()) == ["w1"]
    clock.advance(1)
    assert dict(await store.sessions()) == {}
    assert await state(store, uuid) == "running"  # until it is reaped
    assert not (await worker.turn()).alive


async def test_session_after_its_lease_is_reaped_by_the_next_claim(
    store: Store, worker: Worker, other: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat(5000)
    await other.heartbeat()
    (uuid,) = await add(store, task())
    assert await worker.runs() == [uuid]
    started = floor(clock.now())
    clock.advance(4999.5)
    assert await other.runs() == []
    clock.advance(0.5)
    claimed = await other.claim()
    (record,) = claimed.tasks
    assert (record.uuid, record.attempt, record.history.crashes, record.history.reason) == (uuid, 2, 1, "crash")
    assert claimed.fence > worker.leases[uuid].fence
    assert record.history.started is not None
    assert record.history.started >= started


async def test_heartbeat_extends_the_lease_from_now(
    store: Store, worker: Worker, other: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat(5000)
    await other.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    for _ in range(4):
        clock.advance(4999)
        assert (await worker.heartbeat(5000)).alive
        assert await other.runs() == []
    clock.advance(5000)
    assert await other.runs() == [uuid]


async def test_dead_session_stays_dead(store: Store, worker: Worker, other: Worker, clock: ManualClock) -> None:
    await worker.heartbeat(5000)
    await other.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    clock.advance(5000)
    await other.claim(total=0)
    assert not (await worker.heartbeat()).alive
    turn = await worker.turn(outcomes=[worker.done(uuid)])
    assert (turn.alive, turn.claim, list(turn.verdicts)) == (False, None, ["lost"])
    assert not (await worker.heartbeat()).alive
    assert await other.runs() == [uuid]


async def test_turn_without_a_request_reports_a_dead_session(store: Store, worker: Worker) -> None:
    assert not (await store.turn(worker.name, [], None)).alive
    await worker.heartbeat()
    assert (await store.turn(worker.name, [], None)).alive
    await worker.crash()
    assert not (await store.turn(worker.name, [], None)).alive


async def test_late_heartbeat_finds_its_session_dead(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat(5000)
    (uuid,) = await add(store, task())
    await worker.runs()
    clock.advance(5000)
    turn = await worker.turn()
    assert (turn.alive, turn.claim) == (False, None)
    assert await state(store, uuid) == "ready"


async def test_task_that_was_not_claimed_again_can_be_settled_late(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat(5000)
    (uuid,) = await add(store, task())
    await worker.runs()
    clock.advance(9000)
    assert await worker.settle(worker.done(uuid)) == ["ok"]


async def test_crashed_session_is_reaped_at_once(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    uuids = await add(store, *tasks(2))
    await worker.runs()
    await worker.crash()
    assert await states(store, uuids) == ["ready", "ready"]
    assert [record.history.crashes for record in (await other.claim()).tasks] == [1, 1]
    assert not (await worker.heartbeat()).alive


async def test_crash_can_be_reported_twice(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    await worker.crash()
    await worker.crash()
    assert (await look(store, uuid)).history.crashes == 1


async def test_close_session_requeues_without_counting(
    store: Store, worker: Worker, other: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    first, second = await add(store, *tasks(2))
    due = (await look(store, first)).due
    await worker.runs()
    clock.advance(100)
    await store.close_session(worker.name)
    record = await look(store, first)
    assert (record.state, record.attempt, record.due, record.history.started) == ("ready", 1, due, None)
    assert (await worker.turn()).alive is False
    assert await other.runs() == [first, second]
    await store.close_session(worker.name)
    assert await worker.settle(worker.done(first)) == ["lost"]


async def test_close_of_an_unknown_session_changes_nothing(store: Store) -> None:
    await store.close_session("nobody")


async def test_last_crash_makes_a_chore(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(max_crashes=3))
    for number in range(1, 4):
        victim = Worker(store, f"v{number}")
        await victim.heartbeat()
        (record,) = (await victim.claim()).tasks
        assert (record.attempt, record.is_suspect) == (number, number == 3)
        await victim.crash()
    assert await worker.chores() == {uuid: "crashed"}
    assert (await look(store, uuid)).history.crashes == 3
    assert await worker.settle(worker.failed(uuid)) == ["ok"]
    assert await state(store, uuid) == "failed"


async def test_crash_is_counted_for_the_suspect_alone(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    poison, first, second = await add(store, task(max_crashes=1), *tasks(2))
    assert await worker.runs() == [poison, first, second]
    await worker.crash()
    records = [await look(store, uuid) for uuid in (first, second)]
    assert [(record.state, record.attempt, record.history.crashes) for record in records] == [("ready", 1, 0)] * 2
    claimed = await other.claim()
    assert [(record.uuid, record.history.reason) for record in claimed.chores] == [(poison, "crashed")]
    assert [record.uuid for record in claimed.tasks] == [first, second]


async def test_session_runs_a_limited_number_of_suspects(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    first, plain, second = await add(store, task(max_crashes=1), task(), task(max_crashes=1))
    assert await worker.runs(suspects=1) == [first, plain]
    assert await worker.runs(suspects=1) == []
    assert await state(store, second) == "ready"
    assert await other.runs(suspects=0) == []
    assert await other.runs(suspects=1) == [second]
    await other.settle(other.release(second))
    await worker.settle(worker.done(first))
    assert await worker.runs(suspects=1) == [second]


async def test_new_task_can_be_a_suspect(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    first, second = await add(store, *tasks(2, max_crashes=1))
    assert await worker.runs(suspects=1) == [first]
    assert await state(store, second) == "ready"


async def test_chores_of_a_dead_session_are_requeued_without_counting(
    store: Store, worker: Worker, other: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    expired, run = await add(store, task("b", expires=10), task())
    clock.advance(10)
    claimed = await worker.claim()
    assert ([r.uuid for r in claimed.chores], [r.uuid for r in claimed.tasks]) == ([expired], [run])
    await worker.crash()
    assert await other.chores() == {expired: "expired"}
    assert [(await look(store, uuid)).history.crashes for uuid in (expired, run)] == [0, 1]


async def test_chores_of_a_closed_session_are_requeued(
    store: Store, worker: Worker, other: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (expired,) = await add(store, task(expires=10))
    clock.advance(10)
    await worker.chores()
    await store.close_session(worker.name)
    assert await worker.settle(worker.cancelled(expired)) == ["lost"]
    assert await other.chores() == {expired: "expired"}


async def test_heartbeat_returns_cancel_requests(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    mine, quiet, theirs = await add(store, task(), task(), task("b"))
    await worker.runs("a")
    await other.runs("b")
    await store.cancel("client", [mine, theirs])
    assert list((await worker.heartbeat()).cancel_requests) == [worker.leases[mine]]
    assert list((await worker.heartbeat()).cancel_requests) == [worker.leases[mine]]
    assert list((await other.heartbeat()).cancel_requests) == [other.leases[theirs]]
    await worker.settle(worker.cancelled(mine))
    assert list((await worker.heartbeat()).cancel_requests) == []
    assert await state(store, quiet) == "running"
    assert isinstance(worker.leases[quiet], Lease)


async def test_two_deaths_count_two_crashes(store: Store, clock: ManualClock) -> None:
    (uuid,) = await add(store, task(max_crashes=10))
    for number in range(1, 4):
        victim = Worker(store, f"v{number}")
        await victim.heartbeat(1000)
        assert await victim.runs() == [uuid]
        clock.advance(1000)
    last = Worker(store, "last")
    await last.heartbeat()
    (record,) = (await last.claim()).tasks
    assert (record.history.crashes, record.attempt) == (3, 4)
