"""Values of operations → the JSON of the API, without secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from onthedot.codec.plain_json import json_value
from onthedot.model.redaction import Redaction
from onthedot.model.task import TaskInfo, TaskState
from onthedot.operations.audit import AuditRecord
from onthedot.operations.feed_state import Rates
from onthedot.operations.humanize import short_id
from onthedot.operations.limits import LimitInfo
from onthedot.operations.source_hours import SourceHour
from onthedot.operations.sources import Pause, SourceInfo, SourceLimit
from onthedot.operations.workers import WorkerInfo
from onthedot.web.schemas import (
    ErrorText,
    LimitRow,
    PauseRow,
    SourceHourRow,
    SourceLimitRow,
    SourceRates,
    SourceRow,
    State,
    TaskListRow,
)

MAX_PREVIEW = 200  # characters of a label or of arguments in a row
MAX_MESSAGE = 2000  # characters of an error in a row
MAX_REASON = 6  # words
_NO_CHANGES: Mapping[str, AuditRecord] = {}


def shortened(text: str, length: int) -> str:
    """
    >>> shortened("abcdef", 4)
    'abc…'
    """
    if len(text) <= length:
        return text
    return text[: length - 1] + "…"


def utc(moment: datetime | None) -> datetime | None:
    if moment is None:
        return None
    try:
        return moment.astimezone(UTC)
    except (OverflowError, ValueError):  # year 1 or 9999 in another zone
        return moment.replace(tzinfo=UTC)


def state_name(state: str) -> State:
    """The name of a public state, as operations return it."""
    return TaskState(state).value


class TaskRows:
    """Makes rows of tasks. sources and workers: give the reasons why a task does not run, and its retries."""

    def __init__(self, redaction: Redaction, sources: Sequence[SourceInfo], workers: Sequence[WorkerInfo]) -> None:
        self._redaction = redaction
        self._sources: Mapping[str, SourceInfo] = {source.name: source for source in sources}
        self._max_retries = {name: number for worker in workers for name, number in worker.max_retries.items()}

    def row(self, info: TaskInfo) -> TaskListRow:
        return TaskListRow(**self.fields(info))

    def fields(self, info: TaskInfo) -> dict[str, Any]:
        """Those of a `TaskListRow`."""
        duration = None
        if info.duration is not None:
            duration = info.duration.total_seconds() * 1000
        return {
            "uuid": info.uuid,
            "short_id": short_id(info.uuid),
            "source": info.source,
            "label": shortened(self._redaction.text(info.label), MAX_PREVIEW),
            "state": info.state.value,
            "reason": self._reason(info),
            "attempt": info.attempt,
            "max_retries": self._max_retries.get(info.source, 0),
            "priority": info.priority,
            "tags": info.tags,
            "lane": info.lane,
            "added_at": utc(info.added_at),
            "due_at": utc(info.schedule_at),
            "started_at": utc(info.started_at),
            "ended_at": utc(info.ended_at),
            "duration_ms": duration,
            "worker": info.worker,
            "error": self._error(info),
            "args_preview": self._preview(info),
            "progress": info.progress,
            "flow": info.flow,
            "cancel_wanted": info.cancel_wanted,
        }

    def _error(self, info: TaskInfo) -> ErrorText | None:
        if info.error is None:
            return None
        return ErrorText(info.error.type, shortened(self._redaction.text(info.error.message), MAX_MESSAGE))

    def _preview(self, info: TaskInfo) -> str:
        shown = json_value(self._redaction.value(json_value(info.args)).value)
        return shortened(json_text(shown), MAX_PREVIEW)

    def _reason(self, info: TaskInfo) -> str:
        """Why it does not run, in few words: exact only with `explain`."""
        if info.cancel_wanted:
            return "cancel wanted"
        source = self._sources.get(info.source)
        match info.state:
            case "scheduled" if info.retries or info.crashes:
                return f"runs again, attempt {info.attempt}"
            case "ready" if source is not None and source.paused is not None:
                return "the source is paused"
            case "ready" if source is not None and not source.workers:
                return "no live worker knows it"
            case "ready" if info.lane is not None:
                return f"in lane {info.lane}"
            case "waiting":
                return "waits for tasks or signals"
            case _:
                return " ".join(self._redaction.text(info.reason).split()[:MAX_REASON])


def json_text(value: object) -> str:
    """JSON with every digit: JavaScript loses those of long numbers."""
    return msgspec.json.encode(value).decode()


def source_row(
    info: SourceInfo,
    redaction: Redaction,
    rates: Rates | None = None,
    oldest: float | None = None,
    hour: SourceHour | None = None,
    limit_changes: Mapping[str, AuditRecord] = _NO_CHANGES,
) -> SourceRow:
    """oldest: seconds since its next task was due; limit_changes: by the name of the limit."""
    times = info.run_times
    mode: Literal["", "frozen", "degraded"] = ""
    if info.frozen:
        mode = "frozen"
    elif info.degraded:
        mode = "degraded"
    return SourceRow(
        name=info.name,
        ready=info.ready,
        parked=info.parked,
        scheduled=info.scheduled,
        running=info.running,
        waiting=info.waiting,
        succeeded=info.succeeded,
        failed=info.failed,
        cancelled=info.cancelled,
        workers=info.workers,
        p50_ms=None if times is None else times.p50 * 1000,
        p95_ms=None if times is None else times.p95 * 1000,
        limits=[source_limit_row(each, limit_changes) for each in info.limits],
        paused=None if info.paused is None else pause_row(info.paused, redaction),
        paused_keys=[pause_row(each, redaction) for each in info.paused_keys],
        mode=mode,
        rates=None if rates is None else rates_row(rates),
        oldest_ready=oldest,
        hour=None if hour is None else SourceHourRow(hour.done, hour.failed, hour.retried, hour.latency_p95),
    )


def source_limit_row(limit: SourceLimit, changes: Mapping[str, AuditRecord]) -> SourceLimitRow:
    """changes: the newest of each limit, by its name. An operator's "@lane" may be each key of it."""
    row = SourceLimitRow(limit.name, limit.cap, limit.rate, limit.burst, limit.by)
    change = changes.get(limit.name)
    if change is None and limit.name.startswith("@"):
        change = changes.get(limit.name.removesuffix("/*"))
    if change is None or limit.by == "code":
        return row
    return msgspec.structs.replace(row, user=change.entry.user, at=utc(change.at))


def rates_row(rates: Rates) -> SourceRates:
    return SourceRates(rates.started, rates.done, rates.failed, rates.retried)


def pause_row(pause: Pause, redaction: Redaction) -> PauseRow:
    return PauseRow(pause.key, redaction.text(pause.reason), utc(pause.since))


def limit_row(info: LimitInfo, redaction: Redaction) -> LimitRow:
    return LimitRow(
        name=info.name,
        cap=info.cap,
        rate=info.rate,
        burst=info.burst,
        paused=info.paused,
        reason=redaction.text(info.reason),
        changed=info.changed,
    )
