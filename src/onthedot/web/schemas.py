"""The JSON of the HTTP API. Inside v1 fields and values are only added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import Meta, Struct

Moment = Annotated[datetime, Meta(tz=True)]
State = Literal["scheduled", "ready", "running", "waiting", "succeeded", "failed", "cancelled"]
Count = Annotated[int, Meta(ge=0)]
T = TypeVar("T")


class ErrorDetail(Struct, frozen=True, omit_defaults=True):
    """An error. code: stable; request_id: as in the log of the server."""

    code: str
    message: str
    request_id: str
    field: str | None = None
    candidates: Sequence[str] | None = None


class ErrorAnswer(Struct, frozen=True):
    """The body of every answer with a status of 400 or more."""

    error: ErrorDetail


class Changed(Struct, frozen=True):
    """How many tasks, events or pauses an operation has changed."""

    changed: int


class ErrorText(Struct, frozen=True):
    """An error in a row."""

    type: str
    message: str


class TaskListRow(Struct, frozen=True, kw_only=True):
    """A task in a list."""

    uuid: str
    short_id: str
    source: str
    label: str
    state: State
    reason: str
    attempt: int
    max_retries: int
    priority: int
    tags: Sequence[str]
    lane: str | None
    added_at: Moment
    due_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    duration_ms: float | None
    worker: str | None
    error: ErrorText | None
    args_preview: str
    progress: tuple[float, float] | None
    flow: str | None
    cancel_wanted: bool


class StateCount(Struct, frozen=True):
    """How many tasks of a state match. exact: False: at least so many."""

    n: int
    exact: bool


class TaskList(Struct, frozen=True, kw_only=True):
    """A page of tasks. scanned: records that were read; scanned_to: when the oldest of them was added."""

    items: Sequence[TaskListRow]
    cursor: str | None
    scanned: int
    scanned_to: Moment | None
    counts: Mapping[str, StateCount] | None = None


class LimitRow(Struct, frozen=True, kw_only=True):
    """A limit in force. changed: fields that an operator has set; rate: per second."""

    name: str
    cap: int | None
    rate: float | None
    burst: float | None
    paused: bool
    reason: str
    changed: Sequence[str]


class PauseRow(Struct, frozen=True):
    """A pause. key: None: of the whole source."""

    key: str | None
    reason: str
    since: Moment | None


class SourceLimitRow(Struct, frozen=True):
    """A limit of a source. by: code or operator; user, at: of its newest change in the audit log."""

    name: str
    cap: int | None
    rate: float | None
    burst: float
    by: str
    user: str | None = None
    at: Moment | None = None


class SourceHourRow(Struct, frozen=True):
    """Tasks of a source in the last hour. done: ended without a failure, per five minutes; latency: due time to start.

    latency_p95_ms is None if nothing started
    """

    done: Sequence[int]
    failed: int
    retried: int
    latency_p95_ms: float | None


class SourceRates(Struct, frozen=True):
    """Tasks per second, over the last ten seconds."""

    started: float
    done: float
    failed: float
    retried: float


class SourceRow(Struct, frozen=True, kw_only=True):
    """A source, or a lane that sources share ("@openai"). oldest_ready: seconds since its next task was due."""

    name: str
    ready: int
    parked: int
    scheduled: int
    running: int
    waiting: int
    succeeded: int
    failed: int
    cancelled: int
    workers: int
    p50_ms: float | None
    p95_ms: float | None
    limits: Sequence[SourceLimitRow]
    paused: PauseRow | None
    paused_keys: Sequence[PauseRow]
    mode: Literal["", "frozen", "degraded"]
    rates: SourceRates | None
    oldest_ready: float | None = None
    hour: SourceHourRow | None = None


class FailureRow(Struct, frozen=True, kw_only=True):
    """Failed tasks with the same source, error and place. trend: failures per 24th part of the time asked for."""

    group: str
    source: str
    type: str
    message: str
    place: str
    count: int
    first: Moment | None
    last: Moment | None
    example: str
    trend: Sequence[int]


class FailureList(Struct, frozen=True, kw_only=True):
    """Groups of failures. counted: of all groups together; total: failed tasks that are kept, also older ones.

    A count in the background reads the newest 100,000. as_of: when it was right; counted_to: while the first one goes
    on, the end of the oldest task that it has read; read: how many it has read
    """

    items: Sequence[FailureRow]
    counted: int
    as_of: Moment
    total: int
    read: int
    counted_to: Moment | None


class AttentionAction(Struct, frozen=True):
    """The request that deals with an attention item, relative to /api/v1; GET: a page or view to open."""

    label: str
    method: str
    path: str
    body: Any = None


class HolderRow(Struct, frozen=True, kw_only=True):
    """A running task that holds a slot of a limit. worker: the id of its session."""

    uuid: str
    short_id: str
    worker: str | None
    started_at: Moment | None


class AttentionRow(Struct, frozen=True, kw_only=True):
    """A condition that an operator should act on. holders: of a limit: the tasks that have been running longest.

    Of failures: last: the newest one; trend: failures per 24th part of the last hour; release: the code release after
    whose first start all of them failed
    """

    kind: str
    severity: Literal["error", "warning", "info"]
    text: str
    size: int
    since: Moment | None
    source: str | None
    group: str | None
    action: AttentionAction | None
    holders: Sequence[HolderRow] = ()
    last: Moment | None = None
    trend: Sequence[int] = ()
    release: str | None = None


class AttentionList(Struct, frozen=True):
    """The worst conditions, and how many more there are: part of the overview, and the data of its message."""

    attention: Sequence[AttentionRow]
    more_attention: int


class SeriesDetail(Struct, frozen=True, kw_only=True):
    """Values over time, by name. step: seconds; at: when each span begins; times are in milliseconds.

    A value is null where no worker was alive, and where nothing was timed.
    """

    step: int
    at: Sequence[Moment]
    series: Mapping[str, Sequence[float | None]]


class OverviewFigures(Struct, frozen=True, kw_only=True):
    """Seconds. Those of the newest span of the series that has them; oldest_ready: the age of the next ready task."""

    latency_p50: float | None
    latency_p95: float | None
    lateness_p99: float | None
    oldest_ready: float | None


class ReleaseMark(Struct, frozen=True):
    """A code release, and when a worker ran it first."""

    release: str
    at: Moment


class Overview(Struct, frozen=True, kw_only=True):
    """The state of an app at a glance. history: tasks that ended in each of the last 60 seconds.

    releases: of the code that live workers run; marks: releases that began in the span of the series
    flows: those that have not ended, of all sources
    """

    now: Moment
    counts: Mapping[str, int]
    rates: SourceRates
    figures: OverviewFigures
    history: Sequence[int]
    attention: Sequence[AttentionRow]
    more_attention: int
    sources: Sequence[SourceRow]
    series: SeriesDetail
    releases: Sequence[str]
    marks: Sequence[ReleaseMark]
    flows: StateCount


class StoreStatus(Struct, frozen=True, kw_only=True):
    """The store. server: None: it is part of this process or of this machine."""

    kind: str
    server: str | None
    round_trip_ms: float
    clock_offset_ms: float | None
    memory: int | None
    memory_limit: int | None


class PausedSource(Struct, frozen=True, kw_only=True):
    """A pause, for the banner of every page. key: None: of the whole source."""

    source: str
    key: str | None
    reason: str
    since: Moment | None


class StatusDetail(Struct, frozen=True, kw_only=True):
    """This process, its store and the caller. running, failed: tasks."""

    app: str
    apps: Sequence[str]
    environment: str
    version: str
    releases: Sequence[str]
    workers_by_release: Mapping[str, int]
    store: StoreStatus
    workers: int
    slots: int
    running: int
    failed: int
    user: str
    role: Literal["viewer", "operator"]
    features: Sequence[str]
    trace_url: str
    now: Moment
    paused: Sequence[PausedSource] = ()


class Rows(Struct, Generic[T], frozen=True):
    """A list that is complete."""

    items: Sequence[T]


class SignIn(Struct, frozen=True, forbid_unknown_fields=True):
    """A token, from the form of the page."""

    token: Annotated[str, Meta(min_length=1, max_length=512)]


class Health(Struct, frozen=True):
    """ok, or the problem."""

    status: str


class AddedTask(Struct, frozen=True):
    """A task that was added; not added: the one that exists already under its uuid or unique key."""

    uuid: str
    added: bool
