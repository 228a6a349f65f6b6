"""The reference implementation of the outbox: lists, and loops over all of them. Stores are compared with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor
from typing import Literal

from msgspec.structs import replace

from onthedot.clock.protocol import Clock
from onthedot.stores.contract import (
    BUCKETS,
    MAX_READ_BYTES,
    RELAYS,
    Arrival,
    HandleRecord,
    HandleStatus,
    LogPage,
    NewEvent,
    OutboxEvent,
    OutboxState,
    RelayRequest,
    RelayResult,
    TopicState,
)

Filters = Mapping[str, str]


@dataclass
class Group:
    """Sessions that share the buckets."""

    members: list[str] = field(default_factory=list[str])
    owners: dict[int, str] = field(default_factory=dict[int, str])
    committed: dict[int, int] = field(default_factory=dict[int, int])


def _first_bytes(events: list[OutboxEvent], most: int) -> list[OutboxEvent]:
    """Up to the one with which they have so many bytes."""
    return [stored for at, stored in enumerate(events) if sum(each.event.size for each in events[:at]) < most]


class NaiveOutbox:
    """Synchronous, and slow on purpose."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._published = 0
        self.events: list[OutboxEvent] = []  # by seq
        self._log_ends: Counter[int] = Counter()  # of buckets
        self._sessions: dict[str, float] = {}  # until when each lives
        self._dead: set[str] = set()
        self._groups: dict[str, Group] = {}
        self.arrived: list[Arrival] = []
        self.kept_handles: list[HandleRecord] = []  # oldest first
        self.added: set[str] = set()  # uuids of tasks that came with handles

    @property
    def now(self) -> float:
        return self._clock.now()

    # -- sessions

    def heartbeat(self, session: str, lease: int) -> bool:
        if session in self._dead:
            return False
        self._sessions[session] = self.now + lease
        return True

    def close_session(self, session: str, *, crashed: bool) -> None:
        self._sessions.pop(session, None)
        if crashed:
            self._dead.add(session)
        for group in self._groups.values():
            group.members = [member for member in group.members if member != session]
            group.owners = {bucket: owner for bucket, owner in group.owners.items() if owner != session}

    def reap(self) -> None:
        for session in [name for name, until in self._sessions.items() if until <= self.now]:
            self.close_session(session, crashed=True)

    # -- the outbox

    def publish(self, events: Iterable[NewEvent]) -> list[bool]:
        return [self._publish(event) for event in events]

    def _publish(self, event: NewEvent) -> bool:
        if any(stored.event.id == event.id for stored in self.events):
            return False
        self._published += 1
        self.events.append(OutboxEvent(self._published, event))
        return True

    def relay(
        self,
        session: str,
        sent: Sequence[int],
        refused: Mapping[int, str],
        request: RelayRequest | None,
        *,
        to_log: bool,
    ) -> RelayResult:
        for seq in sent:
            self._mark_sent(seq, to_log=to_log)
        for seq, error in refused.items():
            self._mark_failed(seq, error)
        if request is None:
            return RelayResult(alive=session in self._sessions)
        own = self._share(RELAYS, session, request.busy)
        if own is None:
            return RelayResult(alive=False)
        most = self._most(RELAYS)
        found = [
            stored
            for stored in self.events
            if stored.status == "pending"
            and stored.event.bucket in own[:most]
            and stored.event.topic not in request.skip_topics
            and stored.seq not in request.in_flight
            and not self._is_blocked(stored.event)
        ]
        events = _first_bytes(found[: request.limit], MAX_READ_BYTES)
        more = len(found) >= request.limit or len(events) < len(found)
        return RelayResult(alive=True, events=events, buckets=sorted(own), more=more)

    def _is_blocked(self, event: NewEvent) -> bool:
        failed = [stored.event for stored in self.events if stored.status == "failed"]
        return (event.topic, event.key) in {(other.topic, other.key) for other in failed}

    def _mark_sent(self, seq: int, *, to_log: bool) -> None:
        for number, stored in enumerate(self.events):
            if stored.seq != seq or stored.status in ("sent", "discarded"):
                continue
            position = None
            if to_log:
                self._log_ends[stored.event.bucket] += 1
                position = self._log_ends[stored.event.bucket]
            self.events[number] = replace(stored, status="sent", sent_at=floor(self.now), position=position)

    def _mark_failed(self, seq: int, error: str) -> None:
        for number, stored in enumerate(self.events):
            if stored.seq == seq and stored.status == "pending":
                attempts = stored.attempts + 1
                self.events[number] = replace(stored, status="failed", error=error, attempts=attempts)

    def amend_events(self, ids: Sequence[str], action: Literal["retry", "discard"], reason: str) -> list[str]:
        return [event_id for event_id in dict.fromkeys(ids) if self._amend(event_id, action, reason)]

    def _amend(self, event_id: str, action: Literal["retry", "discard"], reason: str) -> bool:
        for number, stored in enumerate(self.events):
            if stored.event.id == event_id and stored.status == "failed":
                retried = replace(stored, status="pending", error="")
                given_up = replace(stored, status="discarded", sent_at=floor(self.now), error=reason or stored.error)
                self.events[number] = retried if action == "retry" else given_up
                return True
        return False

    # -- groups and the log

    def _most(self, group: str) -> int:
        members = len(self._groups[group].members)
        return BUCKETS // members + (BUCKETS % members > 0)

    def _share(self, name: str, session: str, busy: Collection[int]) -> list[int] | None:
        """The buckets that it keeps, then those that are busy and above its share."""
        self.reap()
        if session not in self._sessions:
            return None
        group = self._groups.setdefault(name, Group())
        if session not in group.members:
            group.members.append(session)
        most = self._most(name)
        free = [bucket for bucket in range(BUCKETS) if bucket not in group.owners]
        own = sorted(bucket for bucket, owner in group.owners.items() if owner == session)
        for bucket in own[most:]:
            if bucket not in busy:
                del group.owners[bucket]
        draining = [bucket for bucket in own[most:] if bucket in busy]
        taken = free[: max(0, most - len(own))]
        group.owners |= dict.fromkeys(taken, session)
        return [*own[:most], *taken, *draining]

    def read_log(
        self, group: str, session: str, topics: Sequence[str], after: Mapping[int, int], limit: int
    ) -> LogPage:
        owned = self._share(group, session, after)
        if owned is None:
            return LogPage(alive=False)
        own = owned[: self._most(group)]
        found: list[OutboxEvent] = []
        positions: dict[int, int] = {}
        for bucket in sorted(own):
            start = after.get(bucket, self._groups[group].committed.get(bucket, 0))
            fitting = [stored for stored in self._log(bucket, start) if stored.event.topic in topics]
            most = MAX_READ_BYTES // len(own)
            page = _first_bytes(fitting[: max(1, limit // len(own))], most)
            found += page
            is_full = len(page) == max(1, limit // len(own)) or sum(each.event.size for each in page) >= most
            end = page[-1].position if is_full else max(start, self._log_ends[bucket])
            assert end is not None
            positions[bucket] = end
        return LogPage(alive=True, events=found, buckets=positions)

    def _log(self, bucket: int, after: int) -> list[OutboxEvent]:
        log = [(stored.position, stored) for stored in self.events if stored.event.bucket == bucket]
        later = [(position, stored) for position, stored in log if position is not None and position > after]
        return [stored for _, stored in sorted(later, key=lambda entry: entry[0])]

    def commit_positions(self, group: str, session: str, positions: Mapping[int, int]) -> None:
        known = self._groups.get(group, Group())
        for bucket, position in positions.items():
            if known.owners.get(bucket) == session:
                known.committed[bucket] = max(position, known.committed.get(bucket, 0))

    # -- resume handles

    def record_arrivals(self, arrivals: Sequence[Arrival]) -> None:
        for new in arrivals:
            known = {(each.correlation_id, each.event_id) for each in self.arrived}
            if (new.correlation_id, new.event_id) not in known:
                self.arrived.append(replace(new, at=floor(self.now)))

    def arrivals(self, correlation_id: str) -> list[Arrival]:
        return [each for each in self.arrived if each.correlation_id == correlation_id]

    def handles(self, correlation_ids: Sequence[str]) -> list[HandleRecord]:
        return [
            self._as_seen(handle)
            for correlation_id in correlation_ids
            for handle in self.kept_handles
            if handle.correlation_id == correlation_id
        ]

    def _as_seen(self, handle: HandleRecord) -> HandleRecord:
        if handle.status == "pending" and handle.expires_at <= self.now:
            return replace(handle, status="expired", ended=handle.expires_at)
        return handle

    def create_handle(self, handle: HandleRecord, task: str) -> HandleRecord:
        """task: uuid of a task that is added with it."""
        for known in self.kept_handles:
            if known.id == handle.id:
                return self._as_seen(known)
        for known in self.kept_handles:
            if known.correlation_id == handle.correlation_id and self._as_seen(known).status == "pending":
                return known
        created = floor(self.now)
        new = replace(handle, status="pending", created=created, expires_at=created + handle.timeout, ended=None)
        self.kept_handles.append(new)
        self.added.add(task)
        return new

    def complete_handles(self, correlation_ids: Sequence[str], resumed: Sequence[str]) -> list[HandleRecord]:
        for handle_id in resumed:
            self._end_handle(handle_id, "complete", "resumed")
        for handle in self.handles(list(dict.fromkeys(correlation_ids))):
            if self._is_met(handle):
                self._end_handle(handle.id, "pending", "complete")
        return [handle for handle in self.handles(list(dict.fromkeys(correlation_ids))) if handle.status == "complete"]

    def _is_met(self, handle: HandleRecord) -> bool:
        types = [arrival.type for arrival in self.arrivals(handle.correlation_id)]
        return all(sum(each in wanted for each in types) >= number for wanted, number in handle.expected)

    def _end_handle(self, handle_id: str, before: HandleStatus, after: HandleStatus) -> None:
        for number, handle in enumerate(self.kept_handles):
            if handle.id == handle_id and self._as_seen(handle).status == before:
                self.kept_handles[number] = replace(handle, status=after, ended=floor(self.now))

    # -- reads

    def find_events(self, where: Filters, after: int, limit: int) -> list[OutboxEvent]:
        return [stored for stored in self.events if stored.seq > after and _facts(stored) >= where.items()][:limit]

    def outbox_state(self) -> OutboxState:
        unsent = [stored for stored in self.events if stored.status in ("pending", "failed")]
        topics = sorted({stored.event.topic for stored in unsent})
        statuses = Counter(self._as_seen(handle).status for handle in self.kept_handles)
        return OutboxState(
            [_topic_state(topic, [each for each in unsent if each.event.topic == topic]) for topic in topics],
            {name: group.owners for name, group in self._groups.items() if group.owners},
            {name: self._lag(group) for name, group in self._groups.items() if name != RELAYS},
            dict(statuses),
        )

    def unread(self, name: str, topics: Collection[str]) -> dict[tuple[str, int], int]:
        """By topic and bucket."""
        group = self._groups.get(name, Group())
        counts: Counter[tuple[str, int]] = Counter()
        for bucket in range(BUCKETS):
            later = self._log(bucket, group.committed.get(bucket, 0))
            counts.update((stored.event.topic, bucket) for stored in later if stored.event.topic in topics)
        return counts

    def _lag(self, group: Group) -> int:
        return sum(len(self._log(bucket, group.committed.get(bucket, 0))) for bucket in range(BUCKETS))

    # -- retention: what a purge may delete

    def old_events(self, keep: int) -> list[OutboxEvent]:
        ended = [stored for stored in self.events if stored.status in ("sent", "discarded")]
        return [stored for stored in ended if (stored.sent_at or 0) <= self.now - keep]

    def old_handles(self, keep: int) -> list[HandleRecord]:
        seen = [self._as_seen(handle) for handle in self.kept_handles]
        return [handle for handle in seen if handle.ended is not None and handle.ended <= self.now - keep]

    def old_arrivals(self, keep: int) -> list[Arrival]:
        """Without a handle."""
        known = {handle.correlation_id for handle in self.kept_handles}
        return [each for each in self.arrived if each.correlation_id not in known and each.at <= self.now - keep]

    def drop(self, events: Collection[str], handles: Collection[str], arrivals: Collection[Arrival]) -> None:
        """Events and handles by id."""
        self.events = [stored for stored in self.events if stored.event.id not in events]
        ended = {handle.correlation_id for handle in self.kept_handles if handle.id in handles}
        self.kept_handles = [handle for handle in self.kept_handles if handle.id not in handles]
        over = ended - {handle.correlation_id for handle in self.kept_handles}
        self.arrived = [each for each in self.arrived if each not in arrivals and each.correlation_id not in over]


def _facts(stored: OutboxEvent) -> set[tuple[str, str | None]]:
    event = stored.event
    return {
        ("id", event.id),
        ("status", stored.status),
        ("topic", event.topic),
        ("key", event.key),
        ("correlation", event.correlation_id),
    }


def _topic_state(topic: str, unsent: Sequence[OutboxEvent]) -> TopicState:
    pending = [stored.event.occurred_at for stored in unsent if stored.status == "pending"]
    failed = [stored for stored in unsent if stored.status == "failed"]
    error = failed[-1].error if failed else ""
    oldest = min(pending) if pending else None
    return TopicState(topic, len(pending), oldest, len(failed), len({each.event.key for each in failed}), error)
