"""Errors and reasons as they are stored with a task, and the errors that waiting for it raises."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias

import msgspec

from onthedot.errors import (
    ResultExpired,
    ResultNotStored,
    TaskCancelled,
    TaskControl,
    TaskFailed,
    TaskTimeout,
    WorkerDied,
)
from onthedot.model.task import TaskFailure
from onthedot.stores.contract import Record

_PACKAGE = str(Path(__file__).parents[1])
NOT_STORED = b"!"  # in place of a result that could not be encoded
_MAX_TEXT = 32_768  # characters of a message or a traceback; the middle is left out


_Kind: TypeAlias = Literal["", "timeout", "worker_died"]
_ERRORS: dict[str, type[TaskFailed]] = {"timeout": TaskTimeout, "worker_died": WorkerDied}


class _Failure(msgspec.Struct, omit_defaults=True):
    type: str
    message: str
    traceback: str = ""
    attempt: int = 1
    kind: _Kind = ""  # which error a waiting caller gets; the type may be any text
    moved_to: str = ""  # the store to which the task was moved


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Failure).decode


def encode_failure(error: BaseException, attempt: int) -> bytes:
    """An error as text: its type, message and traceback."""
    kind = _kind(error)
    known = getattr(error, "failure", None)
    if isinstance(known, TaskFailure):  # the error of another process, which is text already
        return _encode(_Failure(known.type, _shortened(known.message), _shortened(known.traceback), attempt, kind))
    error_class = type(error)
    module = error_class.__module__.replace("__mp_main__", "__main__")  # the script's name in a pool child
    name = error_class.__qualname__ if module == "builtins" else f"{module}.{error_class.__qualname__}"
    trace = "".join(traceback.format_exception(error_class, error, _own_frames(error.__traceback__)))
    return _encode(_Failure(name, _shortened(_message(error)), _shortened(trace), attempt, kind))


def _kind(error: BaseException) -> _Kind:
    if isinstance(error, TaskTimeout):
        return "timeout"
    return "worker_died" if isinstance(error, WorkerDied) else ""


def encode_reason(
    reason: str, attempt: int = 1, *, error_type: str = "", kind: _Kind = "", moved_to: str = ""
) -> bytes:
    """Why a task ended without an error of its own."""
    return _encode(_Failure(error_type, _shortened(reason), "", attempt, kind, moved_to))


def decode_moved_to(record: Record) -> str:
    """The store to which a move has taken the task; "" if it was not moved."""
    return _decode(record.history.error).moved_to if record.state == "cancelled" and record.history.error else ""


def decode_failure(data: bytes | None) -> TaskFailure | None:
    """A stored error or reason."""
    if not data:
        return None
    stored = _decode(data)
    return TaskFailure(stored.type, stored.message, stored.traceback, stored.attempt)


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
    if isinstance(error, TaskTimeout):
        return error.message
    if isinstance(error, TaskControl):
        return getattr(error, "reason", "") or type(error).__name__
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - a user's __str__ may do anything
        return f"<{type(error).__name__}.__str__ raised {type(broken).__name__}>"


def _shortened(text: str) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()  # lone surrogates are not JSON
    if len(text) <= _MAX_TEXT:
        return text
    half = _MAX_TEXT // 2
    return f"{text[:half]}\n… {len(text) - _MAX_TEXT} characters left out …\n{text[-half:]}"
