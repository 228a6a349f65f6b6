"""All errors of onthedot.

::

    OnTheDotError
    ├── DeclarationError (TypeError)     a definition that cannot work
    │   ├── DuplicateTask
    │   ├── BadSchedule
    │   ├── BadLimit
    │   └── BadEvent
    ├── ArgumentError (TypeError)        arguments that cannot be stored as they are
    ├── TaskError                        how a task ended, or what is missing of it
    │   ├── TaskFailed
    │   │   ├── TaskTimeout
    │   │   └── WorkerDied
    │   ├── TaskCancelled
    │   ├── TaskNotFound
    │   ├── ResultExpired
    │   ├── ResultNotStored
    │   ├── StepChanged                  the code of a durable task does not fit its saved steps
    │   └── StreamRestarted              a new run has begun a stream again
    ├── StoreError                       the store did not do it
    │   ├── StoreUnavailable             not reached, or no answer: `stored` is False (not stored) or None (unknown)
    │   ├── StoreBusy                    reached, but locked by others for too long: not stored
    │   ├── StoreFull                    not stored
    │   │   └── SourceFrozen             new tasks or batches are not accepted now
    │   └── StoreRefused                 a person must change something: schema, login, script, policy
    ├── SchedulerStateError              start or stop at the wrong moment
    └── Expired (TimeoutError)           not all expected events came in time

    TaskControl (BaseException)          raised by a task to choose its outcome; `except Exception` does not catch it
    ├── Retry(after=None, reason="")     run again, counted
    ├── Snooze(after)                    run again later, not counted
    ├── Reject(reason)                   failed, without further retries
    └── Cancel(reason)                   cancelled

A wait that exceeds its timeout raises the builtin ``TimeoutError``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from onthedot.events.event import Event


class OnTheDotError(Exception):
    """The base of all errors of onthedot, except the task controls (`Retry`, `Snooze`, `Reject`, `Cancel`)."""


class DeclarationError(OnTheDotError, TypeError):
    """A task, schedule or limit is declared in a way that cannot work."""


class DuplicateTask(DeclarationError):
    """Two functions or consumers have the same name."""


class BadSchedule(DeclarationError):
    """A schedule that cannot be read, or that never fires."""


class BadLimit(DeclarationError):
    """A limit that cannot be read, or that no task could ever pass."""


class BadEvent(DeclarationError):
    """An event, or an expectation of events, that cannot be as it is declared: its type, a field, a topic."""


class ArgumentError(OnTheDotError, TypeError):
    """An argument does not fit the signature, or would not come back equal. The message names its path."""


class TaskError(OnTheDotError):
    """A task did not succeed, is not known, or its result is not available."""


class TaskFailed(TaskError):
    """The task ended as failed. The traceback of the run is attached as a note; it is text, nothing is unpickled.

    Args:
        task: uuid of the task.
        error_type: type of the error of its last run, as in "KeyError" or "shop.OutOfStock".
        message: text of that error.
        traceback: traceback of that error, as text.
        attempt: number of that run, from 1.

    >>> str(TaskFailed("0198", "KeyError", "'x'"))
    "task 0198 failed: KeyError: 'x'"
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
    """The task ended as cancelled: by a person, by itself, because it expired, or because a memory store closed.

    Args:
        reason: why it was cancelled.
        task: uuid of the task.

    >>> str(TaskCancelled("expired", "0198"))
    'task 0198 was cancelled: expired'
    """

    def __init__(self, reason: str = "", task: str = "") -> None:
        super().__init__(reason, task)
        self.reason = reason
        self.task = task

    def __str__(self) -> str:
        if not self.task:
            return f"cancelled: {self.reason}"
        return f"task {self.task} was cancelled: {self.reason}"


class TaskNotFound(TaskError):
    """There is no task with this uuid: it was never added, or its retention is over."""


class ResultExpired(TaskError):
    """The task succeeded, but its result is no longer kept."""


class ResultNotStored(TaskError):
    """The task succeeded, but its result could not be encoded."""


