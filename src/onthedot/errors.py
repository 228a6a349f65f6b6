"""Everything that onthedot raises.

::

    OnTheDotError
    ├── DeclarationError (TypeError)     what the code says about a task cannot be
    │   ├── DuplicateTask
    │   ├── BadSchedule
    │   └── BadLimit
    ├── ArgumentError (TypeError)        what a call passes cannot be stored as it is
    ├── TaskError                        what became of a task
    │   ├── TaskFailed
    │   │   ├── TaskTimeout
    │   │   └── WorkerDied
    │   ├── TaskCancelled
    │   ├── TaskNotFound
    │   ├── ResultExpired
    │   └── ResultNotStored
    ├── StoreError                       the store did not do it
    │   ├── StoreUnavailable             not reached: it was not stored and will not appear later
    │   ├── StoreBusy                    reached, but others held it for too long: likewise
    │   ├── StoreFull
    │   └── StoreRefused                 no retry mends it: wrong schema, login, script, policy
    └── SchedulerStateError              start or stop at the wrong moment

    TaskControl (BaseException)          raised by a task to say how its run ends; `except Exception` lets it pass
    ├── Retry(after=None)                run again, counted
    ├── Snooze(after)                    run again later, not counted
    ├── Reject(reason)                   failed, without further retries
    └── Cancel(reason)                   cancelled

Waiting too long is the builtin ``TimeoutError``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from difflib import get_close_matches


class OnTheDotError(Exception):
    """The root of everything below except the controls."""


class DeclarationError(OnTheDotError, TypeError):
    """A task, schedule or limit is declared in a way that cannot work."""


class DuplicateTask(DeclarationError):
    """Two functions or consumers claim the same name."""


class BadSchedule(DeclarationError):
    """A schedule that cannot be read, or that never fires."""


class BadLimit(DeclarationError):
    """A limit that cannot be read, or that no task could ever pass."""


class ArgumentError(OnTheDotError, TypeError):
    """An argument does not fit the signature, or cannot be stored and come back equal. Names its path."""


class TaskError(OnTheDotError):
    """What became of a task."""


class TaskFailed(TaskError):
    """The task ended as failed.

    The traceback of the run is attached as a note: it is text, nothing is unpickled.
    """

    def __init__(
        self, task: str, error_type: str = "", message: str = "", traceback: str = "", attempt: int = 1
    ) -> None:
        super().__init__(task, error_type, message, traceback, attempt)
        self.task = task
        self.error_type = error_type
        self.message = message
        self.traceback = traceback
        self.attempt = attempt
        if traceback:
            self.add_note(f"where it ran (attempt {attempt}):\n{traceback}")

    def __str__(self) -> str:
        return f"task {self.task} failed: {self.error_type}: {self.message}"


class TaskTimeout(TaskFailed):
    """A run took longer than its timeout. Retried like any other failure."""


class WorkerDied(TaskFailed):
    """The process that ran a task ended: it was killed, it crashed, or the task called os._exit."""


class TaskCancelled(TaskError):
    """The task ended as cancelled: by a person, by itself, expired, or by the shutdown of a memory store."""

    def __init__(self, reason: str = "", task: str = "") -> None:
        super().__init__(reason, task)
        self.reason = reason
        self.task = task

    def __str__(self) -> str:
        return f"task {self.task} was cancelled: {self.reason}" if self.task else f"cancelled: {self.reason}"


class TaskNotFound(TaskError):
    """No task of this uuid: never added, or its retention is over."""


class ResultExpired(TaskError):
    """The task succeeded, and its result is not kept any more."""


class ResultNotStored(TaskError):
    """The task succeeded, but its result could not be encoded."""


class StoreError(OnTheDotError):
    """The store did not do what was asked."""


class StoreUnavailable(StoreError):
    """The store could not be reached."""


class StoreBusy(StoreError):
    """The store was held by others for too long."""


class StoreFull(StoreError):
    """The store takes no more tasks now."""


class StoreRefused(StoreError):
    """The store answers, and will not do it until a person changes something."""


class SchedulerStateError(OnTheDotError):
    """start() or stop() at a moment when it cannot be done."""


class TaskControl(BaseException):
    """How a task says how its run ends. A BaseException, so that ``except Exception`` does not eat it."""


class Retry(TaskControl):
    """Run this task again; counts as a retry. Without `after` its backoff decides when."""

    def __init__(self, after: float | timedelta | None = None) -> None:
        super().__init__(after)
        self.after = after


class Snooze(TaskControl):
    """Run this task again after a while; does not count."""

    def __init__(self, after: float | timedelta) -> None:
        super().__init__(after)
        self.after = after


class Reject(TaskControl):
    """This task has failed and must not be retried."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Cancel(TaskControl):
    """This task is not wanted any more."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


def meant(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known.

    >>> f"no option 'max_retry'{meant('max_retry', ['max_retries', 'timeout'])}"
    "no option 'max_retry'; did you mean 'max_retries'?"
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    there = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"; did you mean {close[0]!r}?" if close else f"; there are: {there or 'none'}"
