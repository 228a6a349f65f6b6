"""Log lines. The loggers are onthedot.scheduler, .task, .store and .events; the library adds no handler."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from traceback import format_exception
from typing import Literal, TypeVar

from onthedot.clock.epoch import from_ms
from onthedot.clock.protocol import Clock
from onthedot.clock.system import SystemClock
from onthedot.codec.body import Undecodable
from onthedot.codec.task_failure import TaskFailure
from onthedot.errors import StoreError
from onthedot.model.batch_names import batch_task
from onthedot.model.counter_names import signal_name
from onthedot.model.failures import decode_failure, error_message, is_a, printable_exc_info
from onthedot.model.flow_names import counter_flow
from onthedot.model.redaction import redacted
from onthedot.model.task_info import task_from_record
from onthedot.observability.event_lines import EventLines
from onthedot.observability.events import Settled, StartedRun
from onthedot.observability.safe_logger import SafeLogger
from onthedot.observability.task_lines import TaskLines
from onthedot.stores.contract import (
    Completed,
    Ended,
    NewTask,
    Outcome,
    Record,
    Requeued,
    StoreIdentity,
    Suspended,
    Verdict,
    Wait,
)

_SAME_FAILURE = 60_000.0  # ms between two lines about the same failure
_ANY_FAILURE = 10_000.0  # ms between two lines about any failure
_MAX_SHOWN = 1000  # characters of a task
_MAX_FAILURES = 100  # that are counted separately
_FAILED_CHORES = ("stray", "expired", "crashed")  # each has its own line

TaskT = TypeVar("TaskT", NewTask, Record)


class LogObserver(EventLines):
    """Writes events as log lines. Whether INFO is enabled is checked once per batch, not once per task.

    Lines of level INFO about single tasks are limited by `TaskLines`; warnings and errors are all written.
    """

    def __init__(self, root: logging.Logger | None, worker: str = "", clock: Clock | None = None) -> None:
        self.root: logging.Logger = root or logging.getLogger("onthedot")
        self.scheduler: SafeLogger = SafeLogger(self.root.getChild("scheduler"))
        self.task: SafeLogger = SafeLogger(self.root.getChild("task"))
        self.store: SafeLogger = SafeLogger(self.root.getChild("store"))
        self.worker: str = worker
        self._clock = clock or SystemClock()
        super().__init__(SafeLogger(self.root.getChild("events")), self._clock)
        self._task_lines = TaskLines(self.task, self._clock, lambda: self.worker)
        self._has_reported_block = False
        self._failures: dict[str, _LoggedFailure] = {}
        self._last_failure = -_ANY_FAILURE
        self._failed_since: float | None = None  # when an outage of the store was logged that is not over

    def _at(self, after: int) -> str:
        return from_ms(self._clock.now() + after).isoformat(timespec="milliseconds")

    def _fields(self, record: Record) -> dict[str, object]:
        return {"uuid": record.uuid, "source": record.source, "attempt": record.attempt, "worker": self.worker}

    # -- sessions

    def session_opened(self, session: str) -> None:
        self.worker = session

    def session_lost(self, session: str) -> None:
        self.scheduler.warning(
            "session %s is lost: the store declared it dead, or no heartbeat was answered for a lease; "
            "going on as a new one", session,
        )  # fmt: skip

    def data_lost(self, store: str, before: StoreIdentity, after: StoreIdentity) -> None:
        what = "went back to an older state"
        if after.id != before.id:
            what = "has lost its data"
        self.scheduler.error(
            "store %s %s: it was %s at fence %d and is %s at fence %d; tasks added since may be gone; limits and "
            "schedules are declared again",
            store, what, before.id, before.last_fence, after.id, after.last_fence,
        )  # fmt: skip

    def flush(self) -> None:
        self._task_lines.flush()

    # -- tasks

    def tasks_added(self, tasks: Sequence[NewTask]) -> None:
        if not self.task.isEnabledFor(logging.INFO):
            return
        for source, added in _by_source(tasks).items():
            for task in added[: self._task_lines.admit("queued", source, len(added))]:
                fields = {"uuid": task.uuid, "source": source, "attempt": 1, "worker": self.worker}
                self.task.info("[queued] task %s from %s", task.uuid, source, extra=fields)

    def task_differs(self, record: Record, fields: Sequence[str]) -> None:
        self.task.warning(
            "task %s from %s was added before with other content (%s); the first one is kept",
            record.uuid, record.source, ", ".join(fields), extra=self._fields(record),
        )  # fmt: skip

    def event_differs(self, event_id: str, event_type: str) -> None:
        self.events.warning(
            "event %s (%s) was published before with other content; the first one is kept", event_id, event_type
        )

    def event_unreadable(self, place: str, error: Exception) -> None:
        self.events.error("event at %s cannot be read and is passed over: %s", place, error)

    def event_not_signalled(self, event_id: str, event_type: str, error: Exception) -> None:
        self.events.error("event %s (%s) sends no signal: %s: %s", event_id, event_type, type(error).__name__, error)

    def loop_blocked(self, uuid: str) -> None:
        """One line per process: such code runs often."""
        if self._has_reported_block:
            return
        self._has_reported_block = True
        self.task.warning(
            "result() of task %s blocks the event loop of its caller, and all that runs on it, until the task has "
            "ended: write `h = await f.enqueue(…)` and `await h` there", uuid, extra={"uuid": uuid},
        )  # fmt: skip

    def tasks_settled(self, settled: Sequence[Settled], verdicts: Sequence[Verdict], now: float) -> None:
        info = self.task.isEnabledFor(logging.INFO)
        if not info and "lost" not in verdicts:
            return
        done: defaultdict[str, list[StartedRun]] = defaultdict(list)
        for (outcome, run), verdict in zip(settled, verdicts, strict=False):
            if run is None:
                continue
            record = run.record
            if verdict == "lost":
                self.task.warning(
                    "[lost] task %s from %s: another worker has it now, this run does not count",
                    record.uuid, record.source, extra=self._fields(record),
                )  # fmt: skip
            elif info and isinstance(outcome, Completed):
                done[record.source].append(run)
            elif info and isinstance(outcome, Ended) and outcome.state == "failed":
                self._task_lines.add_failures(record.source, 1)
            elif info and isinstance(outcome, Requeued | Suspended):
                self._suspended(outcome, record)
        for source, runs in done.items():
            durations = [now - run.started for run in runs]
            for run in runs[: self._task_lines.admit("done", source, len(runs), durations)]:
                self.task.info(
                    "[done] task %s from %s in %.1f ms",
                    run.record.uuid, source, now - run.started, extra=self._fields(run.record) | _trace_fields(run),
                )  # fmt: skip

    def _suspended(self, outcome: Requeued | Suspended, record: Record) -> None:
        if isinstance(outcome, Suspended):
            if batch_task(record.source) is not None:
                return  # it waits after each of its parts, and these have lines
            if self._task_lines.admit("wait", record.source, 1):
                self._waits(outcome.wait, record)
        elif outcome.reset_crashes and self._task_lines.admit("sleep", record.source, 1):
            self.task.info(
                "[sleep] task %s from %s sleeps until %s",
                record.uuid, record.source, self._at(outcome.after or 0), extra=self._fields(record),
            )  # fmt: skip

    def _waits(self, wait: Wait, record: Record) -> None:
        names = dict.fromkeys(signal_name(counter) for counter, _ in wait.counters)
        signals = " or ".join(f'"{name}"' for name in names if name is not None)
        if not signals:
            self.task.info(
                "[wait] task %s from %s waits for its child %s",
                record.uuid, record.source, counter_flow(wait.counters[0][0]), extra=self._fields(record),
            )  # fmt: skip
            return
        until = "" if wait.timeout is None else f" until {self._at(wait.timeout)}"
        self.task.info(
            "[wait] task %s from %s waits for signal %s%s",
            record.uuid, record.source, signals, until, extra=self._fields(record),
        )  # fmt: skip

    def error_classified(self, record: Record, error: BaseException, outcome: Outcome, max_retries: int) -> None:
        match outcome:
            case Requeued(counted=True):
                failure = _failure(outcome)
                self.task.warning(
                    "[retry] task %s from %s again at %s (%d/%d): %s: %s",
                    record.uuid, record.source, self._at(outcome.after or 0), record.history.retries + 1, max_retries,
                    failure.type, redacted(failure.message), extra=self._fields(record),
                )  # fmt: skip
            case Ended(state="failed") if is_a(error, Undecodable):  # its text has values of arguments
                self.task.error(
                    "[fail] task %s from %s: its stored %s cannot be read; `onthedot task show %s` gives the reason",
                    record.uuid, record.source, _unreadable(error), record.uuid, extra=self._fields(record),
                )  # fmt: skip
            case Ended(state="failed"):
                failure = _failure(outcome)
                self.task.error_with_traceback(
                    "[fail] task %s from %s: %s", (record.uuid, record.source, redacted(failure.message)),
                    printable_exc_info(error), failure.traceback, self._fields(record) | {"error_type": failure.type},
                )  # fmt: skip
            case _:
                pass  # snoozed, or cancelled by the task itself

    def chores_ended(self, records: Sequence[Record]) -> None:
        for record in records:
            if record.history.reason in _FAILED_CHORES:
                self._chore_failed(record)
        if not self.task.isEnabledFor(logging.INFO):
            return
        cancelled = [record for record in records if record.history.reason not in _FAILED_CHORES]
        for source, ended in _by_source(cancelled).items():
            for record in ended[: self._task_lines.admit("cancelled", source, len(ended))]:
                self.task.info("[cancelled] task %s from %s", record.uuid, source, extra=self._fields(record))

    def _chore_failed(self, record: Record) -> None:
        match record.history.reason:
            case "stray":
                self.task.error(
                    "[drop] Unknown task source: %s %s", record.source, _shown(record), extra=self._fields(record)
                )
            case "expired":
                self.task.warning(
                    "[expired] task %s from %s did not start in time",
                    record.uuid, record.source, extra=self._fields(record),
                )  # fmt: skip
            case _:  # crashed
                self.task.error(
                    "[fail] task %s from %s: its worker died %d times over it",
                    record.uuid, record.source, record.history.crashes, extra=self._fields(record),
                )  # fmt: skip

    def timeout_ignored(self, record: Record, thread: str) -> None:
        self.task.warning(
            "task %s from %s has timed out, but a thread cannot be stopped: it goes on in %s and keeps its "
            "slot; executor='process' can be killed",
            record.uuid, record.source, thread, extra=self._fields(record),
        )  # fmt: skip

    def cancel_ignored(self, record: Record) -> None:
        self.task.warning(
            "task %s from %s was cancelled and goes on: it swallows CancelledError; it is abandoned",
            record.uuid, record.source, extra=self._fields(record),
        )  # fmt: skip

    def result_not_stored(self, record: Record, error: Exception) -> None:
        self.task.warning(
            "task %s from %s succeeded, but its result cannot be stored: %s",
            record.uuid, record.source, error, extra=self._fields(record),
        )  # fmt: skip

    def outcome_not_stored(self, settled: Settled, error: Exception) -> None:
        outcome, run = settled
        fields: dict[str, object] = {"uuid": outcome.lease.uuid, "worker": self.worker}
        if run is not None:
            fields = self._fields(run.record)
        self.task.error(
            "[fail] task %s: its outcome cannot be stored: %s", outcome.lease.uuid, error, exc_info=error, extra=fields
        )

    def effects_not_made(self, record: Record, error: Exception) -> None:
        self.task.error(
            "[fail] task %s (%s) ends without the effects of its failure: %s",
            record.uuid, record.source, error, exc_info=error, extra=self._fields(record),
        )  # fmt: skip

    def outcomes_dropped(self, count: int) -> None:
        self.scheduler.error("stopped although %d outcomes could not be written; these tasks will be run again", count)

    # -- schedules

    def schedule_registered(self, schedule: str, next_at: int | None) -> None:
        shown = "never" if next_at is None else from_ms(next_at).isoformat()
        self.scheduler.info("Schedule registered: %s next %s", schedule, shown)

    def schedule_taken_over(self, schedule: str) -> None:
        self.scheduler.warning("schedule %s was put at run time; code declares it now", schedule)

    def schedule_fired(self, schedule: str, at: int) -> None:
        self.scheduler.info("[due] schedule %s at %s", schedule, from_ms(at).isoformat())

    def schedule_failed(self, schedule: str, error: Exception) -> None:
        exc_info = printable_exc_info(error)  # a rule of the user's may raise anything
        text = "".join(format_exception(*exc_info)) if exc_info is not None else ""
        args = (schedule, redacted(error_message(error)))
        self.scheduler.error_with_traceback("schedule %s cannot be fired: %s", args, exc_info, text, {})

    def windows_skipped(self, schedule: str, reason: Literal["overlap", "missed", "paused"], windows: int) -> None:
        if windows:
            several = f" ({windows} windows)" if windows > 1 else ""
            self.scheduler.warning("[skipped] schedule %s: %s%s", schedule, reason, several)

    # -- the store

    def clock_stepped(self, ms: float) -> None:
        way = "ahead" if ms > 0 else "back"
        self.scheduler.warning(
            "[clock] the store's clock was set %s by %.1f s: due times go by it, and no window of a schedule "
            "fires twice", way, abs(ms) / 1000,
        )  # fmt: skip

    def store_failed(self, operation: str, error: BaseException) -> None:
        """At most one line per ten seconds, and one per minute about the same failure, with the number of repeats."""
        now = self._clock.now()
        key = f"{operation}: {type(error).__name__}: {error}"
        failure = self._failures.get(key) or _LoggedFailure()
        if now - failure.logged < _SAME_FAILURE or now - self._last_failure < _ANY_FAILURE:
            failure.repeats += 1
            self._failures[key] = failure
            self.scheduler.debug("%s failed, trying again: %s", operation, error)
            return
        if len(self._failures) >= _MAX_FAILURES:
            self._failures.clear()
        self._failures[key] = _LoggedFailure(now)
        self._last_failure = now
        if self._failed_since is None and isinstance(error, StoreError | OSError | TimeoutError):
            self._failed_since = now
        again = f" ({failure.repeats} times more since)" if failure.repeats else ""
        shown = None if isinstance(error, StoreError) else error  # its message contains the cause and the remedy
        self.scheduler.error("%s failed, trying again%s: %s", operation, again, error, exc_info=shown)

    def store_recovered(self, operation: str) -> None:
        """One line per outage that was logged; a WARNING, so that those who saw the ERROR see it."""
        if self._failed_since is None:
            return
        seconds = (self._clock.now() - self._failed_since) / 1000
        self._failed_since = None
        self.scheduler.warning("the store is back after %.1f s: %s succeeded", seconds, operation)


def _trace_fields(run: StartedRun) -> dict[str, object]:
    if run.span is None:
        return {}
    return {"trace_id": run.span.context.trace_id, "span_id": run.span.context.span_id}


def _by_source(tasks: Sequence[TaskT]) -> dict[str, list[TaskT]]:
    found: dict[str, list[TaskT]] = {}
    for task in tasks:
        found.setdefault(task.source, []).append(task)
    return found


def _failure(outcome: Requeued | Ended) -> TaskFailure:
    """The error as it is stored: reading it from the error again could raise."""
    failure = decode_failure(outcome.error)
    assert failure is not None
    return failure


@dataclass
class _LoggedFailure:
    logged: float = -_SAME_FAILURE  # ms
    repeats: int = 0  # since then


def _shown(record: Record) -> str:
    """The task without secrets, and of bounded length."""
    task = task_from_record(record).to_dict()
    if "undecodable" in task["args"]:
        task["args"] = {"undecodable": f"{len(record.body)} bytes"}
    text = str(redacted(task))
    if len(text) > _MAX_SHOWN:
        return f"{text[:_MAX_SHOWN]}…"
    return text


def _unreadable(error: Undecodable) -> str:
    """The part of the task that is wrong, without a value of it."""
    return f"argument {error.argument!r}" if error.argument else "arguments"
