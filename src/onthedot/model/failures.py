"""How a run ended becomes an outcome: the one place that decides what a failure means."""

from __future__ import annotations

import random as randomness
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from onthedot.errors import (
    Cancel,
    Reject,
    ResultExpired,
    ResultNotStored,
    Retry,
    Snooze,
    TaskCancelled,
    TaskControl,
    TaskFailed,
    TaskTimeout,
)
from onthedot.model.backoff import to_duration_ms
from onthedot.model.options import ResolvedOptions
from onthedot.model.task import TaskFailure
from onthedot.stores.contract import Ended, Lease, Outcome, Record, Requeued

_PACKAGE = str(Path(__file__).parents[1])
NOT_STORED = b"!"  # stands where a result should be that could not be encoded
_MOST_TEXT = 32_768  # of a message or a traceback: the ends say the most


class _Failure(msgspec.Struct, omit_defaults=True):
    type: str
    message: str
    traceback: str = ""
    attempt: int = 1


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Failure).decode


def encode_failure(error: BaseException, attempt: int) -> bytes:
    known = getattr(error, "failure", None)
    if isinstance(known, TaskFailure):  # it comes from another process, as text
        return _encode(_Failure(known.type, _short(known.message), _short(known.traceback), attempt))
    kind = type(error)
    module = kind.__module__.replace("__mp_main__", "__main__")  # the script's name in a pool child
    name = kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
    trace = "".join(traceback.format_exception(type(error), error, _own_frames(error.__traceback__)))
    return _encode(_Failure(name, _short(_text(error)), _short(trace), attempt))


def write_reason(reason: str, attempt: int = 1, kind: str = "") -> bytes:
    """Why a task ended without an error of its own."""
    return _encode(_Failure(kind, _short(reason), "", attempt))


def decode_failure(data: bytes | None) -> TaskFailure | None:
    if not data:
        return None
    found = _decode(data)
    return TaskFailure(found.type, found.message, found.traceback, found.attempt)


def outcome_for_error(
    error: BaseException, record: Record, lease: Lease, options: ResolvedOptions, random: randomness.Random
) -> tuple[Outcome, BaseException]:
    """What a run came to, and by which error: judging may raise one too. What was judged where it ran stands."""
    known = getattr(error, "outcome", None)
    if isinstance(known, Requeued | Ended) and known.lease == lease:
        return known, error
    try:
        return classify_error(error, record, lease, options, random), error
    except Exception as broken:  # noqa: BLE001 - a backoff of the user's own, or a Retry(after) that is no time
        broken.__context__ = error
        return failed(broken, record, lease, options), broken


def classify_error(
    error: BaseException, record: Record, lease: Lease, options: ResolvedOptions, random: randomness.Random
) -> Outcome:
    """An exception, seen by the options of its task."""
    match error:
        case Snooze():
            return Requeued(lease, to_duration_ms(error.after, "Snooze(after)"), counted=False)
        case Cancel():
            return cancelled(record, lease, options, error.reason or "Cancel")
        case Reject():
            return failed(error, record, lease, options)
        case TaskCancelled() if error.task == record.uuid:  # its own: raise_if_cancelled()
            return cancelled(record, lease, options, error.reason)
        case Retry() if error.after is not None:
            after: int | None = to_duration_ms(error.after, "Retry(after)")
        case _:
            after = None
    wanted = isinstance(error, (Retry, TaskTimeout, *options.retry_on))
    if not wanted or isinstance(error, options.reject_on) or record.history.retries >= options.max_retries:
        return failed(error, record, lease, options)
    if after is None:
        after = options.backoff.delay_ms(record.history.retries + 1, error, random)
    return Requeued(lease, after, counted=True, error=encode_failure(error, record.attempt))


def cancelled(record: Record, lease: Lease, options: ResolvedOptions, reason: str) -> Ended:
    return Ended(lease, "cancelled", write_reason(reason, record.attempt), options.keep)


def failed(error: BaseException, record: Record, lease: Lease, options: ResolvedOptions) -> Ended:
    return Ended(lease, "failed", encode_failure(error, record.attempt), options.keep_failed)


def error_from_record(record: Record) -> TaskFailed | TaskCancelled:
    """What waiting for this ended task raises."""
    failure = decode_failure(record.history.error) or TaskFailure("", "", "", record.attempt)
    if record.state == "cancelled":
        return TaskCancelled(failure.message, record.uuid)
    kind = TaskTimeout if failure.type.endswith("TaskTimeout") else TaskFailed
    return kind(record.uuid, failure.type, failure.message, failure.traceback, failure.attempt)


def read_result(record: Record, decode: Callable[[bytes], Any]) -> Any:
    """Of an ended task; raises what waiting for it raises."""
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
    """From the user's first frame on: how the engine came to call it helps nobody."""
    first = trace
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        first = first.tb_next
    return first or trace


def _text(error: BaseException) -> str:
    if isinstance(error, TaskTimeout):
        return error.message
    if isinstance(error, TaskControl):
        return getattr(error, "reason", "") or type(error).__name__
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - a user's __str__ may do anything
        return f"<{type(error).__name__}.__str__ raised {type(broken).__name__}>"


def _short(text: str) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()  # lone surrogates are not JSON
    if len(text) <= _MOST_TEXT:
        return text
    half = _MOST_TEXT // 2
    return f"{text[:half]}\n… {len(text) - _MOST_TEXT} characters left out …\n{text[-half:]}"
