"""The recorded parts of a task's life. Nothing is guessed: without a record there is no segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from onthedot.model.task import TaskInfo, TaskState

SegmentKind = Literal["scheduled", "pending", "running", "backoff", "waiting", "crash"]


@dataclass(frozen=True, slots=True)
class TimelineSegment:
    """One part. end: None: it has not ended."""

    begin: datetime
    end: datetime | None
    kind: SegmentKind
    attempt: int
    worker: str | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class _RecordedRun:
    begin: datetime
    end: datetime | None
    attempt: int
    worker: str | None
    text: str


def timeline(info: TaskInfo) -> list[TimelineSegment]:
    """The segments of a task, in order."""
    segments: list[TimelineSegment] = []
    runs = list(_runs(info))
    due = max(info.added_at, info.schedule_at)
    before = due if not info.retries else info.added_at
    if runs and runs[0].attempt > 1:  # an operator's retry: neither the runs before it nor its time are recorded
        before = runs[0].begin
    elif due > info.added_at and not info.retries:
        segments.append(TimelineSegment(info.added_at, due, "scheduled", 1))
    is_first = True
    for run in runs:
        if run.begin > before:
            kind: SegmentKind = "pending" if is_first else "backoff"
            lane = "" if info.lane is None or not is_first else f"lane {info.lane}"
            segments.append(TimelineSegment(before, run.begin, kind, run.attempt, text=lane))
        segments.append(TimelineSegment(run.begin, run.end, "running", run.attempt, run.worker, run.text))
        before = run.end or run.begin
        is_first = False
    match info.state:
        case TaskState.SCHEDULED if not is_first:
            segments.append(TimelineSegment(before, None, "backoff", info.attempt))
        case TaskState.SCHEDULED:
            segments[:] = [TimelineSegment(info.added_at, None, "scheduled", info.attempt)]
        case TaskState.READY:
            segments.append(TimelineSegment(before, None, "pending", info.attempt))
        case TaskState.WAITING:
            segments.append(TimelineSegment(before, None, "waiting", info.attempt))
        case _:
            pass
    return segments


def _runs(info: TaskInfo) -> Iterator[_RecordedRun]:
    """Every attempt with a recorded time; the last one from the history of the task."""
    last_attempt = 0
    for error in info.errors:
        if error.started_at is not None:
            last_attempt = error.attempt
            yield _RecordedRun(error.started_at, error.ended_at, error.attempt, error.worker or None, error.type)
    if info.started_at is None or last_attempt == info.attempt:
        return
    if info.state is TaskState.RUNNING or info.duration is not None:
        yield _RecordedRun(info.started_at, info.ended_at, info.attempt, info.worker, "")