class StepChanged(TaskError):
    """The code of a durable task does not fit the steps that earlier runs of it have saved. It fails without a retry.

    Nothing of the step has run. Declare the change with ``ctx.changed(…)``, then retry the task.

    Args:
        task: uuid of the task.
        message: what has changed, and the remedies.
    """

    def __init__(self, task: str, message: str) -> None:
        super().__init__(task, message)
        self.task = task
        self.message = message

    def __str__(self) -> str:
        return f"task {self.task}: {self.message}"


class StreamRestarted(TaskError):
    """A new run of a stream has begun again: the items that were read so far are not part of it. Read from the start.

    A task that reads ``ctx.streamed`` before its first item continues its stream instead.

    Args:
        task: uuid of the task.
    """

    def __init__(self, task: str) -> None:
        super().__init__(task)
        self.task = task

    def __str__(self) -> str:
        return f"task {self.task} has begun its stream again: drop what you have read and read it from the start"


class StoreError(OnTheDotError):
    """The store did not carry out a call.

    uuids: tasks whose add was not acknowledged; empty for any other call
    stored: of these tasks. False: they were not stored, and will not appear later. None: unknown
    """

    uuids: tuple[str, ...] = ()
    stored: Literal[False] | None = None

    @property
    def uuid(self) -> str | None:
        """The task of an add of one task."""
        return self.uuids[0] if len(self.uuids) == 1 else None


class StoreUnavailable(StoreError):
    """The store could not be reached, or did not answer in time.

    Args:
        message: what happened.
        stored: False: no task of this call was stored, or will be: it was not sent, was withdrawn or was refused. None:
            it was sent and not answered. Adding the task again with ``options(uuid=error.uuid)`` is safe then: a task
            that was stored remains, and runs once.

    >>> error = StoreUnavailable("no answer within 5 s")
    >>> error.uuids = ("0198",)
    >>> str(error)
    "no answer within 5 s; task 0198 may be stored or not: adding it again with options(uuid='0198') is safe"
    """

    def __init__(self, message: str = "", *, stored: Literal[False] | None = None) -> None:
        super().__init__(message)
        self.stored: Literal[False] | None = stored

    def __str__(self) -> str:
        message = super().__str__()
        if not self.uuids:
            return message
        count = len(self.uuids)
        if self.stored is False and self.uuid is not None:
            return f"{message}; task {self.uuid} was not stored and will not appear later: add it again"
        if self.stored is False:
            return f"{message}; none of {count:,} tasks was stored or will appear later: add them again"
        if self.uuid is not None:
            again = f"adding it again with options(uuid={self.uuid!r}) is safe"
            return f"{message}; task {self.uuid} may be stored or not: {again}"
        return f"{message}; {count:,} tasks may be stored or not: adding each again with its uuid (error.uuids) is safe"


class StoreBusy(StoreError):
    """The store was locked by others for too long. Nothing was stored."""

    stored: Literal[False] | None = False


class StoreFull(StoreError):
    """The store accepts no more tasks now: it, or the task's `max_pending`, is full. Nothing was stored."""

    stored: Literal[False] | None = False


class SourceFrozen(StoreFull):
    """An operator has frozen a source, or the batches of a task: running ones finish, new ones are not accepted.

    Nothing was stored.

    Args:
        source: name of the source; for batches, of their task.
        retry_after: seconds after which a caller may try again, such as for the header ``Retry-After``.
        what: what is not accepted, ``tasks`` or ``batches``.

    >>> str(SourceFrozen("names", 30))
    'names is frozen: it accepts no new tasks now; try again in 30 s, or end it with `onthedot source thaw names`'
    """

    def __init__(self, source: str, retry_after: float, what: Literal["tasks", "batches"] = "tasks") -> None:
        super().__init__(source, retry_after, what)
        self.source = source
        self.retry_after = retry_after
        self.what = what

    def __str__(self) -> str:
        group = "source" if self.what == "tasks" else "batch"
        return (
            f"{self.source} is frozen: it accepts no new {self.what} now; try again in {self.retry_after:g} s, or end "
            f"it with `onthedot {group} thaw {self.source}`"
        )


