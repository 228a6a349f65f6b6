"""The JSON of flows, batches, signals, the outbox and the audit log; `schemas` has the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from onthedot.web.schemas import Moment, PauseRow, TaskListRow


class FlowRow(Struct, frozen=True, kw_only=True):
    """A flow. id: the uuid of its last task."""

    id: str
    source: str
    state: str
    done: int
    failed: int
    total: int
    started_at: Moment
    ended_at: Moment | None


class FlowNode(Struct, frozen=True, kw_only=True):
    """Tasks of a flow with one source and one place in it. uuid: of one of them."""

    id: int
    source: str
    count: int
    states: Mapping[str, int]
    uuid: str
    remark: str


class FlowFailureRow(Struct, frozen=True):
    """A task of a flow that did not succeed by itself."""

    uuid: str
    source: str
    state: str
    error: str


class FlowDetail(Struct, frozen=True, kw_only=True):
    """A flow in full. edges: pairs of nodes, the second waits for the first."""

    flow: FlowRow
    states: Mapping[str, int]
    nodes: Sequence[FlowNode]
    edges: Sequence[tuple[int, int]]
    waits: str
    blocked_by: Sequence[str]
    first_failures: Sequence[FlowFailureRow]


class BatchRow(Struct, frozen=True, kw_only=True):
    """A batch. done, failed, total: parts; items of count: what it has made."""

    id: str
    source: str
    type: str
    state: str
    done: int
    failed: int
    total: int
    items: int
    count: int
    started_at: Moment
    ended_at: Moment | None
    degraded: bool
    reason: str


class PartRow(Struct, frozen=True):
    """A part of a batch that has ended. refused: items by reason."""

    number: int
    uuid: str
    items: int
    refused: Mapping[str, int]
    error: str
    ended_at: Moment | None


class BatchDetail(Struct, frozen=True, kw_only=True):
    """A batch in full. waits: why it does not go on."""

    batch: BatchRow
    parts: Sequence[PartRow]
    waits: str


class WaitingRow(Struct, frozen=True, kw_only=True):
    """A task that waits for signals."""

    uuid: str
    short_id: str
    source: str
    signals: Sequence[str]
    since: Moment | None
    until: Moment | None


class SignalRow(Struct, frozen=True, kw_only=True):
    """A kept signal."""

    name: str
    id: str
    at: Moment
    payload: Any


class SignalSent(Struct, frozen=True):
    """added: False: a signal with this id is kept already."""

    added: bool


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


class OutboxDetail(Struct, frozen=True, kw_only=True):
    """The outbox. handles: resume handles by status."""

    pending: int
    failed: int
    topics: Sequence[TopicRow]
    relays: Sequence[RelayRow]
    groups: Sequence[GroupRow]
    paused: PauseRow | None
    handles: Mapping[str, int]


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
