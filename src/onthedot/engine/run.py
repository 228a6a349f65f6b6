"""One run of a claimed task, as the engine sees it."""

from __future__ import annotations

import asyncio
from typing import Literal, TypeAlias

from onthedot.clock.protocol import Timer
from onthedot.executors.contract import Executor
from onthedot.model.context import RunState

StopCause: TypeAlias = Literal["cancel", "timeout", "lost", "shutdown"]
"""From the weakest to the strongest: a function may ignore a cancel, but not that its worker stops."""

_STRENGTH: dict[StopCause, int] = {"cancel": 0, "timeout": 1, "lost": 2, "shutdown": 3}


class Run(RunState, eq=False, kw_only=True):
    """A run from its claim to its outcome."""

    executor: Executor
    started: float  # ms, by the worker's clock
    serving_task: asyncio.Task[None] | None = None  # the asyncio task that runs it; None while it is queued
    stop_cause: StopCause | None = None  # the strongest one, if it is ended from outside
    first_stop_cause: StopCause | None = None  # decides on the outcome; later ones only end the run sooner
    timer: Timer | None = None
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
