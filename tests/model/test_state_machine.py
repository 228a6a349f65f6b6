"""A store and the naive one go through the same random life and must never differ.

The domains are tiny, so that keys, lanes, leases and moments collide all the time. `ONTHEDOT_EXAMPLES=5000` runs longer
than CI does; a failure prints the steps, and the blob with which to repeat them.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import asdict, replace

from onthedot.clock import ManualClock
from onthedot.stores.contract import (
    Again,
    Also,
    Ask,
    Claimed,
    Done,
    Ended,
    Fire,
    Lease,
    Limit,
    NewTask,
    Note,
    Outcome,
    Policy,
    Pool,
    Record,
    Schedule,
    Store,
)
from onthedot.stores.memory import MemoryStore
from tests.model.naive import NaiveStore

T = TypeVar("T")

SOURCES = ("a", "b", "c")
LANES = ("a/1", "a/2", "@s")
UUIDS = tuple(f"u{number:02}" for number in range(20))
LIMITS = (*SOURCES, "a/*", *LANES)
SCHEDULES = ("s1", "s2")
CLIENT = "client"
PAUSE = (0.25, 1, 100, 250, 500, 1000, 5000)
TICK = 0.01  # ms; epoch milliseconds in a float are not exact

policies = st.builds(
    Policy,
    boost=st.sampled_from([0, 0, 1, 1000]),
    cost=st.sampled_from([1, 1, 2]),
    clash=st.sampled_from(["keep", "replace"]),
    unique_for=st.sampled_from([None, None, 1000]),
    expires=st.sampled_from([None, None, 250, 1500]),
    max_crashes=st.sampled_from([1, 2, 3]),
)


@st.composite
def new_tasks(draw: st.DrawFn) -> NewTask:
    return NewTask(
        draw(st.sampled_from(UUIDS)),
        draw(st.sampled_from(SOURCES)),
        draw(st.sampled_from([b"1", b"2"])),
        at=draw(st.sampled_from([None, None, -1000, 0, 250])),  # made absolute by the step
        after=draw(st.sampled_from([0, 0, 1, 500])),
        lane=draw(st.sampled_from([None, None, *LANES])),
        unique=draw(st.sampled_from([None, None, "k1", "k2"])),
        policy=draw(policies),
    )


@st.composite
def asks(draw: st.DrawFn) -> tuple[list[Pool], int, frozenset[str] | None]:
    pools = []
    together: list[tuple[str, ...]] = draw(
        st.sampled_from([[SOURCES], [SOURCES], [("c", "b"), ("a",)], [("a", "b")], []])
    )
    for sources in together:
        room = {source: draw(st.integers(0, 4)) for source in sources}
        pools.append(Pool(draw(st.integers(0, 5)), room))
    known = draw(st.sampled_from([None] * 6 + [frozenset("ab"), frozenset("abc")]))
    return pools, draw(st.integers(0, 2)), known


uuids = st.lists(st.sampled_from(UUIDS), min_size=1, max_size=4)
limits = st.builds(
    Limit,
    st.sampled_from(LIMITS),
    cap=st.sampled_from([None, None, 0, 1, 2]),
    rate=st.sampled_from([None, 1.0]),
    burst=st.just(2),
    paused=st.sampled_from([False, False, False, True]),
    by=st.sampled_from(["code", "operator"]),
)


def now_or_never(coroutine: Coroutine[Any, Any, T]) -> T:
    """An immediate store answers without suspending."""
    try:
        coroutine.send(None)
    except StopIteration as answer:
        return answer.value  # type: ignore[no-any-return]
    raise AssertionError("an immediate store has suspended")


class Stores(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store: Store = MemoryStore(self.clock)
        self.naive = NaiveStore(self.clock)
        self.sessions: list[str] = []
        self.numbers: dict[str, int] = {}
        self.last_ask: dict[str, Ask] = {}
        self.leases: list[Lease] = []  # all there ever were, with the naive store's fences
        self.fences = {0: 0}  # the naive store's → the other's: both only grow

    # -- both at once

    def call(self, verb: str, *args: Any) -> tuple[Any, Any]:
        theirs = now_or_never(getattr(self.store, verb)(*(self.translated(arg) for arg in args)))
        return theirs, getattr(self.naive, verb)(*args)

    def same(self, verb: str, *args: Any) -> Any:
        theirs, ours = self.call(verb, *args)
        assert _plain(theirs) == _plain(ours), verb
        return ours

    def translated(self, arg: Any) -> Any:
        """The same call in the other store's fences."""
        match arg:
            case Lease():
                return replace(arg, fence=self.fences.get(arg.fence, -1))
            case Done() | Again() | Ended() | Note():
                return replace(arg, lease=self.translated(arg.lease))
            case list():
                return [self.translated(each) for each in arg]
        return arg

    def held(self, theirs: Any, ours: Any, session: str) -> None:
        """Both claims took something, or neither; the fence grew."""
        assert bool(theirs.fence) == bool(ours.fence)
        if ours.fence and ours.fence not in self.fences:
            assert theirs.fence > max(self.fences.values())
            self.fences[ours.fence] = theirs.fence
        assert self.fences[ours.fence] == theirs.fence
        records = [*ours.tasks, *getattr(ours, "chores", ())]
        self.leases += [Lease(record.uuid, ours.fence, session) for record in records]

    def records(self, records: Sequence[Record | None], *, ours: bool) -> list[dict[str, Any]]:
        """What can be compared: without the private words for the same thing."""
        plain = []
        for record in records:
            if record is not None:
                past = asdict(record.past)
                past["settled"] = self.fences[past["settled"]] if ours else past["settled"]
                past["why"] = "due" if past["why"] == "crash" else past["why"]
                plain.append(asdict(record) | past | {"past": None})
        return plain

    def taken(self, records: Sequence[Record], *, ours: bool) -> list[dict[str, Any]]:
        """As claimed: whether the record says so already is the store's affair."""
        return [record | {"state": "claimed"} for record in self.records(records, ours=ours)]

    # -- steps

    @initialize()
    def open(self) -> None:
        for _ in range(2):
            self.arrive()

    def arrive(self) -> str:
        name = f"w{len(self.numbers)}"
        self.numbers[name] = 0
        self.sessions.append(name)
        self.same("beat", name, b"", 2000)
        return name

    def someone(self, which: int) -> str:
        return self.sessions[which % 2]

    def absolute(self, tasks: Sequence[NewTask]) -> list[NewTask]:
        now = int(self.clock.now())
        return [task if task.at is None else replace(task, at=now + task.at) for task in tasks]

    @rule(tasks=st.lists(new_tasks(), min_size=1, max_size=3))
    def add(self, tasks: list[NewTask]) -> None:
        self.same("add", self.absolute(tasks))

    @rule(data=st.data(), which=st.integers(0, 1), number=st.integers(0, 3))
    def settle(self, data: st.DataObject, which: int, number: int) -> None:
        session = self.someone(which)
        self.turn(session, [self.outcome(data) for _ in range(number)], None)

    @rule(data=st.data(), which=st.integers(0, 1), number=st.integers(0, 2), asked=asks())
    def claim(self, data: st.DataObject, which: int, number: int, asked: Any) -> None:
        session = self.someone(which)
        pools, suspects, known = asked
        self.numbers[session] += 1
        ask = self.last_ask[session] = Ask(self.numbers[session], pools, suspects, known)
        self.turn(session, [self.outcome(data) for _ in range(number)], ask)

    @rule(data=st.data(), which=st.integers(0, 1), number=st.integers(0, 1))
    def claim_again(self, data: st.DataObject, which: int, number: int) -> None:
        session = self.someone(which)
        if session in self.last_ask:
            self.turn(session, [self.outcome(data) for _ in range(number)], self.last_ask[session])

    def outcome(self, data: st.DataObject) -> Outcome:
        rows = self.naive.rows
        current = [lease for lease in self.leases if lease.uuid in rows and rows[lease.uuid].under(lease)]
        strangers = [Lease(UUIDS[0], 0, "w0"), Lease(UUIDS[1], 99, "w1")]
        lease = data.draw(st.sampled_from([*current * 3, *self.leases[-5:], *strangers]))
        adds = data.draw(st.lists(new_tasks(), max_size=1)) if data.draw(st.integers(0, 5)) == 0 else []
        also = Also(tuple(self.absolute(adds))) if adds else None
        keep = data.draw(st.sampled_from([0, 500, 5000]))
        match data.draw(st.sampled_from(["done", "failed", "cancelled", "retry", "snooze", "release"])):
            case "done":
                return Done(lease, b"result", keep, also)
            case "failed":
                return Ended(lease, "failed", b"error", keep, also)
            case "cancelled":
                return Ended(lease, "cancelled", b"why", keep, also)
            case "release":
                return Again(lease, None, counted=False, also=also)
            case how:
                after = data.draw(st.sampled_from([0, 0, 1, 500]))
                return Again(lease, after, how == "retry", data.draw(st.sampled_from([b"", b"e1", b"e2"])), also)

    def turn(self, session: str, outcomes: list[Outcome], ask: Ask | None) -> None:
        suspects = ask.suspects if ask else 0
        before = {source for source in SOURCES if self.naive.takeable(source, session, suspects)}
        theirs, ours = self.call("turn", session, outcomes, ask)
        assert list(theirs.verdicts) == ours.verdicts
        assert theirs.alive == ours.alive
        assert (theirs.claimed is None) == (ours.claimed is None)
        if ours.claimed is not None and theirs.claimed is not None:
            self.claimed(theirs.claimed, ours.claimed, session, suspects, before)
        if not ours.alive:
            self.sessions.remove(session)
            self.arrive()

    def claimed(self, theirs: Claimed, ours: Claimed, session: str, suspects: int, before: set[str]) -> None:
        self.held(theirs, ours, session)
        _agree(self.taken(theirs.tasks, ours=False), self.taken(ours.tasks, ours=True))
        by_uuid = [sorted(names.chores, key=lambda record: record.uuid) for names in (theirs, ours)]
        _agree(self.taken(by_uuid[0], ours=False), self.taken(by_uuid[1], ours=True))
        assert _schedules(theirs.schedules) == _schedules(ours.schedules)
        assert theirs.more == ours.more
        rated = any(limit.rate is not None for limit in self.naive.limits.records.values())
        self.coming_back(theirs, ours, exact=not rated)
        for source, wait in theirs.rest.items():
            assert not self.naive.takeable(source, session, suspects), f"{source} rests and has something to take"
            assert wait is None or abs(wait - (ours.rest[source] or 0)) < TICK
        woken = {source for source in SOURCES if self.naive.takeable(source, session, suspects)} - before
        timed = {source for source in SOURCES if self.naive.limits.effective(source).rate is not None}
        assert woken - timed <= theirs.woke

    def coming_back(self, theirs: Claimed, ours: Claimed, *, exact: bool) -> None:
        """Never later than there is something to do; where no rate is, to the moment."""
        if ours.next_in is None:
            assert theirs.next_in is None or not exact
            return
        assert theirs.next_in is not None
        assert theirs.next_in <= ours.next_in + TICK
        assert theirs.next_in > 0 or ours.next_in == 0 or not exact
        assert theirs.next_in >= ours.next_in - TICK or not exact

    @rule(data=st.data(), kind=st.sampled_from(["error", "progress"]), name=st.sampled_from("12"))
    def note(self, data: st.DataObject, kind: Any, name: str) -> None:
        if self.leases:
            lease = data.draw(st.sampled_from(self.leases[-8:]))
            theirs, ours = self.call("note", [Note(lease, kind, name, b"%d" % self.naive.counter)])
            assert list(theirs) == self.translated(ours)

    @rule(who=st.sampled_from([0, 1, CLIENT]), which=uuids)
    def cancel(self, who: Any, which: list[str]) -> None:
        session = f"{CLIENT}{len(self.leases)}" if who == CLIENT else self.someone(who)
        theirs, ours = self.call("cancel", session, which)
        self.held(theirs, ours, session)
        _agree(self.taken(theirs.tasks, ours=False), self.taken(ours.tasks, ours=True))

    @rule(which=uuids)
    def revive(self, which: list[str]) -> None:
        self.same("revive", which)

    @rule(which=st.integers(0, 1), lease=st.sampled_from([1000, 2000, 60_000]))
    def beat(self, which: int, lease: int) -> None:
        session = self.someone(which)
        theirs, ours = self.call("beat", session, b"", lease)
        assert theirs.alive == ours.alive
        assert {lease.uuid: lease for lease in theirs.cancel} == {
            lease.uuid: self.translated(lease) for lease in ours.cancel
        }
        if not ours.alive:
            self.sessions.remove(session)
            self.arrive()

    @rule(which=st.integers(0, 1))
    def die(self, which: int) -> None:
        session = self.someone(which)
        self.call("beat", session, b"", 0)
        self.same("beat", session, b"", 1000)
        self.sessions.remove(session)
        self.arrive()

    @rule(which=st.integers(0, 1))
    def close(self, which: int) -> None:
        session = self.someone(which)
        self.call("close", session)
        self.sessions.remove(session)
        self.arrive()

    @rule(new=st.lists(limits, min_size=1, max_size=2), which=st.integers(0, 1))
    def put_limits(self, new: list[Limit], which: int) -> None:
        self.same("put", [], new)
        session = self.someone(which)  # a limit takes effect at the next turn with an ask, at the latest
        self.numbers[session] += 1
        ask = self.last_ask[session] = Ask(self.numbers[session], ())
        self.turn(session, [], ask)

    @rule(
        name=st.sampled_from(SCHEDULES),
        rule=st.sampled_from([b"1", b"2"]),
        declared=st.sampled_from(["", "v1", "v2"]),
        soon=st.sampled_from([None, 0, 500]),
    )
    def declare(self, name: str, rule: bytes, declared: str, soon: int | None) -> None:
        next_at = None if soon is None else int(self.clock.now()) + soon
        self.same("put", [Schedule(name, rule, declared, next_at)], [])

    @rule(
        name=st.sampled_from(SCHEDULES),
        off=st.sampled_from([0, 0, -1, 1]),
        paused=st.booleans(),
        soon=st.sampled_from([None, 0, 500]),
    )
    def change_schedule(self, name: str, off: int, paused: bool, soon: int | None) -> None:
        next_at = None if soon is None else int(self.clock.now()) + soon
        new = Schedule(name, b"3", "v3", next_at, 0, paused, last_at=1, runs=2)
        theirs, ours = (replace(new, rev=max(1, rev + off)) for rev in self.revs(name))
        answers = now_or_never(self.store.put([theirs], [])), self.naive.put([ours], [])
        assert list(answers[0]) == answers[1]

    @rule(name=st.sampled_from(SCHEDULES), off=st.sampled_from([0, 0, -1, 1]), tasks=st.lists(new_tasks(), max_size=2))
    def fire(self, name: str, off: int, tasks: list[NewTask]) -> None:
        now = int(self.clock.now())
        fire = Fire(name, 0, tuple(self.absolute(tasks)), now + 500, now)
        theirs, ours = (replace(fire, rev=rev + off) for rev in self.revs(name))
        answers = now_or_never(self.store.fire([theirs])), self.naive.fire([ours])
        assert list(answers[0]) == answers[1]

    def revs(self, name: str) -> tuple[int, int]:
        """How it counts is each store's affair."""
        schedules = now_or_never(self.store.state())[0], self.naive.state()[0]
        theirs, ours = ({each.name: each.rev for each in some}.get(name, 5) for some in schedules)
        return theirs, ours

    @rule(name=st.sampled_from(SCHEDULES))
    def drop(self, name: str) -> None:
        self.call("drop", [name])

    @rule(limit=st.sampled_from([1, 3, 100]), most=st.sampled_from([0, 2, 100, 100]))
    def purge(self, limit: int, most: int) -> None:
        self.same("purge", limit, most)

    @rule(ms=st.sampled_from(PAUSE))
    def advance(self, ms: float) -> None:
        self.clock.advance(ms)

    # -- and after each of them

    @invariant()
    def nothing_differs(self) -> None:
        theirs, ours = self.call("get", list(UUIDS))
        _agree(self.records(theirs, ours=False), self.records(ours, ours=True))
        page = now_or_never(self.store.find({}, None, 100))
        ours = self.naive.find({}, None, 100).rows
        _agree(self.records(page.rows, ours=False), self.records(ours, ours=True))
        tallies = [{key: number for key, number in some.items() if number} for some in self.call("tally")]
        assert tallies[0] == tallies[1]
        for uuid in UUIDS:
            theirs, ours = self.call("notes", uuid, 0, 100)
            assert [_note(entry) for entry in theirs] == [_note(entry) for entry in ours]

    @invariant()
    def nothing_differs_in_control(self) -> None:
        theirs, ours = self.call("state")
        assert _schedules(theirs[0]) == _schedules(ours[0])
        assert {(each.name, each.by): each for each in theirs[1]} == {(each.name, each.by): each for each in ours[1]}
        assert dict(theirs[2]) == dict(ours[2])


def _plain(answer: Any) -> Any:
    return [*answer] if isinstance(answer, Sequence) else answer


def _agree(theirs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> None:
    """Says where they differ, not all that they are."""
    assert [each["uuid"] for each in theirs] == [each["uuid"] for each in ours]
    for their, our in zip(theirs, ours, strict=True):
        differ = {name: (their[name], our[name]) for name in our if their[name] != our[name]}
        assert not differ, f"{our['uuid']}: {differ}"


def _note(entry: tuple[int, Note]) -> tuple[str, str, bytes]:
    return entry[1].kind, entry[1].name, entry[1].data


def _schedules(schedules: Sequence[Schedule]) -> Mapping[str, Schedule]:
    return {schedule.name: replace(schedule, rev=0) for schedule in schedules}


Stores.TestCase.settings = settings(
    max_examples=int(os.environ.get("ONTHEDOT_EXAMPLES", "250")),
    stateful_step_count=60,
    deadline=None,
    derandomize=False,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
TestStores = pytest.mark.timeout(600)(Stores.TestCase)
