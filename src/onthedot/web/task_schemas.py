"""One task in full, as the HTTP API has it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from onthedot.web.schemas import Moment, State, TaskListRow


class AttemptRow(Struct, frozen=True, kw_only=True):
    """The error of one attempt."""

    attempt: int
    type: str
    message: str
    traceback: str
    started_at: Moment | None
    ended_at: Moment | None
    worker: str | None


class StepRow(Struct, frozen=True):
    """A saved step of a durable task."""

    name: str
    size: int
    at: Moment | None
    until: Moment | None
    signal: str


class ActionRow(Struct, frozen=True):
    """The request that ends a reason. path: below /api/v1; limit and signal: the operator adds a value to the body."""

    label: Literal["resume", "limit", "signal"]
    method: Literal["POST", "PUT"]
    path: str
    body: Any


class HeldByRow(Struct, frozen=True):
    """A task that holds another one back, with the worker that runs it; uuid: None: a worker alone."""

    uuid: str | None
    source: str
    worker: str | None
    where: str
    since: Moment | None


class ExplanationText(Struct, frozen=True):
    """One reason why a task is not running."""

    reason: str
    text: str
    until: Moment | None
    action: ActionRow | None = None
    held_by: Sequence[HeldByRow] = ()


class ExplanationDetail(Struct, frozen=True, kw_only=True):
    """Why a task is not running."""

    uuid: str
    state: State
    reason: str
    text: str
    until: Moment | None
    ahead: int
    estimated_start: Moment | None
    more: Sequence[ExplanationText]
    holders: Sequence[str]
    action: ActionRow | None = None
    held_by: Sequence[HeldByRow] = ()
    held_by_count: int = 0


class PausedPart(Struct, frozen=True, rename={"from_": "from"}):
    """A pause by an operator, as the audit log has it. to: None: it goes on."""

    from_: Annotated[datetime, Meta(tz=True)]
    to: Moment | None
    user: str
    reason: str


class Segment(Struct, frozen=True, rename={"from_": "from"}):
    """A recorded part of a task's life. to: None: it has not ended.

    crash: a run whose worker died, until the next run began; gap: nothing is recorded; paused: of a pending part
    """

    from_: Annotated[datetime, Meta(tz=True)]
    to: Moment | None
    kind: Literal["scheduled", "pending", "running", "backoff", "waiting", "crash", "gap"]
    attempt: int
    worker: str | None
    text: str
    paused: Sequence[PausedPart] = ()


class SameRow(Struct, frozen=True, kw_only=True):
    """Tasks that have something in common. n: None: not counted; exact: False: at least so many.

    kind: of the same error, with the same argument, or of the same schedule; name: of the argument or schedule;
    q: their filter
    """

    kind: Literal["error", "argument", "schedule"]
    name: str
    value: str
    q: str
    n: int | None
    exact: bool


class WaitsForRow(Struct, frozen=True, kw_only=True):
    """The present wait of a task: for signals, or for tasks, of which `reached` have ended."""

    signals: Sequence[str]
    flow: str | None
    needed: int
    reached: int
    until: Moment | None


class RelatedTasks(Struct, frozen=True, kw_only=True):
    """Tasks that belong together with one. group: of the same error; batch: its id, if the flow is one."""

    parent: str | None
    flow: str | None
    batch: str | None
    group: str | None
    same: Sequence[SameRow] = ()


class TaskDetail(TaskListRow, frozen=True, kw_only=True):
    """A task in full. args_text, metadata_text, result_text: the exact JSON; JavaScript loses digits of long numbers.

    result_cut: the result is longer than its text, and left out; /result has it. result_size: characters of its JSON.
    release: code release of the worker of its last run, while that lives
    """

    args: Any
    args_text: str
    metadata: Any
    metadata_text: str
    unique: str | None
    crashes: int
    retries: int
    result: Any
    result_text: str
    result_size: int
    result_cut: bool
    result_status: str
    errors: Sequence[AttemptRow]
    steps: Sequence[StepRow]
    items_saved: int
    trace_id: str | None
    release: str | None
    waits_for: WaitsForRow | None
    redacted: Sequence[str]
    explain: ExplanationDetail | UnsetType | None = UNSET
    timeline: Sequence[Segment] | UnsetType = UNSET
    related: RelatedTasks | UnsetType = UNSET