class StoreRefused(StoreError):
    """The store answers, but refuses until a person changes something: schema, login or policy. Nothing was stored."""

    stored: Literal[False] | None = False


class SchedulerStateError(OnTheDotError):
    """start() or stop() was called in a state that does not allow it."""


class Expired(OnTheDotError, TimeoutError):
    """Not all events that a resume handle expects came in time.

    Args:
        events: those that came, in order of arrival.
        missing: how many are missing, by the types of which each would count.

    >>> str(Expired([], {("Shop.Order.Paid", "Shop.Order.Cancelled"): 2}))
    'not all expected events came in time: 2 of Shop.Order.Paid or Shop.Order.Cancelled are missing; 0 came'
    """

    def __init__(self, events: Sequence[Event[Any]], missing: Mapping[tuple[str, ...], int]) -> None:
        super().__init__(events, missing)
        self.events: list[Event[Any]] = list(events)
        self.missing: dict[tuple[str, ...], int] = dict(missing)

    def __str__(self) -> str:
        missing = ", ".join(f"{count} of {' or '.join(types)}" for types, count in self.missing.items())
        verb = "is" if sum(self.missing.values()) == 1 else "are"
        return f"not all expected events came in time: {missing} {verb} missing; {len(self.events)} came"


class TaskControl(BaseException):
    """Raised by a task to choose the outcome of its run. ``except Exception`` does not catch it."""


class Retry(TaskControl):
    """Run this task again; counts as a retry, so `max_retries` applies. A task without `max_retries` gets 3 of them.

    Args:
        after: seconds or a timedelta until then; by default the task's `backoff` decides.
        reason: shown in the log, as the error of the run, and in `onthedot failed` once no retry is left; by default
            the error that it was raised from.

    >>> raise Retry(after=30, reason="the bank is closed")
    Traceback (most recent call last):
    onthedot.errors.Retry: the bank is closed
    """

    def __init__(self, after: float | timedelta | None = None, reason: str = "") -> None:
        super().__init__(after, reason)
        self.after = after
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Snooze(TaskControl):
    """Run this task again later; not counted as a retry.

    Args:
        after: seconds or a timedelta until then.

    >>> raise Snooze(after=3600)
    Traceback (most recent call last):
    onthedot.errors.Snooze: 3600
    """

    def __init__(self, after: float | timedelta) -> None:
        super().__init__(after)
        self.after = after


class Reject(TaskControl):
    """End this task as failed, without further retries.

    Args:
        reason: shown as the message of its failure.

    >>> raise Reject("no such order")
    Traceback (most recent call last):
    onthedot.errors.Reject: no such order
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Cancel(TaskControl):
    """End this task as cancelled.

    Args:
        reason: shown with the task, and in the `TaskCancelled` of a caller that waits for it.

    >>> raise Cancel("the order was withdrawn")
    Traceback (most recent call last):
    onthedot.errors.Cancel: the order was withdrawn
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


def shortened_list(names: Sequence[str]) -> str:
    """All names, or the first eight of many.

    >>> shortened_list("abcdefghijkl")
    'a, b, c, d, e, f, g, h, i, j, k, l'
    >>> shortened_list("abcdefghijklm")
    'a, b, c, d, e, f, g, h and 5 more'
    """
    if len(names) <= 12:
        return ", ".join(names)
    return f"{', '.join(names[:8])} and {len(names) - 8} more"


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, or a list.

    >>> f"no option 'max_retry'{suggestion('max_retry', ['max_retries', 'timeout'])}"
    "no option 'max_retry'; did you mean 'max_retries'?"
    """
    names = sorted(known)
    if close := get_close_matches(name, names, n=1):
        return f"; did you mean {close[0]!r}?"
    listed = shortened_list(names)
    return f"; there are: {listed or 'none'}"
