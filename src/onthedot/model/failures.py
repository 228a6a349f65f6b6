"""Errors and reasons as they are stored with a task, and the errors that waiting for it raises.

The class of a task's error is the user's. Its attributes, its text and even its `__class__` may raise or lie, so they
are read only where an exception is caught, and `is_a` asks for the type.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias, TypeGuard, TypeVar

import msgspec

from onthedot.clock.epoch import from_optional_ms
from onthedot.codec.task_failure import TaskFailure
from onthedot.errors import (
    ResultExpired,
    ResultNotStored,
    TaskCancelled,
    TaskControl,
    TaskFailed,
    TaskTimeout,
    WorkerDied,
)
from onthedot.stores.contract import Record

E = TypeVar("E", bound=BaseException)
ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None]
_PACKAGE = str(Path(__file__).parents[1])
UNDECODABLE_RECORD = "UndecodableRecord"  # the type of the error of a task whose record cannot be read
WORKER_DIED = "onthedot.WorkerDied"  # the type of the error of a run whose worker died
DIED = "its worker died"
NOT_STORED = b"!"  # in place of a result that could not be encoded; no JSON, so no result is the same (ADR 34)
_PUBLIC = {"onthedot.errors": "onthedot", "builtins": "builtins"}  # modules whose classes users know, and where from
_ERROR_LINE = re.compile(r"^onthedot\.errors\.(?=\w+(:|$))", re.MULTILINE)  # of a traceback
_MAX_TEXT = 32_768  # characters of a message or a traceback; the middle is left out


_Kind: TypeAlias = Literal["", "timeout", "worker_died"]
_ERRORS: dict[str, type[TaskFailed]] = {"timeout": TaskTimeout, "worker_died": WorkerDied}


class RemoteError(TaskFailed):
    """The error of a task in another process, as text."""

    def __init__(self, record: Record, failure: TaskFailure) -> None:
        super().__init__(record.uuid, failure.type, failure.message, failure.traceback, record.attempt)
        self.failure: TaskFailure = failure

    def __str__(self) -> str:
        return self.message


class _Failure(msgspec.Struct, omit_defaults=True):
    type: str
    message: str
    traceback: str = ""
    attempt: int = 1
    kind: _Kind = ""  # which error a waiting caller gets; the type may be any text
    moved_to: str = ""  # the store to which the task was moved
    started_at: int | None = None  # ms, by the clock of the worker
    ended_at: int | None = None
    worker: str = ""  # its session
    due_at: int | None = None  # of the attempt


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(_Failure)


def _decode(data: bytes) -> _Failure:
    """A failure that cannot be read is shown as such: it must not hide the other tasks of a list."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return _Failure("", f"the stored error cannot be read ({len(data)} bytes)")


def is_a(error: BaseException, kind: type[E]) -> TypeGuard[E]:
    """`isinstance` without `__class__`, which a class may define."""
    return issubclass(type(error), kind)


def encode_failure(error: BaseException, attempt: int) -> bytes:
    """An error as text: its type, message and traceback. It never raises."""
    kind = _kind(error)
    if is_a(error, RemoteError):  # text already
        known = error.failure
        return _encode(_Failure(known.type, _shortened(known.message), _shortened(known.traceback), attempt, kind))
    name = type_name(type(error))
    message = error_message(error)
    return _encode(_Failure(name, message, _traceback(error, f"{name}: {message}"), attempt, kind))


def with_times(failure: bytes, started_at: float, ended_at: float, worker: str, due_at: int | None = None) -> bytes:
    """A stored error or reason with the times of its run, in ms, and the session of its worker."""
    stored = _decode(failure)
    stored.due_at = due_at
    stored.started_at = int(started_at)
    stored.ended_at = int(ended_at)
    stored.worker = worker
    return _encode(stored)


def error_message(error: BaseException) -> str:
    """The text of an error. It never raises."""
    try:
        return _shortened(_message(error))
    except BaseException as broken:  # noqa: BLE001 - a user's __str__ may do anything
        return f"<{type_name(type(error))}.__str__ raised {type_name(type(broken))}>"


def printable_exc_info(error: BaseException) -> ExcInfo | None:
    """The error with its traceback from the user's first frame on, as `logging` takes it.

    None: it has no traceback in this process, or `logging` would fail to print it.
    """
    try:
        if error.__traceback__ is None or is_a(error, RemoteError):
            return None
        traceback.format_exception(type(error), error, None)  # without its frames, which can always be printed
        return (type(error), error, _own_frames(error.__traceback__))
    except BaseException:  # noqa: BLE001 - as above
        return None


def _kind(error: BaseException) -> _Kind:
    if is_a(error, TaskTimeout):
        return "timeout"
    return "worker_died" if is_a(error, WorkerDied) else ""


