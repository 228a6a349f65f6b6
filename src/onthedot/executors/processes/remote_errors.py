"""What became of a task in its own process, as errors of the worker's: text, and a verdict that stands."""

from __future__ import annotations

from collections.abc import Callable

from onthedot.errors import Cancel, Reject, Retry, Snooze, TaskControl, TaskFailed
from onthedot.executors.processes.messages import RaisedMessage, RefusedMessage
from onthedot.model.context import TaskContext
from onthedot.model.failures import decode_failure, failed
from onthedot.model.task import TaskFailure
from onthedot.stores.contract import Ended, Requeued

_CONTROLS: dict[str, Callable[[str], TaskControl]] = {
    "Retry": lambda _: Retry(),
    "Snooze": lambda _: Snooze(0),
    "Reject": Reject,
    "Cancel": Cancel,
}


class RemoteError(TaskFailed):
    """What happened to a task in its process, as far as text can carry it."""

    outcome: Requeued | Ended | None = None  # set: it was judged there

    def __init__(self, run: TaskContext, failure: TaskFailure) -> None:
        super().__init__(run.uuid, failure.type, failure.message, failure.traceback, run.attempt)
        self.failure: TaskFailure = failure

    def __str__(self) -> str:
        return self.message


class WorkerDied(RemoteError):
    """The process of a task ended under it: killed, crashed, or by its own os._exit."""

    def __init__(self, run: TaskContext, how: str) -> None:
        super().__init__(run, TaskFailure("onthedot.WorkerDied", how, "", run.attempt))


def error_from_reply(run: TaskContext, message: RaisedMessage | RefusedMessage) -> BaseException:
    error = remote_error(run, message.error)
    if isinstance(message, RefusedMessage):
        error.outcome = failed(error, run.record, run.lease, run.declared.options)
        return error
    error.outcome = message.outcome
    if message.control:  # layers must not take it for an Exception
        control = _CONTROLS[message.control](error.message)
        control.outcome = message.outcome  # type: ignore[attr-defined]
        return control
    return error


def remote_error(run: TaskContext, data: bytes) -> RemoteError:
    failure = decode_failure(data)
    assert failure is not None
    return RemoteError(run, failure)
