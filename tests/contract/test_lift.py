"""lift, adopt: a task leaves the order of one store and enters that of another; it is in one order at most."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import CLIENT_LEASE, Ended, History, Lease, Record, Requeued, Store
from tests.contract.steps import Worker, add, limit, look, names, state, states, task


class Mover(Worker):
    async def lift(self, *uuids: str) -> list[str]:
        leased = await self.store.lift(self.name, uuids)
        for record in leased.tasks:
            self.leases[record.uuid] = Lease(record.uuid, leased.fence, self.name)
        assert (leased.fence > 0) == bool(leased.tasks)
        return names(leased.tasks)

    def moved(self, uuid: str) -> Ended:
        return Ended(self.leases[uuid], "cancelled", b"moved")


@pytest.fixture
def mover(store: Store) -> Mover:
    return Mover(store, "m1")


def elsewhere(uuid: str = "x1", clock: ManualClock | None = None, **fields: object) -> Record:
    """The record of another store."""
    new = task("a", uuid, b"body", boost=3, max_crashes=5)
    history = History(
        "crash", retries=2, crashes=1, earlier=4, settled_fence=77, session="there", started=5, error=b"e", revives=2
    )
    record = Record(uuid, "a", b"body", new.policy, None, None, 1_000, 9, 900, "ready", history)
    return replace(record, **fields)


# -- lifting


async def test_pending_tasks_are_lifted_and_leased(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    await limit(store, "a/k", cap=0)
    ready, later, laned = await add(store, task(), task(after=1000), task(lane="a/k"))
    await worker.claim("b")
    leased = await store.lift(mover.name, [ready, later, laned, ready, "nobody"])
    assert names(leased.tasks) == [ready, later, laned]
    assert [(record.history.reason, record.history.cancel_requested) for record in leased.tasks] == [
        ("lifted", False)
    ] * 3
    assert await states(store, [ready, later, laned]) == ["ready", "scheduled", "parked"]
    assert mover.name not in (await store.sessions()), "a mover is not listed as a worker"


async def test_running_ended_leased_tasks_and_chores_are_not_lifted(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    runs, cancelled, ended, others = await add(store, task("b"), task(), task("c"), task(after=9))
    await worker.run_to_failure(ended, "c")
    assert await worker.runs("b") == [runs]
    assert await worker.cancel(cancelled) == [cancelled]
    assert await Mover(store, "m2").lift(others) == [others]
    before = list(await store.get([runs, cancelled, ended, others]))
    assert await mover.lift(runs, cancelled, ended, others) == []
    assert list(await store.get([runs, cancelled, ended, others])) == before
    assert await worker.settle(worker.done(runs)) == ["ok"], "the cancel has not reached it"


async def test_lifted_task_neither_starts_nor_expires(
    store: Store, worker: Worker, mover: Mover, clock: ManualClock
) -> None:
    await worker.heartbeat()
    uuids = await add(store, task(expires=10), task(after=5), task(after=5, expires=10))
    assert await mover.lift(*uuids) == uuids
    claimed = await worker.claim()
    assert (list(claimed.tasks), list(claimed.chores), claimed.next_in) == ([], [], CLIENT_LEASE)
    clock.advance(100)
    assert (await worker.runs(), await worker.chores()) == ([], {})


async def test_lifted_task_ends_like_any_other(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k"))
    await mover.lift(uuid)
    assert await add(store, task(unique="k")) == [uuid], "it holds its unique key"
    assert await mover.settle(mover.moved(uuid)) == ["ok"]
    assert await mover.settle(mover.moved(uuid)) == ["repeat"]
    record = await look(store, uuid)
    assert (record.state, record.history.error, record.history.started) == ("cancelled", b"moved", None)
    assert await add(store, task("a", "new", unique="k")) == ["new"], "its end releases the unique key"


@pytest.mark.parametrize("how", ["death", "close"])
async def test_task_stays_lifted_when_its_mover_ends(
    store: Store, worker: Worker, mover: Mover, clock: ManualClock, how: str
) -> None:
    await worker.heartbeat()
    now, later = await add(store, task(expires=10), task(after=20))
    assert await mover.lift(now, later) == [now, later]
    if how == "death":
        clock.advance(CLIENT_LEASE)
    else:
        await store.close_session(mover.name)
        clock.advance(100)
    assert (await worker.runs(), await worker.chores()) == ([], {})
    again = Mover(store, "m2")
    assert await again.lift(now, later) == [now, later]
    assert await mover.settle(mover.moved(now)) == ["lost"]
    assert await again.settle(again.moved(now), again.moved(later)) == ["ok", "ok"]


async def test_lift_reaps_a_dead_mover(store: Store, mover: Mover, clock: ManualClock) -> None:
    (uuid,) = await add(store, task())
    assert await mover.lift(uuid) == [uuid]
    clock.advance(CLIENT_LEASE - 1)
    assert await Mover(store, "m2").lift(uuid) == []
    clock.advance(1)
    assert await Mover(store, "m2").lift(uuid) == [uuid]


@pytest.mark.parametrize("lease", [0, 60_000])
async def test_session_that_died_before_keeps_its_lifted_tasks_for_the_client_lease(
    store: Store, worker: Worker, mover: Mover, clock: ManualClock, lease: int
) -> None:
    """Its heartbeat reports that it is dead, but its client lease ends later."""
    await mover.heartbeat()
    await mover.crash()
    (uuid,) = await add(store, task())
    assert await mover.lift(uuid) == [uuid]
    assert not (await mover.heartbeat(lease)).alive
    other = Mover(store, "other")
    assert await other.lift(uuid) == []
    clock.advance(CLIENT_LEASE)
    assert await other.lift(uuid) == [uuid]


async def test_lifted_task_is_not_replaced(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k", body=b"1"))
    await mover.lift(uuid)
    await store.close_session(mover.name)
    assert [added.uuid for added in await store.add([task(unique="k", body=b"2", on_conflict="replace")])] == [uuid]
    assert (await look(store, uuid)).body == b"1"
    assert (await worker.runs(), (await look(store, uuid)).history.reason) == ([], "lifted")


async def test_lifted_task_releases_capacity_of_its_lane(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    await limit(store, "a/k", cap=1)
    first, second = await add(store, task(lane="a/k"), task(lane="a/k"))
    await worker.claim("b")
    assert await states(store, [first, second]) == ["ready", "parked"]
    await mover.lift(first)
    assert await worker.runs() == [second]


# -- requeueing


async def test_requeued_lifted_task_is_unchanged(
    store: Store, worker: Worker, mover: Mover, clock: ManualClock
) -> None:
    await worker.heartbeat()
    first, second, later = await add(store, task(), task(), task(after=20))
    before = list(await store.get([first, later]))
    await mover.lift(first, later)
    clock.advance(10)
    assert await mover.settle(mover.release(first), mover.release(later)) == ["ok", "ok"]
    after = await store.get([first, later])
    assert [(r.due, r.seq, r.state, r.attempt) for r in after if r] == [
        (r.due, r.seq, r.state, r.attempt) for r in before if r
    ]
    assert await worker.runs() == [first, second], "it keeps its rank"
    clock.advance(10)
    assert await worker.runs() == [later]


async def test_lifted_task_that_became_due_is_hinted_when_requeued(
    store: Store, worker: Worker, mover: Mover, clock: ManualClock
) -> None:
    await worker.heartbeat()
    due, over = await add(store, task(after=20), task(after=5, expires=10))
    await mover.lift(due, over)
    assert await worker.runs() == []
    clock.advance(30)
    assert await mover.settle(mover.release(due), mover.release(over)) == ["ok", "ok"]
    claimed = await worker.claim()
    assert (names(claimed.tasks), [(r.uuid, r.history.reason) for r in claimed.chores]) == ([due], [(over, "expired")])


async def test_requeued_lifted_task_keeps_its_rank_in_its_lane(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    await limit(store, "a/k", cap=1)
    first, second = await add(store, task(lane="a/k"), task(lane="a/k"))
    await mover.lift(first, second)
    assert await mover.settle(mover.release(second), mover.release(first)) == ["ok", "ok"]
    taken = await worker.runs()
    assert len(taken) == 1
    assert await worker.settle(worker.done(taken[0])) == ["ok"]
    assert sorted(taken + await worker.runs()) == sorted([first, second])


async def test_requeued_lifted_task_is_admitted_by_an_unlimited_lane(
    store: Store, worker: Worker, mover: Mover
) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(lane="a/k"))
    await mover.lift(uuid)
    assert await mover.settle(mover.release(uuid)) == ["ok"]
    assert await worker.runs() == [uuid]


# -- cancelling


async def test_cancel_ends_a_lifted_task_without_a_lease(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await mover.lift(uuid)
    await store.close_session(mover.name)
    assert await worker.cancel(uuid) == [uuid]
    assert await worker.settle(worker.cancelled(uuid)) == ["ok"]
    assert await mover.lift(uuid) == []


async def test_cancel_marks_a_leased_lifted_task(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    moved, back, left = await add(store, task(), task(), task())
    await mover.lift(moved, back, left)
    assert await worker.cancel(moved, back, left) == []
    assert await mover.settle(mover.moved(moved), mover.release(back)) == ["ok", "ok"]
    assert (await look(store, moved)).history.cancel_requested, "the mover can see it"
    await store.close_session(mover.name)
    assert await worker.chores() == {back: "cancel", left: "cancel"}


# -- adopting


async def test_adopted_copy_has_every_field_but_the_lease_and_is_lifted(
    store: Store, worker: Worker, mover: Mover
) -> None:
    await worker.heartbeat()
    record = elsewhere(lane="a/k", unique="k")
    assert [(added.uuid, added.fresh) for added in await store.adopt([record])] == [("x1", True)]
    copy = await look(store, "x1")
    history = History("lifted", retries=2, crashes=1, earlier=4, started=5, error=b"e", hops=1, revives=2)
    assert copy == replace(record, seq=copy.seq, state="scheduled", history=history)
    assert (await worker.runs(), await worker.chores()) == ([], {})
    assert await mover.lift("x1") == ["x1"]
    assert await mover.settle(mover.release("x1")) == ["ok"]
    (taken,) = (await worker.claim()).tasks
    assert (taken.uuid, taken.body, taken.attempt, taken.due, taken.added) == ("x1", b"body", 8, 1_000, 900)
    assert taken.policy == record.policy


async def test_adopted_task_that_had_started_does_not_expire(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    started = elsewhere("x1", policy=task(expires=1).policy)
    fresh = elsewhere("x2", policy=task(expires=1).policy, history=History())
    await store.adopt([started, fresh])
    await mover.lift("x1", "x2")
    await mover.settle(mover.release("x1"), mover.release("x2"))
    claimed = await worker.claim()
    assert (names(claimed.tasks), names(claimed.chores)) == (["x1"], ["x2"])


async def test_the_same_uuid_again_changes_nothing(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await add(store, task("a", "x2", b"first"))
    await store.adopt([elsewhere("x1")])
    before = list(await store.get(["x1", "x2"]))
    again = [elsewhere("x1", body=b"other"), elsewhere("x2")]
    assert [(added.uuid, added.fresh) for added in await store.adopt(again)] == [("x1", False), ("x2", False)]
    assert list(await store.get(["x1", "x2"])) == before
    assert [(added.uuid, added.fresh) for added in await store.add([task("a", "x1")])] == [("x1", False)]


async def test_adopt_stores_nothing_for_a_live_unique_key(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await add(store, task("a", "t1", b"first", unique="k"))
    replaces = task(on_conflict="replace").policy
    (added,) = await store.adopt([elsewhere("x1", unique="k", policy=replaces)])
    assert (added.uuid, added.fresh) == ("t1", False)
    assert (await look(store, "t1")).body == b"first"
    assert list(await store.get(["x1"])) == [None]


async def test_adopted_unique_key_counts_from_the_first_add(store: Store, clock: ManualClock) -> None:
    now = int(clock.now())
    record = elsewhere("x1", unique="k", added=now - 60, policy=task(unique_for=100).policy)
    await store.adopt([record])
    clock.advance(39)
    assert [added.uuid for added in await store.add([task("a", "t1", unique="k")])] == ["x1"]
    clock.advance(1)
    assert [added.uuid for added in await store.add([task("a", "t1", unique="k")])] == ["t1"]


async def test_lifted_task_can_be_requeued_with_a_delay(store: Store, mover: Mover, clock: ManualClock) -> None:
    """A lifted task may be requeued with a delay, as any other."""
    await store.adopt([elsewhere("x1")])
    await mover.lift("x1")
    assert await mover.settle(Requeued(mover.leases["x1"], 500, counted=True)) == ["ok"]
    record = await look(store, "x1")
    assert (await state(store, "x1"), record.history.retries, record.due) == ("scheduled", 3, int(clock.now()) + 500)


# -- a task returns


async def away(mover: Mover, uuid: str, keep: int = 1_000) -> Record:
    """Moves a task away; returns the record of the other store after the requeue."""
    assert await mover.lift(uuid) == [uuid]
    before = await look(mover.store, uuid)
    assert await mover.settle(Ended(mover.leases[uuid], "cancelled", b"moved", keep)) == ["ok"]
    return replace(
        before,
        history=replace(before.history, reason="due", settled_fence=5, session="m9", hops=before.history.hops + 1),
    )


async def tallied(store: Store) -> dict[str, int]:
    return {state: count for (_, state), count in (await store.tally()).items() if count}


async def test_task_that_was_moved_away_can_return(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task("a", "t1", b"body"))
    moved_copy = await away(mover, uuid)
    assert await tallied(store) == {"cancelled": 1}
    adopted = await store.adopt([moved_copy, moved_copy])
    assert [(added.uuid, added.fresh) for added in adopted] == [("t1", True), ("t1", False)]
    copy = await look(store, uuid)
    assert (copy.state, copy.history, copy.is_arriving) == ("scheduled", History("lifted", hops=2), True)
    assert await tallied(store) == {"scheduled": 1}, "there is one record"
    assert await worker.runs() == []
    assert await mover.lift(uuid) == [uuid]
    assert await mover.settle(mover.release(uuid)) == ["ok"]
    assert not (await look(store, uuid)).is_arriving
    assert await worker.runs() == [uuid]
    assert await worker.settle(worker.done(uuid)) == ["ok"]
    assert ((await look(store, uuid)).history.hops, await tallied(store)) == (2, {"succeeded": 1})


async def test_task_can_be_moved_back_and_forth(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task("a", "t1", unique="k"))
    for hops in (2, 4, 6):
        (added,) = await store.adopt([await away(mover, uuid)])
        assert (added.fresh, (await look(store, uuid)).history.hops) == (True, hops)
        assert await mover.lift(uuid) == [uuid]
        assert await mover.settle(mover.release(uuid)) == ["ok"]
        assert await add(store, task(unique="k")) == [uuid], "it holds its unique key"
    assert await worker.runs() == [uuid]


async def test_late_copy_of_a_task_that_was_moved_on_is_refused(store: Store, worker: Worker, mover: Mover) -> None:
    """A slow mover: another one has adopted the same task, and it was moved on."""
    await worker.heartbeat()
    late = elsewhere("x1")
    await store.adopt([late])
    assert (await look(store, "x1")).history.hops == 1
    moved_copy = await away(mover, "x1")
    before = await look(store, "x1")
    assert [(added.uuid, added.fresh) for added in await store.adopt([late])] == [("x1", False)]
    assert await look(store, "x1") == before
    assert [added.fresh for added in await store.adopt([moved_copy])] == [True], "it can return later"


async def test_adopt_does_not_replace_a_task_that_ended_otherwise(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    ran, cancelled, revived = await add(store, task("a", "ran"), task("b", "cancelled"), task("c", "revived"))
    assert await worker.runs("a") == [ran]
    await worker.settle(worker.done(ran))
    assert await worker.cancel(cancelled) == [cancelled]
    await worker.settle(worker.cancelled(cancelled))
    await away(mover, revived)
    assert list(await store.revive([revived])) == [revived]
    before = list(await store.get([ran, cancelled, revived]))
    copies = [elsewhere(uuid, history=History(hops=9)) for uuid in (ran, cancelled, revived)]
    assert [added.fresh for added in await store.adopt(copies)] == [False] * 3
    assert list(await store.get([ran, cancelled, revived])) == before


async def test_purge_keeps_a_returned_task(store: Store, worker: Worker, mover: Mover, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task("a", "t1"))
    await store.adopt([await away(mover, uuid, keep=1_000)])
    clock.advance(2_000)
    assert await store.purge(100) == 0
    assert await store.purge(100, 0) == 0
    assert (await look(store, uuid)).history.reason == "lifted"
    assert await tallied(store) == {"scheduled": 1}


async def test_returning_task_does_not_take_a_unique_key_from_another(
    store: Store, worker: Worker, mover: Mover
) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task("a", "t1", unique="k"))
    moved_copy = await away(mover, uuid)
    assert await add(store, task("a", "t2", unique="k")) == ["t2"]
    before = await look(store, uuid)
    assert [(added.uuid, added.fresh) for added in await store.adopt([moved_copy])] == [("t2", False)]
    assert (await look(store, uuid), await tallied(store)) == (before, {"cancelled": 1, "ready": 1})


async def test_returning_task_keeps_its_own_unique_key(store: Store, mover: Mover, clock: ManualClock) -> None:
    (uuid,) = await add(store, task("a", "t1", unique="k", unique_for=100))
    moved_copy = await away(mover, uuid)
    clock.advance(50)
    assert [(added.uuid, added.fresh) for added in await store.adopt([moved_copy])] == [("t1", True)]
    assert await add(store, task("a", "t2", unique="k")) == ["t1"]
    clock.advance(50)
    assert await add(store, task("a", "t2", unique="k")) == ["t2"]


@pytest.mark.parametrize("how", ["death", "close"])
async def test_copy_is_arriving_until_it_is_requeued(store: Store, mover: Mover, clock: ManualClock, how: str) -> None:
    """Also after several movers have lifted it and ended."""
    await store.adopt([elsewhere("x1")])
    assert await mover.lift("x1") == ["x1"]
    if how == "death":
        clock.advance(CLIENT_LEASE)
    else:
        await store.close_session(mover.name)
    again = Mover(store, "m2")
    assert await again.lift("x1") == ["x1"]
    assert (await look(store, "x1")).is_arriving
    assert await again.settle(again.release("x1")) == ["ok"]
    assert await again.lift("x1") == ["x1"]
    assert not (await look(store, "x1")).is_arriving, "it belongs to this store now"
