"""The error of an attempt as a value: `TaskFailure` describes it, and takes the place of a result that is missing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """The error of one attempt, or the end of a task in a flow that did not succeed.

    ``group(…, on_error="collect")`` passes it in place of a result, and ``on_failure`` handlers receive it.
    """

    type: str
    """Type of the error, as in "KeyError" or "shop.OutOfStock"; empty for a cancelled task."""
    message: str
    """Text of the error, or the reason of the cancel."""
    traceback: str = ""
    """Traceback, as text."""
    attempt: int = 1
    """Number of the attempt, from 1."""
    uuid: str = ""
    """Id of the task, in a flow."""
    source: str = ""
    """Name of its function or consumer, in a flow."""
    state: Literal["failed", "cancelled"] = "failed"
    """How the task ended."""
    started_at: datetime | None = None
    """When the attempt started, by the clock of its worker; None: it is not known, or the task was not run."""
    ended_at: datetime | None = None
    """When the attempt ended, by the same clock."""
    worker: str = ""
    """Session of the worker that ran the attempt."""
    due_at: datetime | None = None
    """When the attempt was due."""

    @property
    def error_type(self) -> str:
        """The same as `type`."""
        return self.type
