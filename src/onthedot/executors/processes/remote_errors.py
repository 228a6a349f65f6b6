"""Errors of a task in its own process, as errors of the worker."""

from __future__ import annotations

from typing import assert_never

from onthedot.codec.task_failure import TaskFailure
from onthedot.errors import Cancel, Reject, Retry, Snooze, WorkerDied
from onthedot.executors.processes.messages import Control, RaisedMessage, RefusedMessage
from onthedot.model.context import RunState
from onthedot.model.error_policy import failed_outcome
from onthedot.model.failures import RemoteError, decode_failure, is_a


class PoolChildDied(RemoteError, WorkerDied):
    """`WorkerDied`, as the worker raises it; `how` says how the process ended."""

    def __init__(self, run: RunState, how: str) -> None:
        super().__init__(run.record, TaskFailure("onthedot.WorkerDied", how, "", run.record.attempt))


def error_from_reply(run: RunState, message: RaisedMessage | RefusedMessage) -> BaseException:
    """The error to raise in the worker for a child's answer."""
    failure = remote_error(run, message.error)
    if isinstance(message, RefusedMessage):
        run.classified = (failure, failed_outcome(failure, run.record, run.lease, run.source.options))
        return failure
    error = _control(message.control, failure)
    run.classified = (error, message.outcome)
    return error


def _control(name: Control, failure: RemoteError) -> BaseException:
    """The error as middleware shall see it: a control is not an Exception."""
    match name:
        case "":
            return failure
        case "Retry":
            return Retry(reason=failure.message)
        case "Snooze":
            return Snooze(0)
        case "Reject":
            return Reject(failure.message)
        case "Cancel":
            return Cancel(failure.message)
        case _:
            assert_never(name)


def control_name(error: BaseException) -> Control:
    """Which control an error is; the user may have derived a class from it."""
    if is_a(error, Retry):
        return "Retry"
    if is_a(error, Snooze):
        return "Snooze"
    if is_a(error, Reject):
        return "Reject"
    return "Cancel" if is_a(error, Cancel) else ""


def remote_error(run: RunState, data: bytes) -> RemoteError:
    failure = decode_failure(data)
    assert failure is not None
    return RemoteError(run.record, failure)
