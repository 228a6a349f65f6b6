"""Steps with events, which a store and the naive outbox take together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from onthedot.clock.manual import ManualClock
from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import (
    Arrival,
    ClaimRequest,
    Completed,
    Effects,
    Ended,
    HandleRecord,
    Lease,
    NewEvent,
    NewTask,
    OutboxEvent,
    Outcome,
    RelayRequest,
    Requeued,
    SlotPool,
    Store,
    Suspended,
    Wait,
)
from tests.contract.event_steps import bucket_of, key_in
from tests.model.example_settings import often
from tests.model.naive_outbox import NaiveOutbox
from tests.model.stores import OnMemory

HOUR = 3_600_000
DAY = 24 * HOUR
FOREVER = 10**12
LEASES = (FOREVER, FOREVER, 1000)
PAUSES = (1, 499, 500, 1000, HOUR, DAY)
KEEPS = (0, 500, HOUR, DAY)
KEYS = (key_in(0), "k" + key_in(0), key_in(7), key_in(8), key_in(15))
TOPICS = ("a.b.events", "c.d.events")
GROUPS = ("g", "h")
CORRELATIONS = ("c1", "c2")
TYPES = ("Done", "Failed")
LIMITS = (1, 2, 5, 500)
MARKS = st.lists(st.sampled_from(["send", "send", "refuse", "hold"]), max_size=8)

new_events = st.builds(
    NewEvent,
    st.just(""),  # numbered when it is published
    st.sampled_from(TOPICS),
    st.sampled_from(KEYS),
    st.just(0),  # of the key
    correlation_id=st.sampled_from([None, *CORRELATIONS]),
    occurred_at=st.integers(1, 9),
    payload=st.sampled_from([None, b"{}"]),
)
known = st.sampled_from([None, None, None, 0, 1, 5])  # an event whose id is used again; None: a new one
publications = st.lists(st.tuples(new_events, known), min_size=1, max_size=5)
expectations = st.sampled_from([((("Done",), 1),), ((("Done", "Failed"), 2),), ((("Done",), 1), (("Failed",), 2))])
filters = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.sampled_from(TOPICS),
        "key": st.sampled_from(KEYS),
        "status": st.sampled_from(["pending", "sent", "failed", "discarded"]),
        "correlation": st.sampled_from(CORRELATIONS),
        "id": st.sampled_from(["e000", "e001", "e002"]),
    },
)


class Read(NamedTuple):
    """An event that a relay has read: its seq in the store, and that of the naive outbox."""

    store: int
    naive: int
    bucket: int


class EventStores(OnMemory, RuleBasedStateMachine):
    """Seqs differ between stores, so events are compared without them, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store: Store = self.made()
        assert isinstance(self.store, Outbox)
        self.outbox: Outbox = self.store
        self.naive = NaiveOutbox(self.clock)
        self.ids: list[str] = []
        self.sessions: list[str] = []
        self.named = 0
        self.in_flight: dict[str, list[Read]] = {}  # by session
        self.reads: list[Read] = []  # by any session, so far
        self.positions: dict[tuple[str, str], dict[int, int]] = {}  # by group and session
        self.claims = 0
        self.tasks: list[str] = []
        self.handle_ids: list[str] = []

    # -- sessions

    @initialize()
    def open(self) -> None:
        self.wait(self.store.heartbeat("worker", b"", FOREVER))
        for _ in range(2):
            self.arrive(FOREVER)

    @rule(lease=st.sampled_from(LEASES))
    def arrive(self, lease: int) -> None:
        if len(self.sessions) < 4:
            self.named += 1
            self.sessions.append(f"s{self.named}")
            self.heartbeat(-1, lease)

    @rule(which=st.integers(0, 3), lease=st.sampled_from(LEASES))
    def heartbeat(self, which: int, lease: int) -> None:
        session = self.someone(which)
        alive = self.wait(self.store.heartbeat(session, b"", lease)).alive
        assert alive == self.naive.heartbeat(session, lease)
        self.replace_if_dead(session, alive=alive)

    @rule(which=st.integers(0, 3), crashed=st.booleans())
    def leave(self, which: int, crashed: bool) -> None:
        session = self.someone(which)
        self.wait(self.store.close_session(session, crashed=crashed))
        self.naive.close_session(session, crashed=crashed)
        self.replace_if_dead(session, alive=False)

    def someone(self, which: int) -> str:
        return self.sessions[which % len(self.sessions)] if which >= 0 else self.sessions[-1]

    def replace_if_dead(self, session: str, *, alive: bool) -> None:
        if not alive:
            self.sessions.remove(session)
            if len(self.sessions) < 2:
                self.arrive(FOREVER)

    # -- publish

    def resolved(self, drawn: Sequence[tuple[NewEvent, int | None]]) -> list[NewEvent]:
        events: list[NewEvent] = []
        for event, which in drawn:
            if which is None or which >= len(self.ids):
                self.ids.append(f"e{len(self.ids):03}")
            event_id = self.ids[-1] if which is None else self.ids[-1 - which % len(self.ids)]
            events.append(replace(event, id=event_id, bucket=bucket_of(event.key)))
        return events

    @often(3, drawn=publications)
    def publish(self, drawn: list[tuple[NewEvent, int | None]]) -> None:
        events = self.resolved(drawn)
        assert list(self.wait(self.outbox.publish(events))) == self.naive.publish(events)

    @often(
        2,
        drawn=st.lists(publications, min_size=1, max_size=3),
        how=st.sampled_from(["done", "failed", "retry", "wait"]),
    )
    def settle(self, drawn: list[list[tuple[NewEvent, int | None]]], how: str) -> None:
        """Outcomes publish with their end, once. Those of a lost lease, and repeated ones, do not."""
        claimed = self.claim(len(drawn))
        strangers = [replace(lease, fence=lease.fence + 9) for lease in claimed]
        events = [self.resolved(some) for some in drawn]
        for leases, verdict in ((strangers, "lost"), (claimed, "ok"), (claimed, "repeat")):
            outcomes: list[Outcome] = []
            for lease, some in zip(leases, events, strict=True):
                never = [replace(event, id=f"{verdict} {event.id}") for event in some]
                outcomes.append(self.outcome(how, lease, some if verdict == "ok" else never))
            answer = self.wait(self.store.turn("worker", outcomes, None))
            assert list(answer.verdicts) == [verdict] * len(outcomes)
        for some in events:
            self.naive.publish(some)

    def claim(self, number: int) -> list[Lease]:
        """Of new tasks, each of its own source: no older task of a retry is claimed."""
        new = [NewTask(f"t{len(self.tasks) + each}", f"source{self.claims}", b"") for each in range(number)]
        self.tasks += [task.uuid for task in new]
        self.wait(self.store.add(new))
        self.claims += 1
        request = ClaimRequest(self.claims, [SlotPool(number, {new[0].source: number})])
        claim = self.wait(self.store.turn("worker", [], request)).claim
        self.naive.reap()
        assert claim is not None
        assert [record.uuid for record in claim.tasks] == [task.uuid for task in new]
        return [Lease(record.uuid, claim.fence, "worker") for record in claim.tasks]

    def outcome(self, how: str, lease: Lease, events: list[NewEvent]) -> Outcome:
        effects = Effects(events=tuple(events))
        match how:
            case "done":
                return Completed(lease, effects=effects)
            case "failed":
                return Ended(lease, "failed", b"error", effects=effects)
            case "retry":
                return Requeued(lease, FOREVER, counted=True, effects=effects)
            case _:
                return Suspended(lease, Wait((("never", 1),)), effects=effects)

    # -- relay

    @often(
        4,
        which=st.integers(0, 3),
        marks=MARKS,
        backwards=st.booleans(),
        limit=st.sampled_from(LIMITS),
        skipped=st.sampled_from([(), (), (), TOPICS[:1], TOPICS]),
        to_log=st.booleans(),
    )
    def relay(
        self, which: int, marks: list[str], backwards: bool, limit: int, skipped: tuple[str, ...], to_log: bool
    ) -> None:
        session = self.someone(which)
        sent, refused = self.taken(session, marks, backwards=backwards)
        held = self.in_flight.get(session, [])
        busy = sorted({each.bucket for each in held})
        requests = [
            RelayRequest(limit, [each.store for each in held], busy, skipped),
            RelayRequest(limit, [each.naive for each in held], busy, skipped),
        ]
        self.turn(session, sent, refused, requests, to_log=to_log)

    @often(2, data=st.data(), how=st.sampled_from(["send", "refuse"]), to_log=st.booleans())
    def mark(self, data: st.DataObject, how: str, to_log: bool) -> None:
        """Without a request: what any session has ever read, which another may have marked since."""
        if self.reads:
            session = data.draw(st.sampled_from([*self.sessions, "unknown"]))
            marked = data.draw(st.lists(st.sampled_from(self.reads[-12:]), min_size=1, max_size=3, unique=True))
            sent, refused = (marked, []) if how == "send" else ([], marked)
            self.turn(session, sent, refused, None, to_log=to_log)

    def taken(self, session: str, marks: list[str], *, backwards: bool) -> tuple[list[Read], list[Read]]:
        """The oldest that are in flight: sent, refused or held back."""
        held = self.in_flight.get(session, [])
        marked = list(zip(list(held), marks, strict=False))
        sent = [each for each, mark in marked if mark == "send"]
        refused = [each for each, mark in marked if mark == "refuse"]
        for each in (*sent, *refused):
            held.remove(each)
        return sent[:: -1 if backwards else 1], refused

    def turn(
        self,
        session: str,
        sent: list[Read],
        refused: list[Read],
        requests: list[RelayRequest] | None,
        *,
        to_log: bool,
    ) -> None:
        theirs_request, ours_request = requests or (None, None)
        errors = {each: f"error {len(self.ids)}" for each in refused}
        theirs = self.wait(
            self.outbox.relay(
                session,
                [each.store for each in sent],
                {each.store: error for each, error in errors.items()},
                theirs_request,
                to_log=to_log,
            )
        )
        ours = self.naive.relay(
            session,
            [each.naive for each in sent],
            {each.naive: error for each, error in errors.items()},
            ours_request,
            to_log=to_log,
        )
        assert (theirs.alive, theirs.more) == (ours.alive, ours.more)
        assert list(theirs.buckets) == list(ours.buckets)
        assert facts(theirs.events) == facts(ours.events)
        pairs = zip(theirs.events, ours.events, strict=True)
        read = [Read(their.seq, our.seq, our.event.bucket) for their, our in pairs]
        self.in_flight.setdefault(session, []).extend(read)
        self.reads += read
        if session in self.sessions:
            self.replace_if_dead(session, alive=ours.alive)

    @often(
        2,
        data=st.data(),
        action=st.sampled_from(["retry", "discard"]),
        reason=st.sampled_from(["", "no longer wanted"]),
    )
    def amend(self, data: st.DataObject, action: Any, reason: str) -> None:
        failed = [stored.event.id for stored in self.naive.events if stored.status == "failed"]
        names = st.sampled_from([*failed * 3, *self.ids[-3:], "unknown"])
        ids = data.draw(st.lists(names, min_size=1, max_size=3))
        amended = list(self.wait(self.outbox.amend_events(ids, action, reason)))
        assert amended == self.naive.amend_events(ids, action, reason)

    # -- the log

    @often(
        3,
        which=st.integers(0, 3),
        group=st.sampled_from(GROUPS),
        topics=st.sampled_from([TOPICS, TOPICS, TOPICS[:1], ()]),
        limit=st.sampled_from([1, 32, 1600]),
        again=st.booleans(),
    )
    def read_log(self, which: int, group: str, topics: tuple[str, ...], limit: int, again: bool) -> None:
        """again: from the committed positions."""
        session = self.someone(which)
        after = {} if again else self.positions.get((group, session), {})
        theirs = self.wait(self.outbox.read_log(group, session, topics, after, limit))
        ours = self.naive.read_log(group, session, topics, after, limit)
        assert theirs.alive == ours.alive
        assert facts(theirs.events) == facts(ours.events)
        assert dict(theirs.buckets) == dict(ours.buckets)
        self.positions[group, session] = dict(ours.buckets)
        self.replace_if_dead(session, alive=ours.alive)

    @rule(data=st.data(), back=st.integers(0, 2))
    def commit(self, data: st.DataObject, back: int) -> None:
        """Also positions that it has read before it lost the bucket, or its session."""
        if self.positions:
            group, session = data.draw(st.sampled_from(sorted(self.positions)))
            positions = {bucket: max(0, position - back) for bucket, position in self.positions[group, session].items()}
            self.wait(self.outbox.commit_positions(group, session, positions))
            self.naive.commit_positions(group, session, positions)

    @rule(group=st.sampled_from([*GROUPS, "new"]), topics=st.sampled_from([TOPICS, TOPICS[:1], ()]))
    def unread(self, group: str, topics: tuple[str, ...]) -> None:
        counts = self.wait(self.outbox.unread(group, topics))
        assert {(each.topic, each.bucket): each.count for each in counts} == self.naive.unread(group, topics)

    # -- resume handles

    @often(
        2,
        arrivals=st.lists(
            st.tuples(st.sampled_from(CORRELATIONS), st.sampled_from("12345"), st.sampled_from(TYPES)),
            min_size=1,
            max_size=3,
        ),
    )
    def record_arrivals(self, arrivals: list[tuple[str, str, str]]) -> None:
        new = [Arrival(*each, b'{"n":%d}' % len(self.ids)) for each in arrivals]
        self.wait(self.outbox.record_arrivals(new))
        self.naive.record_arrivals(new)

    @often(
        2,
        correlation=st.sampled_from(CORRELATIONS),
        expected=expectations,
        timeout=st.sampled_from([500, 2 * DAY]),
        repeated=st.integers(0, 3),
    )
    def create_handle(self, correlation: str, expected: Any, timeout: int, repeated: int) -> None:
        """repeated: 0: an earlier id again."""
        if repeated or not self.handle_ids:
            self.handle_ids.append(f"h{len(self.handle_ids)}")
        new = HandleRecord(self.handle_ids[-1], correlation, expected, "signal", timeout)
        task = f"resume{len(self.naive.added)}"
        theirs = self.wait(self.outbox.create_handle(new, [NewTask(task, "resume", b"")]))
        assert theirs == self.naive.create_handle(new, task)
        (record,) = self.wait(self.store.get([task]))
        assert (record is not None) == (task in self.naive.added)

    @often(2, data=st.data(), correlations=st.lists(st.sampled_from(CORRELATIONS), max_size=3))
    def complete_handles(self, data: st.DataObject, correlations: list[str]) -> None:
        resumed = data.draw(st.lists(st.sampled_from([*self.handle_ids, "unknown"]), max_size=2))
        theirs = self.wait(self.outbox.complete_handles(correlations, resumed))
        assert list(theirs) == self.naive.complete_handles(correlations, resumed)

    # -- retention and time

    @often(
        2,
        limit=st.sampled_from([1, 3, 1000]),
        keep_sent=st.sampled_from(KEEPS),
        keep_arrivals=st.sampled_from(KEEPS),
    )
    def purge(self, limit: int, keep_sent: int, keep_arrivals: int) -> None:
        """A store chooses which of those that are over it deletes first."""
        events = {stored.event.id for stored in self.naive.old_events(keep_sent)}
        handles = {handle.id for handle in self.naive.old_handles(keep_sent)}
        arrivals = self.naive.old_arrivals(keep_arrivals)
        number = self.wait(self.outbox.purge_events(limit, keep_sent=keep_sent, keep_arrivals=keep_arrivals))
        left_events = {stored.event.id for stored in self.wait(self.outbox.find_events({}, 0, 1000))}
        left_handles = {handle.id for handle in self.wait(self.outbox.handles(CORRELATIONS))}
        left_arrivals = [each for name in CORRELATIONS for each in self.wait(self.outbox.arrivals(name))]
        gone_events = events - left_events
        gone_handles = handles - left_handles
        gone_arrivals = [each for each in arrivals if each not in left_arrivals]
        assert number == len(gone_events) + len(gone_handles) + len(gone_arrivals)
        assert len(gone_events) == min(limit, len(events))
        assert len(gone_arrivals) == min(limit, len(arrivals))
        assert len(gone_handles) <= limit
        if limit >= len(self.handle_ids):
            assert gone_handles == handles
        self.naive.drop(gone_events, gone_handles, gone_arrivals)

    @often(2, ms=st.sampled_from(PAUSES))
    def advance(self, ms: int) -> None:
        self.clock.advance(ms)

    # -- after each step

    @rule(where=filters, limit=st.sampled_from(LIMITS), skip=st.integers(0, 2))
    def find(self, where: dict[str, str], limit: int, skip: int) -> None:
        passed = [(0, 0)]
        for their, our in zip(self.wait(self.outbox.find_events({}, 0, skip)), self.naive.events, strict=False):
            passed.append((their.seq, our.seq))
        theirs, ours = passed[-1]
        found = self.wait(self.outbox.find_events(where, theirs, limit))
        assert facts(found) == facts(self.naive.find_events(where, ours, limit))

    @invariant()
    def no_event_differs(self) -> None:
        found = self.wait(self.outbox.find_events({}, 0, 1000))
        assert [stored.seq for stored in found] == sorted({stored.seq for stored in found})
        assert facts(found) == facts(self.naive.events)

    @invariant()
    def no_state_differs(self) -> None:
        theirs = self.wait(self.outbox.outbox_state())
        ours = self.naive.outbox_state()
        assert list(theirs.topics) == list(ours.topics)
        assert {group: dict(owners) for group, owners in theirs.owners.items()} == ours.owners
        assert dict(theirs.lag) == ours.lag
        assert dict(theirs.handles) == ours.handles

    @invariant()
    def no_handle_differs(self) -> None:
        assert list(self.wait(self.outbox.handles(CORRELATIONS))) == self.naive.handles(CORRELATIONS)
        for correlation in CORRELATIONS:
            assert list(self.wait(self.outbox.arrivals(correlation))) == self.naive.arrivals(correlation)


def facts(events: Sequence[OutboxEvent]) -> list[OutboxEvent]:
    """Without their seqs."""
    return [replace(stored, seq=0) for stored in events]
