"""Records as users see them. A body that cannot be decoded is shown raw and raises nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from onthedot.clock.epoch import from_ms, from_optional_ms
from onthedot.codec.body import NO_HEADERS, Headers, Undecodable
from onthedot.codec.task_failure import TaskFailure
from onthedot.codec.untyped import decode_untyped, decode_untyped_result
from onthedot.model.failures import NOT_STORED, decode_failure
from onthedot.model.streams import streamed_items
from onthedot.model.task import ResultStatus, Task, TaskInfo, TaskState
from onthedot.stores.contract import Note, Reason, Record, State

_ENDED_BY_A_RUN: tuple[Reason, ...] = ("due", "crash")


def decode_body(record: Record) -> tuple[dict[str, object], Headers]:
    try:
        return decode_untyped(record.body)
    except Undecodable:
        return {"undecodable": record.body.decode(errors="backslashreplace")}, NO_HEADERS


def schedule_at(record: Record, headers: Headers) -> datetime:
    """The time that the caller gave, with its microseconds and zone; else the due time."""
    return from_ms(record.due) if headers.at is None else datetime.fromisoformat(headers.at)


def task_from_record(record: Record) -> Task:
    arguments, headers = decode_body(record)
    return Task(record.source, arguments, schedule_at(record, headers), record.uuid)


def public_state(state: State) -> TaskState:
    """Users see a parked task as ready."""
    if state == "parked":
        return TaskState.READY
    return TaskState(state)


def result_status(record: Record) -> ResultStatus:
    if record.state == "succeeded":
        if record.history.result is None:
            return "expired"
        if record.history.result == NOT_STORED:
            return "not_stored"
        return "stored" if streamed_items(record) is None else "streamed"
    return "none" if public_state(record.state).ended else "pending"


def _result(data: bytes | None, decode: Callable[[bytes], object]) -> object:
    for read in (decode, decode_untyped_result):  # its function may have another annotation by now
        try:
            return read(data or b"")
        except Undecodable:
            pass
    return {"undecodable": (data or b"").decode(errors="backslashreplace")}


def _duration(record: Record) -> timedelta | None:
    history = record.history
    if history.started is None or history.ended is None or history.reason not in _ENDED_BY_A_RUN:
        return None  # it ended while it was pending, perhaps long after its last run
    return timedelta(milliseconds=history.ended - history.started)


def task_info(
    record: Record, notes: Sequence[Note] = (), decode_result: Callable[[bytes], object] = decode_untyped_result
) -> TaskInfo:
    """decode_result: by the annotation of its function, where the code is known."""
    arguments, headers = decode_body(record)
    status = result_status(record)
    history = record.history
    failure = decode_failure(history.error)
    error: TaskFailure | None = None
    reason = ""
    if failure is not None and not failure.type:
        reason = failure.message
    elif record.state != "succeeded":
        error = failure
    state = public_state(record.state)
    errors = [decode_failure(note.data) for note in notes if note.kind == "error"]
    progress = [note.data for note in notes if note.kind == "progress"]
    return TaskInfo(
        uuid=record.uuid,
        source=record.source,
        state=state,
        args=arguments,
        priority=record.policy.priority,
        attempt=record.attempt,
        retries=history.retries,
        crashes=history.crashes,
        added_at=from_ms(record.added),
        schedule_at=schedule_at(record, headers),
        started_at=from_optional_ms(history.started),
        ended_at=from_optional_ms(history.ended),
        worker=history.session,
        label=headers.label,
        tags=record.policy.tags,
        metadata=headers.metadata or {},
        unique=record.unique,
        lane=record.lane,
        reason=reason,
        error=error,
        errors=tuple(error for error in errors if error is not None),
        progress=msgspec.json.decode(progress[-1], type=tuple[float, float]) if progress else None,
        cancel_wanted=history.cancel_requested and not state.ended,
        result=_result(history.result, decode_result) if status == "stored" else None,
        result_status=status,
        duration=_duration(record),
        flow=None if record.links is None else record.links.flow,
    )
