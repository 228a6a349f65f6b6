"""Errors of a task in its own process, as errors of the worker: text, with the outcome that the child decided on."""

from __future__ import annotations

from collections.abc import Callable

from onthedot.errors import Cancel, Reject, Retry, Snooze, TaskControl, TaskFailed, WorkerDied
from onthedot.executors.processes.messages import RaisedMessage, RefusedMessage
from onthedot.model.context import RunState
from onthedot.model.error_policy import failed_outcome
from onthedot.model.failures import decode_failure
from onthedot.model.task import TaskFailure
from onthedot.stores.contract import Ended, Requeued

_CONTROLS: dict[str, Callable[[str], TaskControl]] = {
    "Retry": lambda _: Retry(),
    "Snooze": lambda _: Snooze(0),
    "Reject": Reject,
    "Cancel": Cancel,
}


class RemoteError(TaskFailed):
    """The error of a task in its process, as text."""

    outcome: Requeued | Ended | None = None  # decided in the child, where the class of the error is known

    def __init__(self, run: RunState, failure: TaskFailure) -> None:
        super().__init__(run.record.uuid, failure.type, failure.message, failure.traceback, run.record.attempt)
        self.failure: TaskFailure = failure

    def __str__(self) -> str:
        return self.message


class PoolChildDied(RemoteError, WorkerDied):
    """`WorkerDied`, as the worker raises it; `how` says how the process ended."""

    def __init__(self, run: RunState, how: str) -> None:
        super().__init__(run, TaskFailure("onthedot.WorkerDied", how, "", run.record.attempt))


def error_from_reply(run: RunState, message: RaisedMessage | RefusedMessage) -> BaseException:
    """The error to raise in the worker for a child's answer."""
    error = remote_error(run, message.error)
    if isinstance(message, RefusedMessage):
        error.outcome = failed_outcome(error, run.record, run.lease, run.source.options)
        return error
    error.outcome = message.outcome
    if message.control:  # middleware must not take it for an Exception
        control = _CONTROLS[message.control](error.message)
        control.outcome = message.outcome  # type: ignore[attr-defined]
        return control
    return error


def remote_error(run: RunState, data: bytes) -> RemoteError:
    failure = decode_failure(data)
    assert failure is not None
    return RemoteError(run, failure)
