"""The events of a memory store: outbox, log, groups, arrivals and resume handles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import merge
from typing import Literal

from msgspec.structs import replace

from onthedot.stores.contract import (
    BUCKETS,
    MAX_READ_BYTES,
    RELAYS,
    Arrival,
    HandleRecord,
    HandleStatus,
    NewEvent,
    OutboxEvent,
    OutboxState,
    TopicState,
    UnreadCount,
)
from onthedot.stores.rules.event_tables import MAX_SET_ASIDE, PendingPage, take_bytes
from onthedot.stores.rules.filters import check_event_filters, event_fits
from onthedot.stores.rules.outbox import as_seen, is_over


class MemoryEventTables:
    """Dicts by seq and id. `now` is set at the start of a call."""

    def __init__(self) -> None:
        self.now: float = 0
        self._seq = 0
        self._seqs: dict[str, int] = {}  # by id
        self._by_seq: dict[int, OutboxEvent] = {}
        self._pending: dict[int, dict[int, None]] = {bucket: {} for bucket in range(BUCKETS)}  # seqs, in order
        self._failed: dict[tuple[str, str], dict[int, None]] = {}  # by topic and key
        self._set_aside: dict[tuple[str, str], dict[int, None]] = {}  # pending, of keys with a failed event
        self._log: dict[int, dict[int, int]] = {bucket: {} for bucket in range(BUCKETS)}  # position → seq
        self._log_ends: dict[int, int] = dict.fromkeys(range(BUCKETS), 0)
        self._members: dict[str, dict[str, None]] = {}  # by group
        self._owners: dict[str, dict[int, str]] = {}
        self._committed: dict[str, dict[int, int]] = {}
        self._arrivals: dict[str, dict[str, Arrival]] = {}  # by correlation id, then event id
        self._handles: dict[str, HandleRecord] = {}  # oldest first

    # -- the outbox

    def insert(self, events: Sequence[NewEvent]) -> list[bool]:
        return [self._insert(event) for event in events]

    def _insert(self, event: NewEvent) -> bool:
        if event.id in self._seqs:
            return False
        self._seq += 1
        self._seqs[event.id] = self._seq
        self._by_seq[self._seq] = OutboxEvent(self._seq, event)
        self._pending[event.bucket][self._seq] = None
        return True

    def mark_sent(self, seqs: Sequence[int], *, to_log: bool) -> None:
        for seq in seqs:
            stored = self._by_seq.get(seq)
            if stored is None or stored.status not in ("pending", "failed"):
                continue
            self._leave(stored)
            position = self._append_to_log(stored) if to_log else None
            self._by_seq[seq] = replace(stored, status="sent", sent_at=int(self.now), position=position)

    def _append_to_log(self, stored: OutboxEvent) -> int:
        bucket = stored.event.bucket
        self._log_ends[bucket] += 1
        self._log[bucket][self._log_ends[bucket]] = stored.seq
        return self._log_ends[bucket]

    def mark_failed(self, refused: Mapping[int, str]) -> None:
        for seq, error in refused.items():
            stored = self._by_seq.get(seq)
            if stored is not None and stored.status == "pending":
                self._leave(stored)
                self._failed.setdefault((stored.event.topic, stored.event.key), {})[seq] = None
                self._by_seq[seq] = replace(stored, status="failed", error=error, attempts=stored.attempts + 1)

    def _leave(self, stored: OutboxEvent) -> None:
        event = stored.event
        place = (event.topic, event.key)
        self._pending[event.bucket].pop(stored.seq, None)
        self._set_aside.get(place, {}).pop(stored.seq, None)
        failed = self._failed.get(place)
        if failed is not None:
            failed.pop(stored.seq, None)
            if not failed:
                del self._failed[place]
                self._requeue(event.bucket, self._set_aside.pop(place, {}))

    def pending(
        self, buckets: Collection[int], in_flight: Collection[int], skip_topics: Collection[str], limit: int
    ) -> PendingPage:
        held = set(in_flight)
        found: list[OutboxEvent] = []
        behind: list[OutboxEvent] = []
        for seq in merge(*(self._pending[bucket] for bucket in buckets)):
            if len(found) == limit or len(behind) == MAX_SET_ASIDE:
                break
            stored = self._by_seq[seq]
            event = stored.event
            if event.topic in skip_topics:
                continue
            if (event.topic, event.key) in self._failed:
                behind.append(stored)
            elif seq not in held:
                found.append(stored)
        for stored in behind:
            del self._pending[stored.event.bucket][stored.seq]
            self._set_aside.setdefault((stored.event.topic, stored.event.key), {})[stored.seq] = None
        events, is_cut = take_bytes(found, MAX_READ_BYTES)
        return PendingPage(events, is_cut or len(found) == limit or len(behind) == MAX_SET_ASIDE)

    def amend(self, ids: Sequence[str], action: Literal["retry", "discard"], reason: str) -> list[str]:
        amended: list[str] = []
        for event_id in dict.fromkeys(ids):
            stored = self._by_seq.get(self._seqs.get(event_id, 0))
            if stored is None or stored.status != "failed":
                continue
            self._leave(stored)
            if action == "retry":
                self._by_seq[stored.seq] = replace(stored, status="pending", error="")
                self._requeue(stored.event.bucket, [stored.seq])
            else:
                self._by_seq[stored.seq] = replace(
                    stored, status="discarded", sent_at=int(self.now), error=reason or stored.error
                )
            amended.append(event_id)
        return amended

    def _requeue(self, bucket: int, seqs: Collection[int]) -> None:
        if seqs:
            self._pending[bucket] = dict.fromkeys(sorted([*self._pending[bucket], *seqs]))

    # -- groups

    def join(self, group: str, session: str) -> Sequence[str]:
        members = self._members.setdefault(group, {})
        members[session] = None
        return list(members)

    def leave_groups(self, session: str) -> bool:
        """Whether it was in one."""
        groups = [group for group, members in self._members.items() if session in members]
        for group in groups:
            del self._members[group][session]
            owners = self._owners.get(group, {})
            self._owners[group] = {bucket: owner for bucket, owner in owners.items() if owner != session}
        return bool(groups)

    def members(self) -> set[str]:
        """Of all groups."""
        return {session for members in self._members.values() for session in members}

    def owners(self, group: str) -> Mapping[int, str]:
        return dict(self._owners.get(group, {}))

    def set_owner(self, group: str, bucket: int, session: str | None) -> None:
        owners = self._owners.setdefault(group, {})
        if session is None:
            owners.pop(bucket, None)
        else:
            owners[bucket] = session

    def committed(self, group: str) -> Mapping[int, int]:
        return self._committed.get(group, {})

    def commit(self, group: str, bucket: int, position: int) -> None:
        self._committed.setdefault(group, {})[bucket] = position

    def read_log(
        self, bucket: int, topics: Collection[str], after: int, limit: int, most: int
    ) -> tuple[list[OutboxEvent], int]:
        found: list[OutboxEvent] = []
        size = 0
        log = self._log[bucket]
        for position in range(after + 1, self._log_ends[bucket] + 1):
            stored = self._by_seq.get(log.get(position, 0))  # old ones are purged
            if stored is not None and stored.event.topic in topics:
                found.append(stored)
                size += stored.event.size
                if len(found) == limit or size >= most:
                    return found, position
        return found, max(after, self._log_ends[bucket])

    # -- resume handles

    def insert_arrivals(self, arrivals: Sequence[Arrival]) -> None:
        for arrival in arrivals:
            arrived = self._arrivals.setdefault(arrival.correlation_id, {})
            arrived.setdefault(arrival.event_id, replace(arrival, at=int(self.now)))

    def arrivals(self, correlation_id: str) -> list[Arrival]:
        return list(self._arrivals.get(correlation_id, {}).values())

    def count_arrivals(self, correlation_id: str) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        for arrival in self._arrivals.get(correlation_id, {}).values():
            counts[arrival.type] = counts.get(arrival.type, 0) + 1
        return counts

    def handles_of(self, correlation_id: str) -> list[HandleRecord]:
        return [handle for handle in self._handles.values() if handle.correlation_id == correlation_id]

    def find_handle(self, handle_id: str) -> HandleRecord | None:
        return self._handles.get(handle_id)

    def save_handle(self, handle: HandleRecord) -> None:
        self._handles[handle.id] = handle

    def set_status(self, handle_id: str, status: HandleStatus, ended: int) -> None:
        self._handles[handle_id] = replace(self._handles[handle_id], status=status, ended=ended)

    # -- reads

    def find(self, where: Mapping[str, str], after: int, limit: int) -> list[OutboxEvent]:
        check_event_filters(where)
        found = [stored for seq, stored in self._by_seq.items() if seq > after and event_fits(stored, where)]
        return found[:limit]

    def state(self, now: float) -> OutboxState:
        topics = sorted({stored.event.topic for stored in self._unsent()})
        handles: dict[HandleStatus, int] = {}
        for handle in self._handles.values():
            status = as_seen(handle, now).status
            handles[status] = handles.get(status, 0) + 1
        return OutboxState(
            [self._topic_state(topic) for topic in topics],
            {group: dict(owners) for group, owners in self._owners.items() if owners},
            {group: self._lag(group) for group in self._members.keys() | self._committed.keys() if group != RELAYS},
            handles,
        )

    def _unsent(self) -> Iterator[OutboxEvent]:
        for stored in self._by_seq.values():
            if stored.status in ("pending", "failed"):
                yield stored

    def _topic_state(self, topic: str) -> TopicState:
        unsent = [stored for stored in self._unsent() if stored.event.topic == topic]
        pending = [stored.event.occurred_at for stored in unsent if stored.status == "pending"]
        failed = [stored for stored in unsent if stored.status == "failed"]
        blocked = {stored.event.key for stored in failed}
        error = failed[-1].error if failed else ""
        return TopicState(topic, len(pending), min(pending, default=None), len(failed), len(blocked), error)

    def _lag(self, group: str) -> int:
        committed = self._committed.get(group, {})
        return sum(position > committed.get(bucket, 0) for bucket in self._log for position in self._log[bucket])

    def unread(self, group: str, topics: Collection[str]) -> list[UnreadCount]:
        committed = self._committed.get(group, {})
        counts: Counter[tuple[str, int]] = Counter()
        for bucket, log in self._log.items():
            for position, seq in log.items():
                topic = self._by_seq[seq].event.topic
                if position > committed.get(bucket, 0) and topic in topics:
                    counts[topic, bucket] += 1
        return [UnreadCount(topic, bucket, count) for (topic, bucket), count in sorted(counts.items())]

    # -- retention

    def purge(self, limit: int, keep_sent: int, keep_arrivals: int) -> int:
        old = [stored for stored in self._by_seq.values() if _is_over(stored, self.now - keep_sent)][:limit]
        for stored in old:
            del self._by_seq[stored.seq], self._seqs[stored.event.id]
            if stored.position is not None:
                del self._log[stored.event.bucket][stored.position]
        return len(old) + self._purge_handles(limit, keep_sent) + self._purge_arrivals(limit, keep_arrivals)

    def _purge_handles(self, limit: int, keep: int) -> int:
        """A handle past its time is expired first; then it is kept like any other that has ended."""
        for handle in [handle for handle in self._handles.values() if is_over(handle, self.now)][:limit]:
            self.set_status(handle.id, "expired", handle.expires_at)
        old = [
            handle for handle in self._handles.values() if handle.ended is not None and handle.ended <= self.now - keep
        ][:limit]
        for handle in old:
            del self._handles[handle.id]
            if not self.handles_of(handle.correlation_id):
                self._arrivals.pop(handle.correlation_id, None)
        return len(old)

    def _purge_arrivals(self, limit: int, keep: int) -> int:
        known = {handle.correlation_id for handle in self._handles.values()}
        old = [
            arrival
            for correlation_id, arrived in self._arrivals.items()
            if correlation_id not in known
            for arrival in arrived.values()
            if arrival.at <= self.now - keep
        ][:limit]
        for arrival in old:
            del self._arrivals[arrival.correlation_id][arrival.event_id]
            if not self._arrivals[arrival.correlation_id]:
                del self._arrivals[arrival.correlation_id]
        return len(old)


def _is_over(stored: OutboxEvent, before: float) -> bool:
    return stored.status in ("sent", "discarded") and stored.sent_at is not None and stored.sent_at <= before
