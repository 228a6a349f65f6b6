"""The JSON of the outbox, the audit log and bulk actions; `schemas` and `flow_schemas` have the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from onthedot.web.schemas import Moment, PauseRow, TaskListRow


class TopicRow(Struct, frozen=True, kw_only=True):
    """The outbox of one topic."""

    topic: str
    pending: int
    oldest: Moment | None
    sent_per_minute: int
    failed: int
    blocked_keys: int
    error: str
    paused: PauseRow | None


class RelayRow(Struct, frozen=True, kw_only=True):
    """A live relay and the buckets that it owns, of 16."""

    id: str
    host: str
    pid: int
    since: Moment | None
    bus: str
    buckets: Sequence[int]


class GroupRow(Struct, frozen=True):
    """A group that reads the store bus. lag: events that it has not committed."""

    group: str
    lag: int
    members: int


class EventRow(Struct, frozen=True, kw_only=True):
    """An event of the outbox, without its payload. number: its place in the order of publishing."""

    id: str
    number: int
    topic: str
    key: str
    type: str
    status: str
    occurred_at: Moment
    sent_at: Moment | None
    correlation_id: str | None
    attempts: int
    error: str


class EventList(Struct, frozen=True):
    """A page of events; cursor: None: the last page."""

    items: Sequence[EventRow]
    cursor: str | None


class OutboxDetail(Struct, frozen=True, kw_only=True):
    """The outbox. handles: resume handles by status; failed_events: the first 50, of which `failed` is the number."""

    pending: int
    failed: int
    topics: Sequence[TopicRow]
    relays: Sequence[RelayRow]
    groups: Sequence[GroupRow]
    paused: PauseRow | None
    handles: Mapping[str, int]
    failed_events: Sequence[EventRow]


class AuditRow(Struct, frozen=True, kw_only=True):
    """A change by an operator."""

    id: str
    at: Moment
    user: str
    role: str
    via: str
    action: str
    target: str
    filter: str
    reason: str
    state: str
    found: int
    done: int
    changed: int
    error: str


class AuditList(Struct, frozen=True):
    """A page of changes, newest first; cursor: None: the last page."""

    items: Sequence[AuditRow]
    cursor: str | None


class BulkPreview(Struct, frozen=True):
    """The tasks that a bulk action would change. token: starts it, for 10 minutes.

    exact: False: so many so far; the same request with `cursor` counts on, and has no token before the end
    """

    count: int
    exact: bool
    sample: Sequence[TaskListRow]
    token: str
    expires_at: Moment
    cursor: str | None = None


class BulkActionDetail(Struct, frozen=True, kw_only=True):
    """A bulk action and its progress. rate: tasks per second."""

    id: str
    action: str
    state: str
    filter: str
    found: int
    done: int
    changed: int
    rate: float
    user: str
    reason: str
    started_at: Moment
    error: str
