"""The log lines. Loggers: onthedot.scheduler, .task, .store; the library adds no handler."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import MutableMapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol

from onthedot.errors import StoreError
from onthedot.model.task_info import task_from_record
from onthedot.stores.contract import Completed, Ended, NewTask, Outcome, Record, Requeued, Verdict

_QUIET = 60.0  # seconds for which the same trouble of a loop is told once
_PAUSE = 10.0  # and any: one that goes on has many words
_MOST = 100  # troubles that are counted apart


class StartedRun(Protocol):
    @property
    def record(self) -> Record: ...
    @property
    def started(self) -> float: ...


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose handlers may fail: a full disk under the log must not stop the tasks."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger, {})
        self._complained = False

    def process(self, msg: object, kwargs: MutableMapping[str, Any]) -> tuple[object, MutableMapping[str, Any]]:
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever a handler does, it is said once, elsewhere
            if not self._complained:
                self._complained = True
                sys.stderr.write(f"onthedot: logging to {self.logger.name} fails: {error!r}\n")


class LogObserver:
    """Lines about tasks. Whether INFO is wanted is looked up once a batch, not once a task."""

    def __init__(self, root: logging.Logger | None, worker: str = "") -> None:
        root = root or logging.getLogger("onthedot")
        self.scheduler: SafeLogger = SafeLogger(root.getChild("scheduler"))
        self.task: SafeLogger = SafeLogger(root.getChild("task"))
        self.store: SafeLogger = SafeLogger(root.getChild("store"))
        self.worker = worker
        self._told: dict[str, tuple[float, int]] = {}
        self._last = -_PAUSE

    def _fields(self, record: Record) -> dict[str, object]:
        return {"uuid": record.uuid, "source": record.source, "attempt": record.attempt, "worker": self.worker}

    def tasks_added(self, tasks: Sequence[NewTask]) -> None:
        if self.task.isEnabledFor(logging.INFO):
            for task in tasks:
                fields = {"uuid": task.uuid, "source": task.source, "attempt": 1, "worker": self.worker}
                self.task.info("[queued] task %s from %s", task.uuid, task.source, extra=fields)

    def differs(self, new: NewTask, record: Record) -> None:
        self.task.warning(
            "task %s was added before with other content; the first one stands: %s, not %s",
            new.uuid, record.body, new.body, extra=self._fields(record),
        )  # fmt: skip

    def tasks_settled(
        self, ended: Sequence[tuple[Outcome, StartedRun]], verdicts: Sequence[Verdict], now: float
    ) -> None:
        """Verdicts of runs come first, in their order."""
        info = self.task.isEnabledFor(logging.INFO)
        if not info and "lost" not in verdicts:
            return
        for (outcome, run), verdict in zip(ended, verdicts, strict=False):
            record = run.record
            if verdict == "lost":
                self.task.warning(
                    "[lost] task %s from %s: somebody else has it by now, this run does not count",
                    record.uuid, record.source, extra=self._fields(record),
                )  # fmt: skip
            elif info and isinstance(outcome, Completed):
                self.task.info(
                    "[done] task %s from %s in %.1f ms",
                    record.uuid, record.source, now - run.started, extra=self._fields(record),
                )  # fmt: skip

    def error_classified(self, record: Record, error: BaseException, outcome: Outcome, most: int) -> None:
        match outcome:
            case Requeued(counted=True):
                self.task.warning(
                    "[retry] task %s from %s again at %s (%d/%d): %s: %s",
                    record.uuid, record.source, _at(outcome.after or 0), record.history.retries + 1, most,
                    getattr(error, "error_type", type(error).__name__), error, extra=self._fields(record),
                )  # fmt: skip
            case Ended(state="failed"):
                self.task.error(
                    "[fail] task %s from %s: %s",
                    record.uuid, record.source, error, exc_info=error,
                    extra=self._fields(record) | {"error_type": getattr(error, "error_type", type(error).__name__)},
                )  # fmt: skip
            case _:
                pass  # snoozed or cancelled by itself: as it wished

    def undecodable(self, record: Record, error: Exception) -> None:
        self.task.error("[fail] task %s from %s: %s", record.uuid, record.source, error, extra=self._fields(record))

    def chores_ended(self, record: Record) -> None:
        match record.history.reason:
            case "stray":
                shown = task_from_record(record).to_dict()
                self.task.error("[drop] Unknown task source: %s %s", record.source, shown, extra=self._fields(record))
            case "expired":
                self.task.warning(
                    "[expired] task %s from %s did not start in time",
                    record.uuid, record.source, extra=self._fields(record),
                )  # fmt: skip
            case "crashed":
                self.task.error(
                    "[fail] task %s from %s: its worker died %d times over it",
                    record.uuid, record.source, record.history.crashes, extra=self._fields(record),
                )  # fmt: skip
            case _:
                self.task.info("[cancelled] task %s from %s", record.uuid, record.source, extra=self._fields(record))

    def abandoned(self, record: Record, thread: str) -> None:
        self.task.warning(
            "task %s from %s has timed out, but a thread cannot be stopped: it goes on in %s and keeps its "
            "slot; executor='process' can be killed",
            record.uuid, record.source, thread, extra=self._fields(record),
        )  # fmt: skip

    def ignored_cancel(self, record: Record) -> None:
        self.task.warning(
            "task %s from %s was cancelled and goes on: it swallows CancelledError; it is left behind and goes back",
            record.uuid, record.source, extra=self._fields(record),
        )  # fmt: skip

    def result_not_stored(self, record: Record, error: Exception) -> None:
        self.task.warning(
            "task %s from %s succeeded, but its result cannot be stored: %s",
            record.uuid, record.source, error, extra=self._fields(record),
        )  # fmt: skip

    def windows_skipped(self, schedule: str, reason: Literal["overlap", "grace", "paused"], windows: int) -> None:
        if windows:
            several = f" ({windows} windows)" if windows > 1 else ""
            self.scheduler.warning("[skipped] schedule %s: %s%s", schedule, reason, several)

    def error_throttled(self, where: str, error: BaseException) -> None:
        """Something that will be tried again: a line in ten seconds at most, the same in a minute, with a count."""
        now, key = time.monotonic(), f"{where}: {type(error).__name__}: {error}"
        last, times = self._told.get(key, (-_QUIET, 0))
        if now - last < _QUIET or now - self._last < _PAUSE:
            self._told[key] = (last, times + 1)
            self.scheduler.debug("%s failed, trying again: %s", where, error)
            return
        if len(self._told) >= _MOST:
            self._told.clear()
        self._told[key], self._last = (now, 0), now
        again = f" ({times} times more since)" if times else ""
        shown = None if isinstance(error, StoreError) else error  # it says itself what happened and what to do
        self.scheduler.error("%s failed, trying again%s: %s", where, again, error, exc_info=shown)


def _at(after: int) -> str:
    return (datetime.now(UTC) + timedelta(milliseconds=after)).isoformat(timespec="milliseconds")
