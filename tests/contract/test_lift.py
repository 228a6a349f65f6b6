"""lift, adopt: out of the order here, into it there; whatever happens in between, a task is in one order at most."""

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
    """As another store has it."""
    new = task("a", uuid, b"body", boost=3, max_crashes=5)
    history = History(
        "crash", retries=2, crashes=1, earlier=4, settled_fence=77, session="there", started=5, error=b"e"
    )
    record = Record(uuid, "a", b"body", new.policy, None, None, 1_000, 9, 900, "ready", history)
    return replace(record, **fields)


# -- lifting


async def test_what_waits_is_lifted_and_leased(store: Store, worker: Worker, mover: Mover) -> None:
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
    assert mover.name not in (await store.sessions()), "it is no worker"


async def test_not_what_runs_must_end_has_ended_or_is_anothers(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    runs, cancelled, ended, others = await add(store, task("b"), task(), task("c"), task(after=9))
    await worker.run_to_failure(ended, "c")
    assert await worker.runs("b") == [runs]
    assert await worker.cancel(cancelled) == [cancelled]
    assert await Mover(store, "m2").lift(others) == [others]
    before = list(await store.get([runs, cancelled, ended, others]))
    assert await mover.lift(runs, cancelled, ended, others) == []
    assert list(await store.get([runs, cancelled, ended, others])) == before
    assert await worker.settle(worker.done(runs)) == ["ok"], "it was not even told"


async def test_what_is_lifted_neither_starts_nor_expires(
    store: Store, worker: Worker, mover: Mover, clock: ManualClock
) -> None:
    await worker.heartbeat()
    uuids = await add(store, task(expires=10), task(after=5), task(after=5, expires=10))
    assert await mover.lift(*uuids) == uuids
    claimed = await worker.claim()
    assert (list(claimed.tasks), list(claimed.chores), claimed.next_in) == ([], [], CLIENT_LEASE)
    clock.advance(100)
    assert (await worker.runs(), await worker.chores()) == ([], {})


async def test_it_ends_like_any_other(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k"))
    await mover.lift(uuid)
    assert await add(store, task(unique="k")) == [uuid], "it has its key"
    assert await mover.settle(mover.moved(uuid)) == ["ok"]
    assert await mover.settle(mover.moved(uuid)) == ["repeat"]
    record = await look(store, uuid)
    assert (record.state, record.history.error, record.history.started) == ("cancelled", b"moved", None)
    assert await add(store, task("a", "new", unique="k")) == ["new"], "and gives it back"


@pytest.mark.parametrize("how", ["death", "close"])
async def test_it_stays_lifted_when_its_mover_goes(
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


async def test_a_dead_mover_needs_no_worker_to_be_noticed(store: Store, mover: Mover, clock: ManualClock) -> None:
    (uuid,) = await add(store, task())
    assert await mover.lift(uuid) == [uuid]
    clock.advance(CLIENT_LEASE - 1)
    assert await Mover(store, "m2").lift(uuid) == []
    clock.advance(1)
    assert await Mover(store, "m2").lift(uuid) == [uuid]


@pytest.mark.parametrize("lease", [0, 60_000])
async def test_who_died_before_keeps_what_it_lifts_for_as_long_as_any(
    store: Store, worker: Worker, mover: Mover, clock: ManualClock, lease: int
) -> None:
    """It is told once more that it is dead, and only later is the lease over that it has as one who visits."""
    await mover.heartbeat()
    await mover.crash()
    (uuid,) = await add(store, task())
    assert await mover.lift(uuid) == [uuid]
    assert not (await mover.heartbeat(lease)).alive
    other = Mover(store, "other")
    assert await other.lift(uuid) == []
    clock.advance(CLIENT_LEASE)
    assert await other.lift(uuid) == [uuid]


async def test_its_content_is_not_replaced(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k", body=b"1"))
    await mover.lift(uuid)
    await store.close_session(mover.name)
    assert [added.uuid for added in await store.add([task(unique="k", body=b"2", on_conflict="replace")])] == [uuid]
    assert (await look(store, uuid)).body == b"1"
    assert (await worker.runs(), (await look(store, uuid)).history.reason) == ([], "lifted")


async def test_it_makes_room_in_its_lane(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    await limit(store, "a/k", cap=1)
    first, second = await add(store, task(lane="a/k"), task(lane="a/k"))
    await worker.claim("b")
    assert await states(store, [first, second]) == ["ready", "parked"]
    await mover.lift(first)
    assert await worker.runs() == [second]


# -- putting down


async def test_it_is_put_down_as_if_nothing_had_been(
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
    assert await worker.runs() == [first, second], "in its old place"
    clock.advance(10)
    assert await worker.runs() == [later]


async def test_what_has_come_due_meanwhile_is_told(
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


async def test_a_lane_is_kept_in_order(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    await limit(store, "a/k", cap=1)
    first, second = await add(store, task(lane="a/k"), task(lane="a/k"))
    await mover.lift(first, second)
    assert await mover.settle(mover.release(second), mover.release(first)) == ["ok", "ok"]
    taken = await worker.runs()
    assert len(taken) == 1
    assert await worker.settle(worker.done(taken[0])) == ["ok"]
    assert sorted(taken + await worker.runs()) == sorted([first, second])


async def test_a_lane_that_nobody_has_limited_lets_it_in(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(lane="a/k"))
    await mover.lift(uuid)
    assert await mover.settle(mover.release(uuid)) == ["ok"]
    assert await worker.runs() == [uuid]


# -- cancelling meanwhile


async def test_a_cancel_ends_what_nobody_has(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await mover.lift(uuid)
    await store.close_session(mover.name)
    assert await worker.cancel(uuid) == [uuid]
    assert await worker.settle(worker.cancelled(uuid)) == ["ok"]
    assert await mover.lift(uuid) == []


async def test_a_cancel_flags_what_a_mover_has(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    moved, back, left = await add(store, task(), task(), task())
    await mover.lift(moved, back, left)
    assert await worker.cancel(moved, back, left) == []
    assert await mover.settle(mover.moved(moved), mover.release(back)) == ["ok", "ok"]
    assert (await look(store, moved)).history.cancel_requested, "so that whoever moved it knows"
    await store.close_session(mover.name)
    assert await worker.chores() == {back: "cancel", left: "cancel"}


# -- adopting


async def test_a_copy_has_all_but_its_lease_and_waits_lifted(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    record = elsewhere(lane="a/k", unique="k")
    assert [(added.uuid, added.fresh) for added in await store.adopt([record])] == [("x1", True)]
    copy = await look(store, "x1")
    history = History("lifted", retries=2, crashes=1, earlier=4, started=5, error=b"e", hops=1)
    assert copy == replace(record, seq=copy.seq, state="scheduled", history=history)
    assert (await worker.runs(), await worker.chores()) == ([], {})
    assert await mover.lift("x1") == ["x1"]
    assert await mover.settle(mover.release("x1")) == ["ok"]
    (taken,) = (await worker.claim()).tasks
    assert (taken.uuid, taken.body, taken.attempt, taken.due, taken.added) == ("x1", b"body", 8, 1_000, 900)
    assert taken.policy == record.policy


async def test_what_has_started_elsewhere_does_not_expire_here(store: Store, worker: Worker, mover: Mover) -> None:
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


async def test_a_live_key_stands(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await add(store, task("a", "t1", b"first", unique="k"))
    replaces = task(on_conflict="replace").policy
    (added,) = await store.adopt([elsewhere("x1", unique="k", policy=replaces)])
    assert (added.uuid, added.fresh) == ("t1", False)
    assert (await look(store, "t1")).body == b"first"
    assert list(await store.get(["x1"])) == [None]


async def test_a_key_with_a_time_counts_from_its_first_adding(store: Store, clock: ManualClock) -> None:
    now = int(clock.now())
    record = elsewhere("x1", unique="k", added=now - 60, policy=task(unique_for=100).policy)
    await store.adopt([record])
    clock.advance(39)
    assert [added.uuid for added in await store.add([task("a", "t1", unique="k")])] == ["x1"]
    clock.advance(1)
    assert [added.uuid for added in await store.add([task("a", "t1", unique="k")])] == ["t1"]


async def test_a_copy_can_be_retried_later_and_counted(store: Store, mover: Mover, clock: ManualClock) -> None:
    """Again is what it always is: a lifted one may also be put down for another time."""
    await store.adopt([elsewhere("x1")])
    await mover.lift("x1")
    assert await mover.settle(Requeued(mover.leases["x1"], 500, counted=True)) == ["ok"]
    record = await look(store, "x1")
    assert (await state(store, "x1"), record.history.retries, record.due) == ("scheduled", 3, int(clock.now()) + 500)


# -- coming back


async def away(mover: Mover, uuid: str, keep: int = 1_000) -> Record:
    """It was moved away; as the other store has it then, put down."""
    assert await mover.lift(uuid) == [uuid]
    before = await look(mover.store, uuid)
    assert await mover.settle(Ended(mover.leases[uuid], "cancelled", b"moved", keep)) == ["ok"]
    return replace(
        before,
        history=replace(before.history, reason="due", settled_fence=5, session="m9", hops=before.history.hops + 1),
    )


async def tallied(store: Store) -> dict[str, int]:
    return {state: count for (_, state), count in (await store.tally()).items() if count}


async def test_what_went_away_comes_back_in_its_old_place(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task("a", "t1", b"body"))
    there = await away(mover, uuid)
    assert await tallied(store) == {"cancelled": 1}
    assert [(added.uuid, added.fresh) for added in await store.adopt([there, there])] == [("t1", True), ("t1", False)]
    copy = await look(store, uuid)
    assert (copy.state, copy.history, copy.is_arriving) == ("scheduled", History("lifted", hops=2), True)
    assert await tallied(store) == {"scheduled": 1}, "it is one task"
    assert await worker.runs() == []
    assert await mover.lift(uuid) == [uuid]
    assert await mover.settle(mover.release(uuid)) == ["ok"]
    assert not (await look(store, uuid)).is_arriving
    assert await worker.runs() == [uuid]
    assert await worker.settle(worker.done(uuid)) == ["ok"]
    assert ((await look(store, uuid)).history.hops, await tallied(store)) == (2, {"succeeded": 1})


async def test_to_and_fro(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task("a", "t1", unique="k"))
    for hops in (2, 4, 6):
        (added,) = await store.adopt([await away(mover, uuid)])
        assert (added.fresh, (await look(store, uuid)).history.hops) == (True, hops)
        assert await mover.lift(uuid) == [uuid]
        assert await mover.settle(mover.release(uuid)) == ["ok"]
        assert await add(store, task(unique="k")) == [uuid], "it has its key"
    assert await worker.runs() == [uuid]


async def test_a_copy_of_what_has_gone_on_from_here_is_too_late(store: Store, worker: Worker, mover: Mover) -> None:
    """A mover that was slow: another has brought the same one, and it has gone on from here."""
    await worker.heartbeat()
    late = elsewhere("x1")
    await store.adopt([late])
    assert (await look(store, "x1")).history.hops == 1
    there = await away(mover, "x1")
    before = await look(store, "x1")
    assert [(added.uuid, added.fresh) for added in await store.adopt([late])] == [("x1", False)]
    assert await look(store, "x1") == before
    assert [added.fresh for added in await store.adopt([there])] == [True], "but it may come back"


async def test_what_ended_otherwise_stands(store: Store, worker: Worker, mover: Mover) -> None:
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


async def test_a_purge_leaves_what_has_come_back(
    store: Store, worker: Worker, mover: Mover, clock: ManualClock
) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task("a", "t1"))
    await store.adopt([await away(mover, uuid, keep=1_000)])
    clock.advance(2_000)
    assert await store.purge(100) == 0
    assert await store.purge(100, 0) == 0
    assert (await look(store, uuid)).history.reason == "lifted"
    assert await tallied(store) == {"scheduled": 1}


async def test_a_key_that_another_has_got_meanwhile_stands(store: Store, worker: Worker, mover: Mover) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task("a", "t1", unique="k"))
    there = await away(mover, uuid)
    assert await add(store, task("a", "t2", unique="k")) == ["t2"]
    before = await look(store, uuid)
    assert [(added.uuid, added.fresh) for added in await store.adopt([there])] == [("t2", False)]
    assert (await look(store, uuid), await tallied(store)) == (before, {"cancelled": 1, "ready": 1})


async def test_a_key_with_a_time_is_its_own_still(store: Store, mover: Mover, clock: ManualClock) -> None:
    (uuid,) = await add(store, task("a", "t1", unique="k", unique_for=100))
    there = await away(mover, uuid)
    clock.advance(50)
    assert [(added.uuid, added.fresh) for added in await store.adopt([there])] == [("t1", True)]
    assert await add(store, task("a", "t2", unique="k")) == ["t1"]
    clock.advance(50)
    assert await add(store, task("a", "t2", unique="k")) == ["t2"]


@pytest.mark.parametrize("how", ["death", "close"])
async def test_a_copy_arrives_until_it_is_put_down(store: Store, mover: Mover, clock: ManualClock, how: str) -> None:
    """However often a mover has it and goes."""
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
    assert not (await look(store, "x1")).is_arriving, "it is this store's now"
