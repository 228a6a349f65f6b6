"""After all tasks have ended, sessions are closed and retention is over, a store keeps nothing of flows.

Whatever a flow can leave is made first: counters and those that failed, waiters of several counters, wakes that no turn
has seen, signals, subscriptions, journals, and the index of the flow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import COUNTER_KEEP, NewSignal, Note, Store
from tests.contract.steps import Worker, add, member, states, task, waiting
from tests.contract.stored_flows import stored_rows

DAY = 86_400_000
KEEP = 1000
Life = Callable[[Store, Worker], Awaitable[list[str]]]


async def succeeds(store: Store, worker: Worker) -> list[str]:
    """Two members, one of them streams and has steps; a failure handler that is not needed ends with keep=0."""
    first = member("f", flow="f")
    second = member("f", "f#1", flow="f", unique="k", unique_for=KEEP)
    last = waiting(("f", 2), uuid="f", flow="f", increments=("f!",), requires="success")
    handler = waiting(("f!", 1), requires="failure")
    uuids = await add(store, first, second, last, handler)
    await store.subscribe("reader", uuids)
    assert await worker.runs() == uuids[:2]
    lease = worker.leases[first.uuid]
    await store.note([Note(lease, "step", "a#1", b"1"), Note(lease, "item", "1/0", b"[1]")])
    assert await worker.runs(outcomes=[worker.done(uuid, b"1", keep=KEEP) for uuid in uuids[:2]]) == [last.uuid]
    turn = await worker.claim(outcomes=[worker.done(last.uuid, keep=KEEP)])
    assert [record.uuid for record in turn.chores] == [handler.uuid]
    await worker.settle(worker.cancelled(handler.uuid, keep=0))
    return uuids


async def fails(store: Store, worker: Worker) -> list[str]:
    """A member fails, is revived with its callback and fails again: the last task ends as upstream."""
    child = member("f", flow="f")
    last = waiting(("f", 1), uuid="f", flow="f", requires="success")
    uuids = await add(store, child, last)
    for _ in range(2):
        assert await worker.runs() == [child.uuid]
        await worker.settle(worker.failed(child.uuid, keep=KEEP))
        assert await worker.chores() == {last.uuid: "upstream"}
        await worker.settle(worker.cancelled(last.uuid, keep=KEEP))
        await store.revive(uuids)
    assert await worker.runs() == [child.uuid]
    await worker.settle(worker.done(child.uuid, keep=0))
    assert await worker.runs() == [last.uuid]
    await worker.settle(worker.failed(last.uuid, keep=0))
    return uuids


async def is_cancelled(store: Store, worker: Worker) -> list[str]:
    """While one member runs, one waits for the first of several counters, and one was never started."""
    running = member("f", flow="f")
    later = member("f", flow="f", after=DAY, lane="@l")
    either = waiting(("x", 3), ("y", 1), increments=("f",), flow="f", timeout=DAY)
    last = waiting(("f", 3), uuid="f", flow="f")
    uuids = await add(store, running, later, either, last)
    assert await worker.runs() == [running.uuid]
    await store.subscribe(worker.name, uuids)
    taken = await worker.cancel(*uuids)
    assert sorted(taken) == sorted(set(uuids) - {running.uuid})
    await worker.settle(*(worker.cancelled(uuid, keep=KEEP) for uuid in taken))
    await worker.settle(worker.cancelled(running.uuid, keep=KEEP))
    return uuids


async def waits_for_signals(store: Store, worker: Worker) -> list[str]:
    """One task takes a signal, one times out; one signal is kept and taken by nobody."""
    taker = task()
    sleeper = task()
    uuids = await add(store, taker, sleeper)
    assert await worker.runs() == uuids
    await worker.settle(
        worker.suspended(taker.uuid, ("~s", 1), ("~t", 1)), worker.suspended(sleeper.uuid, ("~never", 1), timeout=0)
    )
    await store.signal([NewSignal("~s", "1", b"x", DAY), NewSignal("~s", "2", b"y", DAY), NewSignal("~u", "1")])
    assert sorted(await worker.runs()) == sorted(uuids)
    await worker.settle(*(worker.done(uuid, keep=KEEP) for uuid in uuids))
    return uuids


async def ends_without_a_turn(store: Store, worker: Worker) -> list[str]:
    """The last end, and a wait that was over, are in no turn with a claim request."""
    child = member("f", "g", flow="f")
    last = waiting(("f", 1), uuid="f", flow="f")
    uuids = await add(store, child, last)
    assert await worker.runs() == [child.uuid]
    await worker.settle(worker.done(child.uuid, keep=KEEP))
    assert await worker.cancel(last.uuid) == [last.uuid]
    await worker.settle(worker.cancelled(last.uuid, keep=KEEP))
    return uuids


async def dies(store: Store, worker: Worker) -> list[str]:
    """Its worker and its reader die while it runs, and it has crashed too often."""
    child = member("f", flow="f", max_crashes=1)
    last = waiting(("f", 1), uuid="f", flow="f", requires="failure")
    uuids = await add(store, child, last)
    victim = Worker(store, "victim")
    await victim.heartbeat()
    assert await victim.runs() == [child.uuid]
    await store.subscribe("victim", uuids)
    await store.note([Note(victim.leases[child.uuid], "item", "1/0", b"[1]")])
    await victim.crash()
    assert await worker.chores() == {child.uuid: "crashed"}
    assert await worker.runs(outcomes=[worker.failed(child.uuid, keep=KEEP)]) == [last.uuid]
    await worker.settle(worker.done(last.uuid, keep=KEEP))
    return uuids


LIVES = [succeeds, fails, is_cancelled, waits_for_signals, ends_without_a_turn, dies]


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
async def test_nothing_is_left_of_a_flow(store: Store, worker: Worker, clock: ManualClock, life: Life) -> None:
    await worker.heartbeat()
    uuids = await life(store, worker)
    assert stored_rows(store), "a flow leaves something at first"
    await store.close_session(worker.name)
    await store.close_session("reader")
    clock.advance(DAY + KEEP)  # members that were kept for their flow are looked at again
    await store.purge(100)
    assert await states(store, uuids) == [None] * len(uuids)
    clock.advance(COUNTER_KEEP)
    await store.purge(100)
    assert stored_rows(store) == {}


async def test_members_that_were_kept_for_their_flow_leave_nothing(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat(10 * DAY)
    child = member("f", flow="f")
    last = waiting(("f", 2), uuid="f", flow="f")
    await add(store, child, last)
    assert await worker.runs() == [child.uuid]
    await worker.settle(worker.done(child.uuid, keep=KEEP))
    clock.advance(KEEP)
    for _ in range(3):
        assert await store.purge(100) == 0
        clock.advance(DAY)
    assert await worker.cancel(last.uuid) == [last.uuid]
    await worker.settle(worker.cancelled(last.uuid, keep=KEEP))
    await store.close_session(worker.name)
    clock.advance(DAY + COUNTER_KEEP)
    assert await store.purge(100) == 2
    assert stored_rows(store) == {}