def type_name(error_class: type[BaseException]) -> str:
    """As users import it; a class that they cannot import is shown as the one that it is derived from."""
    try:
        if str(error_class.__module__).startswith("onthedot."):
            error_class = next(base for base in error_class.__mro__ if base.__module__ in _PUBLIC)
        module = str(error_class.__module__).replace("__mp_main__", "__main__")  # the script's name in a pool child
        if module == "builtins":
            return error_class.__qualname__
        return f"{_PUBLIC.get(module, module)}.{error_class.__qualname__}"
    except BaseException:  # noqa: BLE001 - as above; a metaclass may define these
        return "<an error whose class has no name>"


def _traceback(error: BaseException, last_line: str) -> str:
    """The traceback with causes and notes; without them if they cannot be read. "": nobody raised the error."""
    try:
        frames = _own_frames(error.__traceback__)
        if frames is None and error.__cause__ is None and not hasattr(error, "__notes__"):
            return ""
    except BaseException:  # noqa: BLE001 - as above
        return last_line
    try:
        text = "".join(traceback.format_exception(type(error), error, frames))
        return _shortened(_ERROR_LINE.sub("onthedot.", text))
    except BaseException:  # noqa: BLE001 - as above; a deep group of errors exceeds the recursion limit
        return _shortened("".join(traceback.format_tb(frames)) + last_line)


def encode_reason(
    reason: str, attempt: int = 1, *, error_type: str = "", kind: _Kind = "", moved_to: str = ""
) -> bytes:
    """Why a task ended without an error of its own."""
    return _encode(_Failure(error_type, _shortened(reason), "", attempt, kind, moved_to))


def encode_crash(attempt: int, due_at: int, started_at: int) -> bytes:
    """A run whose worker died. When it died is not known: the next run notes it.

    due_at, started_at: of that run, in ms
    """
    failure = _Failure(WORKER_DIED, DIED, "", attempt, "worker_died", started_at=started_at, due_at=due_at)
    return _encode(failure)


def decode_moved_to(record: Record) -> str:
    """The store to which a move has taken the task; "" if it was not moved."""
    return _decode(record.history.error).moved_to if record.state == "cancelled" and record.history.error else ""


def decode_failure(data: bytes | None) -> TaskFailure | None:
    """A stored error or reason."""
    if not data:
        return None
    stored = _decode(data)
    return TaskFailure(
        stored.type,
        stored.message,
        stored.traceback,
        stored.attempt,
        started_at=from_optional_ms(stored.started_at),
        ended_at=from_optional_ms(stored.ended_at),
        worker=stored.worker,
        due_at=from_optional_ms(stored.due_at),
    )


def error_from_record(record: Record) -> TaskFailed | TaskCancelled:
    """The error that waiting for this ended task raises."""
    data = record.history.error
    stored = _decode(data) if data else _Failure("", "", attempt=record.attempt)
    if record.state == "cancelled":
        return TaskCancelled(stored.message, record.uuid)
    error = _ERRORS.get(stored.kind, TaskFailed)
    return error(record.uuid, stored.type, stored.message, stored.traceback, stored.attempt)


def read_result(record: Record, decode: Callable[[bytes], Any]) -> Any:
    """The result of an ended task; raises what waiting for it raises."""
    if record.state != "succeeded":
        raise error_from_record(record)
    data = record.history.result
    if data is None:
        raise ResultExpired(f"task {record.uuid} succeeded, but its result is not kept any more")
    if data == NOT_STORED:
        raise ResultNotStored(
            f"task {record.uuid} succeeded, but its result could not be stored; the worker's log says why"
        )
    return decode(data)


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the user's first frame on, without the frames of the engine."""
    first = trace
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        first = first.tb_next
    return first or trace


def _message(error: BaseException) -> str:
    if is_a(error, TaskTimeout):
        return error.message
    if is_a(error, TaskControl):
        return getattr(error, "reason", "") or _cause(error) or type(error).__name__
    return str(error)


def _cause(error: BaseException) -> str:
    """The error from which another was raised: ``raise Retry from error``, or inside of ``except``."""
    cause = error.__cause__
    if cause is None and not error.__suppress_context__:
        cause = error.__context__
    return "" if cause is None else f"{type_name(type(cause))}: {error_message(cause)}"


def _shortened(text: str) -> str:
    text = str.encode(text, "utf-8", "backslashreplace").decode()  # lone surrogates are not JSON
    if len(text) <= _MAX_TEXT:
        return text
    half = _MAX_TEXT // 2
    return f"{text[:half]}\n… {len(text) - _MAX_TEXT} characters left out …\n{text[-half:]}"
