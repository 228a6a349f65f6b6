"""Records as users see them. A body that cannot be decoded is shown raw and raises nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from onthedot.clock.epoch import from_ms, from_optional_ms
from onthedot.codec.body import NO_HEADERS, Headers, Undecodable
from onthedot.codec.untyped import decode_untyped
from onthedot.model.failures import decode_failure
from onthedot.model.task import Task, TaskFailure, TaskInfo, TaskState
from onthedot.stores.contract import Note, Record, State


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


def task_info(record: Record, notes: Sequence[Note] = ()) -> TaskInfo:
    arguments, headers = decode_body(record)
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
    )
