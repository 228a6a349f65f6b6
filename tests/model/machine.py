"""The steps of the state machine, which a store and the naive store take together."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from msgspec.structs import replace

from onthedot.stores.contract import (
    ClaimRequest,
    ClaimResult,
    Completed,
    Effects,
    Ended,
    FireRequest,
    History,
    Lease,
    Limit,
    NewSignal,
    NewTask,
    Note,
    Outcome,
    Record,
    Requeued,
    Schedule,
    Suspended,
)
from tests.model.comparison import LISTS, blocker_facts, by_name, by_owner, check_equal_records, note_facts
from tests.model.example_settings import often
from tests.model.flow_steps import FlowSteps
from tests.model.retention_steps import RetentionSteps
from tests.model.strategies import (
    LEASES,
    PAUSES,
    SCHEDULES,
    SIGNALS,
    SOURCES,
    STRAY,
    claim_requests,
    histories,
    limits,
    new_tasks,
    outcomes,
    waits,
)

CLIENT = "client"
TICK = 0.01  # ms; epoch milliseconds in a float are not exact


class Stores(FlowSteps, RetentionSteps):
    def __init__(self) -> None:
        super().__init__()
        self.last_request: dict[str, ClaimRequest] = {}
        self.renewed: set[str] = set()  # sessions whose last request followed a gap in the numbers
        self.next_in = 0.0
        self.looked = 0
        self.rates: dict[tuple[str, str], float | None] = {}

    # -- steps

    @initialize(new=st.lists(limits, min_size=1, max_size=4))
    def open(self, new: list[Limit]) -> None:
        for _ in range(2):
            self.arrive()
        self.same("put_limits", self.steady(new))

    def steady(self, new: list[Limit]) -> list[Limit]:
        """Each name has one rate or none for the whole example. A rate that is removed and set again may keep its old
        bucket or not, depending on the store."""
        return [replace(each, rate=self.rates.setdefault((each.name, each.owner), each.rate)) for each in new]

    @often(2, tasks=st.lists(new_tasks(), min_size=1, max_size=3))
    def add(self, tasks: list[NewTask]) -> None:
        self.same("add", self.resolved(tasks))

    @rule(data=st.data(), new=new_tasks())
    def replace_one(self, data: st.DataObject, new: NewTask) -> None:
        """Replaces a live task by its key; most often a running one, which must not change."""
        keyed = [row for row in self.naive.rows.values() if row.live and row.record.unique is not None]
        if keyed:
            row = data.draw(st.sampled_from([*(row for row in keyed if row.lease is not None), *keyed]))
            lane = None if row.record.source == STRAY else new.lane
            same = {"uuid": "", "source": row.record.source, "unique": row.record.unique, "lane": lane}
            self.same("add", self.resolved([replace(new, **same, policy=replace(new.policy, on_conflict="replace"))]))

    @often(3, data=st.data(), which=st.integers(0, 1), number=st.sampled_from([2, 3, 1]))
    def settle(self, data: st.DataObject, which: int, number: int) -> None:
        session = self.someone(which)
        self.turn(session, self.outcomes(data, number), None)

    @often(
        8,
        data=st.data(),
        tasks=st.lists(new_tasks(), max_size=3),
        which=st.integers(0, 1),
        number=st.sampled_from([2, 3, 1, 0]),
        requested=claim_requests(),
    )
    def claim(self, data: st.DataObject, tasks: list[NewTask], which: int, number: int, requested: Any) -> None:
        """Adds tasks first, because there would be little to claim in most examples."""
        self.same("add", self.resolved(tasks))
        self.claim_with(self.someone(which), self.outcomes(data, number), requested)

    def claim_with(self, session: str, outcomes: list[Outcome], requested: Any) -> None:
        pools, suspects, known = requested
        if self.store.traits.shared:  # only a private store has strays
            known = None
        self.numbers[session] += 1
        self.renewed.discard(session)
        self.last_request[session] = ClaimRequest(self.numbers[session], pools, suspects, known)
        self.turn(session, outcomes, self.last_request[session])

    @rule(data=st.data(), which=st.integers(0, 1), number=st.integers(0, 1))
    def claim_again(self, data: st.DataObject, which: int, number: int) -> None:
        session = self.someone(which)
        if session in self.last_request:
            self.turn(session, self.outcomes(data, number), self.last_request[session])

    @rule(data=st.data(), which=st.integers(0, 1), late=st.integers(1, 3))
    def claim_late(self, data: st.DataObject, which: int, late: int) -> None:
        """An earlier request is delivered after later ones."""
        session = self.someone(which)
        if self.numbers[session] > late:
            request = replace(self.last_request[session], number=self.numbers[session] - late)
            self.turn(session, self.outcomes(data, 1), request)

    @rule(data=st.data(), which=st.integers(0, 1), lost=st.integers(1, 3))
    def claim_after_a_loss(self, data: st.DataObject, which: int, lost: int) -> None:
        """The store has lost requests of this session."""
        session = self.someone(which)
        if session in self.last_request:
            self.numbers[session] += lost + 1
            self.renewed.add(session)
            self.last_request[session] = replace(self.last_request[session], number=self.numbers[session])
            self.turn(session, self.outcomes(data, 1), self.last_request[session])

    @rule(data=st.data(), new=new_tasks())
    def add_again(self, data: st.DataObject, new: NewTask) -> None:
        """The repeated add of a task that has ended and was not retained."""
        recent = [uuid for uuid, until in self.naive.recent.items() if until > self.clock.now()]
        if recent:
            uuid = data.draw(st.sampled_from(recent))
            self.same("add", [replace(task, uuid=uuid) for task in self.resolved([replace(new, uuid="")])])

    def outcomes(self, data: st.DataObject, number: int) -> list[Outcome]:
        """Outcomes of leased tasks. Without any, one late outcome is enough."""
        rows = self.naive.rows
        current = [lease for lease in self.leases if lease.uuid in rows and rows[lease.uuid].under(lease)]
        return [self.outcome(data, current) for _ in range(number if current else min(number, 1))]

    def outcome(self, data: st.DataObject, current: list[Lease]) -> Outcome:
        strangers = [Lease("u00", 0, "w0"), Lease("u01", 99, "w1")]
        lease = data.draw(st.sampled_from([*current * 9, *self.leases[-5:], *strangers]))
        how, keep, after, error, adds = data.draw(outcomes)
        effects = Effects(tuple(self.resolved([data.draw(new_tasks())]))) if adds else None
        match how:
            case "done":
                return Completed(lease, b"result", keep, effects)
            case "failed":
                return Ended(lease, "failed", b"error", keep, effects)
            case "cancelled":
                return Ended(lease, "cancelled", b"why", keep, effects)
            case "release":
                return Requeued(lease, None, counted=False, effects=effects)
            case "suspend":
                return Suspended(lease, self.resolved_wait(data.draw(waits)), effects)
            case "sleep":
                return Requeued(lease, after, counted=False, effects=effects, reset_crashes=True)
        return Requeued(lease, after, how == "retry", error, effects)

    def turn(self, session: str, outcomes: list[Outcome], request: ClaimRequest | None) -> None:
        suspects = request.max_suspects if request else 0
        before = {source for source in SOURCES if self.naive.has_startable(source, session, suspects)}
        theirs, ours = self.call("turn", session, outcomes, request)
        assert list(theirs.verdicts) == ours.verdicts
        assert theirs.alive == ours.alive
        assert (theirs.claim is None) == (ours.claim is None)
        if ours.claim is not None and theirs.claim is not None:
            self.claimed(theirs.claim, ours.claim, session, suspects, before)
        if not ours.alive:
            self.sessions.remove(session)
            self.arrive()

    def claimed(self, theirs: ClaimResult, ours: ClaimResult, session: str, suspects: int, before: set[str]) -> None:
        self.record_leases(theirs, ours, session)
        in_order = [names.tasks for names in (theirs, ours)]
        if session in self.renewed:  # of several claims
            in_order = [sorted(tasks, key=lambda record: record.uuid) for tasks in in_order]
        check_equal_records(self.claimed_records(in_order[0], ours=False), self.claimed_records(in_order[1], ours=True))
        by_uuid = [sorted(names.chores, key=lambda record: record.uuid) for names in (theirs, ours)]
        check_equal_records(self.claimed_records(by_uuid[0], ours=False), self.claimed_records(by_uuid[1], ours=True))
        assert by_name(theirs.schedules) == by_name(ours.schedules)
        assert theirs.more == ours.more
        self.coming_back(theirs, ours, exact=not self.naive.limit_rules.buckets)
        for source, wait in theirs.idle.items():
            assert not self.naive.has_startable(source, session, suspects), f"{source} rests and has something to take"
            assert wait is None or abs(wait - (ours.idle[source] or 0)) < TICK
        woken = {source for source in SOURCES if self.naive.has_startable(source, session, suspects)} - before
        timed = {source for source in SOURCES if self.naive.limit_rules.effective(source).rate is not None}
        assert woken - timed <= theirs.woken

    def coming_back(self, theirs: ClaimResult, ours: ClaimResult, *, exact: bool) -> None:
        """The returned time is never too late; without rates it is exact."""
        if ours.next_in is None:
            assert theirs.next_in is None or not exact
            return
        assert theirs.next_in is not None
        self.next_in = ours.next_in
        assert theirs.next_in <= ours.next_in + TICK
        assert theirs.next_in > 0 or ours.next_in == 0 or not exact
        assert theirs.next_in >= ours.next_in - TICK or not exact

    @rule(data=st.data(), kind=st.sampled_from(["error", "progress", "step", "item"]), name=st.sampled_from("12"))
    def note(self, data: st.DataObject, kind: Any, name: str) -> None:
        if self.leases:
            lease = data.draw(st.sampled_from(self.leases[-8:]))
            theirs, ours = self.call("note", [Note(lease, kind, name, b"%d" % self.naive.counter)])
            assert list(theirs) == self.translated(ours)

    @often(2, data=st.data(), who=st.sampled_from([0, 1, CLIENT]))
    def cancel(self, data: st.DataObject, who: Any) -> None:
        which = self.some(data, "scheduled", "ready", "parked", "running", "waiting")
        session = f"{CLIENT}{len(self.leases)}" if who == CLIENT else self.someone(who)
        theirs, ours = self.call("cancel", session, which)
        self.record_leases(theirs, ours, session)
        check_equal_records(self.claimed_records(theirs.tasks, ours=False), self.claimed_records(ours.tasks, ours=True))

    @often(2, data=st.data(), who=st.sampled_from([0, 1, CLIENT]))
    def lift(self, data: st.DataObject, who: Any) -> None:
        which = self.some(data, "scheduled", "ready", "parked")
        session = f"{CLIENT}{len(self.leases)}" if who == CLIENT else self.someone(who)
        theirs, ours = self.call("lift", session, which)
        self.record_leases(theirs, ours, session)
        check_equal_records(self.claimed_records(theirs.tasks, ours=False), self.claimed_records(ours.tasks, ours=True))

    @rule(tasks=st.lists(new_tasks(), min_size=1, max_size=2), history=histories(), ago=st.sampled_from([0, 600]))
    def adopt(self, tasks: list[NewTask], history: History, ago: int) -> None:
        now = int(self.clock.now())
        self.same(
            "adopt",
            [
                Record(
                    task.uuid, task.source, task.body, task.policy, task.lane, task.unique,
                    now if task.at is None else task.at, 7, now - ago, "ready", history,
                )
                for task in self.resolved(tasks)
            ],
        )  # fmt: skip

    @rule(
        signals=st.lists(st.tuples(st.sampled_from(SIGNALS), st.sampled_from("123")), min_size=1, max_size=3),
        keep=st.sampled_from([500, 5000]),
    )
    def signal(self, signals: list[tuple[str, str]], keep: int) -> None:
        payload = b"%d" % self.naive.counter
        self.same("signal", [NewSignal(name, signal_id, payload, keep) for name, signal_id in signals])

    @often(3, data=st.data())
    def revive(self, data: st.DataObject) -> None:
        self.same("revive", self.some(data, "failed", "cancelled"))

    @rule(which=st.integers(0, 1), lease=st.sampled_from(LEASES))
    def heartbeat(self, which: int, lease: int) -> None:
        session = self.someone(which)
        theirs, ours = self.call("heartbeat", session, b"", lease)
        assert theirs.alive == ours.alive
        assert {lease.uuid: lease for lease in theirs.cancel_requests} == {
            lease.uuid: self.translated(lease) for lease in ours.cancel_requests
        }
        if not ours.alive:
            self.sessions.remove(session)
            self.arrive()

    @rule(which=st.integers(0, 1), dies=st.booleans())
    def leave(self, which: int, dies: bool) -> None:
        session = self.someone(which)
        if dies:
            self.wait(self.store.close_session(session, crashed=True))
            self.naive.close_session(session, crashed=True)
            self.same("heartbeat", session, b"", 1000)
        else:
            self.call("close_session", session)
        self.sessions.remove(session)
        self.arrive()

    @often(
        3,
        new=st.lists(limits, min_size=1, max_size=2),
        replaces=st.sampled_from(["anything", "anything", "stored", "other"]),
        which=st.integers(0, 1),
        requested=claim_requests(),
    )
    def put_limits(self, new: list[Limit], replaces: str, which: int, requested: Any) -> None:
        """It takes effect with the next claim at the latest; ready tasks are parked if their lane has no capacity."""
        stored = self.naive.limit_rules.stored(new[0].name, new[0].owner)
        expected = {"anything": [], "stored": [stored], "other": [replace(stored, cap=9)]}
        self.same("put_limits", self.steady(new), expected[replaces])
        self.claim_with(self.someone(which), [], requested)

    @rule(
        data=st.data(),
        name=st.sampled_from(SCHEDULES),
        how=st.sampled_from(["declare", "change", "fire", "drop"]),
        soon=st.sampled_from([None, 0, 500]),
        off=st.sampled_from([0, 0, -1, 1]),
    )
    def schedule(self, data: st.DataObject, name: str, how: str, soon: int | None, off: int) -> None:
        now = int(self.clock.now())
        next_at = None if soon is None else now + soon
        digest = data.draw(st.sampled_from(["", "v1", "v2"]))
        match how:
            case "declare":
                self.same("put_schedules", [Schedule(name, digest.encode(), digest, next_at)])
            case "change":
                new = Schedule(name, b"3", "v3", next_at, 0, data.draw(st.booleans()), last_at=1, runs=2)
                theirs, ours = (replace(new, rev=max(1, rev + off)) for rev in self.revs(name))
                assert list(self.wait(self.store.put_schedules([theirs]))) == self.naive.put_schedules([ours])
            case "fire":
                tasks = self.resolved(data.draw(st.lists(new_tasks(), max_size=2)))
                fires = [FireRequest(name, rev + off, tuple(tasks), next_at, now) for rev in self.revs(name)]
                assert list(self.wait(self.store.fire(fires[:1]))) == self.naive.fire(fires[1:])
            case "drop":
                self.call("delete_schedules", [name])

    def revs(self, name: str) -> tuple[int, int]:
        """Stores may count revisions differently."""
        schedules = self.wait(self.store.schedules()), self.naive.schedules()
        theirs, ours = ({each.name: each.rev for each in some}.get(name, 5) for some in schedules)
        return theirs, ours

    @often(2, data=st.data())
    def look(self, data: st.DataObject) -> None:
        """Compares positions. Later steps show that the reads have changed nothing."""
        for uuid in self.some(data, "scheduled", "ready", "parked", "waiting"):
            theirs, ours = self.call("position", uuid)
            assert (theirs is None) == (ours is None), uuid
            if ours is not None:
                assert theirs.ahead == ours.ahead
                assert [*map(blocker_facts, theirs.blockers)] == [*map(blocker_facts, ours.blockers)], uuid
                for their, our in zip(theirs.blockers, ours.blockers, strict=True):
                    assert abs((their.opens_in or 0) - (our.opens_in or 0)) < TICK

    @often(3, ms=st.sampled_from(PAUSES))
    def advance(self, ms: float | None) -> None:
        """None: to the time that the last claim returned."""
        self.clock.advance(self.next_in if ms is None else ms)
        self.next_in = 0.0

    # -- invariants after each step

    @invariant()
    def nothing_differs(self) -> None:
        theirs, ours = self.call("get", self.uuids)
        check_equal_records(self.records(theirs, ours=False), self.records(ours, ours=True))
        theirs, ours = self.call("results", self.uuids)
        assert list(theirs) == ours
        page = self.wait(self.store.find({}, None, 1000))
        ours = self.naive.find({}, None, 1000).rows
        check_equal_records(self.records(page.rows, ours=False), self.records(ours, ours=True))
        if self.looked % 4 == 0:  # each page costs a call
            self.same_pages(LISTS[self.looked // 4 % len(LISTS)])
        tallies = [{key: number for key, number in some.items() if number} for some in self.call("tally")]
        assert tallies[0] == tallies[1]
        for uuid in self.noted():
            theirs, ours = self.call("notes", uuid, 0, 100)
            assert [note_facts(entry) for entry in theirs] == [note_facts(entry) for entry in ours]

    def noted(self) -> list[str]:
        """Tasks with notes, and one of the others per step, because each one costs a call."""
        self.looked += 1
        noted = [uuid for uuid, row in self.naive.rows.items() if row.notes]
        return [*noted, self.uuids[self.looked % len(self.uuids)]] if self.uuids else []

    @invariant()
    def nothing_differs_in_control(self) -> None:
        theirs, ours = self.call("schedules")
        assert by_name(theirs) == by_name(ours)
        theirs, ours = self.call("limits")
        assert by_owner(theirs) == by_owner(ours)
        theirs, ours = self.call("sessions")
        assert dict(theirs) == dict(ours)
