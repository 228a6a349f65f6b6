"""The recorded parts of a task's life. Nothing is guessed: what is not recorded is a gap, or has no segment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, NamedTuple

from onthedot.model.failures import DIED, WORKER_DIED
from onthedot.model.task import TaskInfo, TaskState

SegmentKind = Literal["scheduled", "pending", "running", "backoff", "waiting", "crash", "gap"]


@dataclass(frozen=True, slots=True)
class PausedSpan:
    """A pause by an operator, from the audit log. end: None: it goes on."""

    begin: datetime
    end: datetime | None
    user: str
    reason: str


@dataclass(frozen=True, slots=True)
class TimelineSegment:
    """One part. end: None: it has not ended. paused: while it was pending; crash: until the next run began."""

    begin: datetime
    end: datetime | None
    kind: SegmentKind
    attempt: int
    worker: str | None = None
    text: str = ""
    paused: tuple[PausedSpan, ...] = ()


class RecordedWait(NamedTuple):
    """A sleep, or a wait for signals or for a child. run_since: when the run began that began it."""

    kind: Literal["scheduled", "waiting"]
    begin: datetime
    end: datetime | None
    text: str
    run_since: datetime | None = None


class TimelineFacts(NamedTuple):
    """Facts of the record of a task and of its steps, beside its errors.

    waits: over, or the present one; present: what it waits for now; at_first: what it waited for before its first run;
    due: its last due time; has_crashed: the worker of its last run died
    """

    waits: Sequence[RecordedWait] = ()
    present: str = ""
    at_first: str = ""
    due: datetime | None = None
    has_crashed: bool = False


_NO_FACTS = TimelineFacts()


class _Span(NamedTuple):
    """A segment whose begin is recorded, and when its run was due, if that is recorded."""

    segment: TimelineSegment
    due: datetime | None = None

    @property
    def is_failed_run(self) -> bool:
        return self.segment.kind == "running" and self.segment.text != ""


def timeline(info: TaskInfo, facts: TimelineFacts = _NO_FACTS) -> list[TimelineSegment]:
    """The segments of a task, in order."""
    return list(_Timeline(info, facts).segments())


class _Timeline:
    def __init__(self, info: TaskInfo, facts: TimelineFacts) -> None:
        self._info = info
        self._facts = facts
        self._spans = _in_order([*self._failed_runs(), *self._waited(), *self._last_run()])

    def segments(self) -> Iterator[TimelineSegment]:
        """Each recorded part, and what was between two of them."""
        before: _Span | None = None
        for span in self._spans:
            yield from self._between(before, span.segment.begin, span.due, span.segment.attempt)
            yield span.segment
            before = span
        yield from self._tail(before)

    # -- recorded parts

    def _failed_runs(self) -> Iterator[_Span]:
        for error in self._info.errors:
            if error.started_at is None:
                continue
            kind: SegmentKind = "running"
            text = error.type
            if error.ended_at is None:
                kind = "crash"
                text = error.message
            worker = error.worker or None
            yield _Span(
                TimelineSegment(error.started_at, error.ended_at, kind, error.attempt, worker, text), error.due_at
            )

    def _waited(self) -> Iterator[_Span]:
        for wait in self._facts.waits:
            attempt = self._attempt_at(wait.begin)
            if wait.run_since is not None:
                yield _Span(TimelineSegment(min(wait.run_since, wait.begin), wait.begin, "running", attempt))
            yield _Span(TimelineSegment(wait.begin, wait.end, wait.kind, attempt, text=wait.text))

    def _attempt_at(self, moment: datetime) -> int:
        """A suspension is no attempt of its own: the run that goes on after it has the same number."""
        later = [
            error.attempt for error in self._info.errors if error.started_at is not None and error.started_at >= moment
        ]
        return min([*later, self._info.attempt])

    def _last_run(self) -> Iterator[_Span]:
        """Of the record of the task. It has the run that goes on, that ended the task, or that suspended it."""
        info = self._info
        last = info.errors[-1] if info.errors else None
        if info.started_at is None:
            return
        if info.error is not None and info.error.type == WORKER_DIED and info.error.started_at is None:
            text = info.error.message  # its last crash: a worker has ended it without a run
            yield _Span(TimelineSegment(info.started_at, info.ended_at, "crash", info.error.attempt, text=text))
        elif self._facts.has_crashed:
            yield _Span(TimelineSegment(info.started_at, None, "crash", info.attempt, text=DIED))
        elif last is not None and last.attempt == info.attempt and last.ended_at is not None:
            return
        elif info.state is TaskState.RUNNING or info.duration is not None:
            text = "" if info.error is None or not info.state.ended else info.error.type
            due = self._facts.due
            segment = TimelineSegment(info.started_at, info.ended_at, "running", info.attempt, info.worker, text)
            yield _Span(segment, due if due is None or due <= info.started_at else None)
        elif info.state is TaskState.WAITING and all(wait.end is not None for wait in self._facts.waits):
            text = self._facts.present  # its begin is not recorded: the run before it is part of this
            yield _Span(TimelineSegment(info.started_at, None, "waiting", info.attempt, text=text))

    # -- between them

    def _between(
        self, before: _Span | None, end: datetime, due: datetime | None, attempt: int
    ) -> Iterator[TimelineSegment]:
        """From the end of one recorded part to the begin of the next one. due: of that, if it is recorded."""
        if before is None:
            yield from self._at_first(end, due, attempt)
            return
        begin = before.segment.end
        if begin is None or begin >= end:
            return
        if before.is_failed_run:
            again = end if due is None else min(max(begin, due), end)
            yield from self._pending(begin, again, end, attempt, "backoff")
        elif before.segment.kind in ("waiting", "scheduled"):
            yield TimelineSegment(begin, end, "pending", attempt, text=self._lane())
        else:
            yield TimelineSegment(begin, end, "gap", attempt)

    def _at_first(self, end: datetime, due: datetime | None, attempt: int) -> Iterator[TimelineSegment]:
        """Before the first recorded run."""
        info = self._info
        if attempt > 1:  # an operator's retry: neither the runs before it nor its time are recorded
            return
        if self._facts.at_first:
            yield TimelineSegment(info.added_at, end, "waiting", 1, text=self._facts.at_first)
            return
        if due is None and info.schedule_at <= end:  # otherwise it is the due time of a later run
            due = info.schedule_at
        due = info.added_at if due is None else min(max(info.added_at, due), end)
        yield from self._pending(info.added_at, due, end, 1, "scheduled")

    def _pending(
        self, begin: datetime, due: datetime, end: datetime | None, attempt: int, before: SegmentKind
    ) -> Iterator[TimelineSegment]:
        """Not due, and then pending. before: why it was not due."""
        if due > begin:
            yield TimelineSegment(begin, due, before, attempt)
        if end is None or end > due:
            yield TimelineSegment(due, end, "pending", attempt, text=self._lane())

    def _lane(self) -> str:
        return "" if self._info.lane is None else f"lane {self._info.lane}"

    # -- the present

    def _tail(self, before: _Span | None) -> Iterator[TimelineSegment]:
        """The part after the last recorded one: it goes on, or went on until the task ended without a run."""
        info = self._info
        begin = info.added_at if before is None else before.segment.end
        if begin is None or (info.state.ended and (info.ended_at is None or info.ended_at <= begin)):
            return
        if before is not None and info.state.ended and before.segment.kind == "running":
            return
        due = self._facts.due or info.schedule_at
        if info.state is TaskState.WAITING:
            yield TimelineSegment(begin, None, "waiting", info.attempt, text=self._facts.present)
        elif before is None and info.state.ended and self._facts.at_first:
            yield TimelineSegment(begin, info.ended_at, "waiting", info.attempt, text=self._facts.at_first)
        elif info.state is TaskState.SCHEDULED or (info.ended_at is not None and due > info.ended_at):
            kind: SegmentKind = "backoff" if before is not None and before.is_failed_run else "scheduled"
            yield TimelineSegment(begin, info.ended_at, kind, info.attempt)
        else:
            kind = "backoff" if before is not None else "scheduled"
            yield from self._pending(begin, max(begin, due), info.ended_at, info.attempt, kind)


def _in_order(spans: list[_Span]) -> list[_Span]:
    """By begin. Clocks of workers differ a little: a part ends at the latest where the next one begins."""
    spans.sort(key=lambda span: span.segment.begin)
    found: list[_Span] = []
    for i, span in enumerate(spans):
        segment = span.segment
        following = spans[i + 1].segment.begin if i + 1 < len(spans) else None
        if following is not None and (segment.end is None or segment.end > following):
            segment = replace(segment, end=following)
        found.append(_Span(segment, span.due))
    return found
