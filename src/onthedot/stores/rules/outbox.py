"""Rules of the outbox: owners of buckets, reading the log, completion of resume handles."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from math import ceil
from typing import NamedTuple

from msgspec.structs import replace

from onthedot.stores.contract import (
    BUCKETS,
    MAX_READ_BYTES,
    RELAYS,
    HandleRecord,
    LogPage,
    NewEvent,
    NewTask,
    OutboxEvent,
    RelayRequest,
    RelayResult,
)
from onthedot.stores.rules.event_tables import OutboxTables
from onthedot.stores.rules.insert import add
from onthedot.stores.rules.sessions import reap_overdue


class Share(NamedTuple):
    """The buckets of a member."""

    kept: list[int]
    draining: list[int]  # above its share, but busy: it gets no more of them


def publish(tables: OutboxTables, events: Sequence[NewEvent]) -> list[bool]:
    """Keep events; the relays are notified."""
    fresh = tables.events.insert(events)
    if any(fresh):
        tables.notifications.events = True
    return fresh


def relay(
    tables: OutboxTables,
    session: str,
    sent: Sequence[int],
    refused: Mapping[int, str],
    request: RelayRequest | None,
    *,
    to_log: bool,
) -> RelayResult:
    """Mark first: a sent event is on the bus, also if its bucket has another owner now."""
    if sent:
        tables.events.mark_sent(sent, to_log=to_log)
        tables.notifications.events = tables.notifications.events or to_log
    if refused:
        tables.events.mark_failed(refused)
    if request is None:
        return RelayResult(alive=tables.find_session(session) is not None)
    share = _share(tables, RELAYS, session, request.busy)
    if share is None:
        return RelayResult(alive=False)
    page = tables.events.pending(share.kept, request.in_flight, request.skip_topics, request.limit)
    return RelayResult(alive=True, events=page.events, buckets=sorted(share.kept + share.draining), more=page.more)


def _share(tables: OutboxTables, group: str, session: str, busy: Collection[int]) -> Share | None:
    """Take and give back buckets. None: the session is over."""
    reap_overdue(tables)
    if tables.find_session(session) is None:
        return None
    members = tables.events.join(group, session)
    owners = tables.events.owners(group)
    most = ceil(BUCKETS / len(members))
    own = sorted(bucket for bucket, owner in owners.items() if owner == session)
    kept = own[:most]
    draining = [bucket for bucket in own[most:] if bucket in busy]
    for bucket in own[most:]:
        if bucket not in busy:
            tables.events.set_owner(group, bucket, None)
            tables.notifications.events = True
    for bucket in islice((free for free in range(BUCKETS) if free not in owners), most - len(kept)):
        tables.events.set_owner(group, bucket, session)
        kept.append(bucket)
    return Share(kept, draining)


def read_log(
    tables: OutboxTables, group: str, session: str, topics: Collection[str], after: Mapping[int, int], limit: int
) -> LogPage:
    """Every bucket may fill an equal part of the page, except those that are given back when they are not named."""
    share = _share(tables, group, session, busy=after)
    if share is None:
        return LogPage(alive=False)
    committed = tables.events.committed(group)
    events: list[OutboxEvent] = []
    positions: dict[int, int] = {}
    part = max(1, len(share.kept))
    for bucket in sorted(share.kept):
        start = after.get(bucket, committed.get(bucket, 0))
        found, positions[bucket] = tables.events.read_log(
            bucket, topics, start, max(1, limit // part), MAX_READ_BYTES // part
        )
        events += found
    return LogPage(alive=True, events=events, buckets=positions)


def commit_positions(tables: OutboxTables, group: str, session: str, positions: Mapping[int, int]) -> None:
    """Of owned buckets, forwards only."""
    owners = tables.events.owners(group)
    committed = tables.events.committed(group)
    for bucket, position in positions.items():
        if owners.get(bucket) == session and position > committed.get(bucket, 0):
            tables.events.commit(group, bucket, position)


def complete_handles(
    tables: OutboxTables, correlation_ids: Sequence[str], resumed: Sequence[str]
) -> list[HandleRecord]:
    """Count the arrivals of pending handles."""
    now = int(tables.now)
    for handle_id in resumed:
        handle = tables.events.find_handle(handle_id)
        if handle is not None and handle.status == "complete":
            tables.events.set_status(handle_id, "resumed", now)
    complete: list[HandleRecord] = []
    for correlation_id in dict.fromkeys(correlation_ids):
        for handle in tables.events.handles_of(correlation_id):
            if handle.status == "complete":
                complete.append(handle)
            elif is_over(handle, tables.now):
                tables.events.set_status(handle.id, "expired", handle.expires_at)
            elif handle.status == "pending" and is_met(handle, tables.events.count_arrivals(correlation_id)):
                tables.events.set_status(handle.id, "complete", now)
                complete.append(replace(handle, status="complete", ended=now))
    return complete


def is_over(handle: HandleRecord, now: float) -> bool:
    """Its time is over, whether or not its status says so."""
    return handle.status == "pending" and handle.expires_at <= now


def is_met(handle: HandleRecord, arrived: Mapping[str, int]) -> bool:
    return all(sum(arrived.get(each, 0) for each in types) >= number for types, number in handle.expected)


def as_seen(handle: HandleRecord, now: float) -> HandleRecord:
    """As a reader sees it."""
    return replace(handle, status="expired", ended=handle.expires_at) if is_over(handle, now) else handle


def create_handle(tables: OutboxTables, handle: HandleRecord, tasks: Sequence[NewTask]) -> HandleRecord:
    """Unless it exists, or another one of its correlation id waits."""
    existing = tables.events.find_handle(handle.id)
    if existing is not None:
        return as_seen(existing, tables.now)
    for other in tables.events.handles_of(handle.correlation_id):
        if is_over(other, tables.now):
            tables.events.set_status(other.id, "expired", other.expires_at)
        elif other.status == "pending":
            return other
    now = int(tables.now)
    created = replace(handle, status="pending", created=now, expires_at=now + handle.timeout, ended=None)
    tables.events.save_handle(created)
    add(tables, tasks)
    return created
