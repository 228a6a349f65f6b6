"""One run of a claimed task, as the engine sees it."""

from __future__ import annotations

import asyncio
from typing import Literal, TypeAlias, assert_never

from onthedot.errors import TaskCancelled, TaskTimeout
from onthedot.executors.contract import Executor
from onthedot.model.context import RunState
from onthedot.model.failures import is_a

StopCause: TypeAlias = Literal["cancel", "timeout", "lost", "shutdown"]
"""From the weakest to the strongest: a function may ignore a cancel, but not that its worker stops."""

_STRENGTH: dict[StopCause, int] = {"cancel": 0, "timeout": 1, "lost": 2, "shutdown": 3}


class Run(RunState, eq=False, kw_only=True):
    """A run from its claim to its outcome."""

    executor: Executor
    serving_task: asyncio.Task[None] | None = None  # the asyncio task that runs it; None while it is queued
    stop_cause: StopCause | None = None  # the strongest one, if it is ended from outside
    first_stop_cause: StopCause | None = None  # decides on the outcome; later ones only end the run sooner
    timeout_queue: dict[Run, None] | None = None  # of the runs with its timeout; None: it has none, or waits to begin
    ended: bool = False  # its outcome is known, even if a thread still executes the function

    def stop(self, cause: StopCause, reason: str) -> bool:
        """False: the run has ended, or is being ended for a cause that is at least as strong."""
        if self.ended or (self.stop_cause is not None and _STRENGTH[self.stop_cause] >= _STRENGTH[cause]):
            return False
        self.stop_cause = cause
        if self.first_stop_cause is None:
            self.first_stop_cause = cause
            self.cancel_reason = reason
        return True

    def deciding_error(self, error: BaseException) -> BaseException | None:
        """A run that is ended from outside ends by the first cause, and not by the error of its coroutine."""
        return self.error_of_stop() if self.stop_cause and is_a(error, asyncio.CancelledError) else error

    def error_of_stop(self) -> TaskTimeout | TaskCancelled | None:
        """None: nothing that concerns the task itself has stopped it, so it does not count."""
        match self.first_stop_cause:
            case "timeout":
                seconds = (self.source.options.timeout or 0) / 1000
                return TaskTimeout(self.record.uuid, "onthedot.TaskTimeout", f"no result after {seconds:g} s")
            case "cancel":
                return TaskCancelled(self.cancel_reason, self.record.uuid)
            case "lost" | "shutdown" | None:
                return None
            case _:
                assert_never(self.first_stop_cause)
