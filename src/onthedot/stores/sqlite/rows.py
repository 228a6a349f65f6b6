"""Rows of the queries, and the records that they stand for."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from onthedot.stores.contract import (
    NO_HISTORY,
    HandleRecord,
    History,
    Limit,
    Links,
    NewEvent,
    OutboxEvent,
    Policy,
    Reason,
    Record,
    Schedule,
    State,
    Wait,
)
from onthedot.stores.links_json import links_of, wait_of, wait_text
from onthedot.stores.policy_json import policy_of
from onthedot.stores.rules.records import with_history, with_state

Row = tuple[Any, ...]
_EXPECTED = tuple[tuple[tuple[str, ...], int], ...]
_MAX_HISTORIES = 1000  # remembered; the tasks of a group share theirs
TASK_COLUMNS = 11  # of a TaskRow, before those of its history


class TaskRow(msgspec.Struct, gc=False):
    """The columns of ``{record}`` in queries.sql. If `reason` is None, the task has no history yet."""

    uuid: str
    source: int
    body: bytes
    policy: str
    lane: str | None
    unique: str | None
    due: int
    seq: int
    added: int
    state: State
    links: str | None = None
    reason: Reason | None = None
    retries: int = 0
    crashes: int = 0
    earlier: int = 0
    cancel_requested: int = 0
    settled_fence: int = 0
    session: str | None = None
    started: int | None = None
    ended: int | None = None
    keep_until: int | None = None
    result: bytes | None = None
    error: bytes | None = None
    result_until: int | None = None
    hops: int = 0
    revives: int = 0
    wait: str | None = None
    wait_until: int | None = None


class ClaimRow(NamedTuple):
    """A claim."""

    session: str
    at: int


class RetentionRow(NamedTuple):
    """Tasks, or results, that ended in one call and are kept for the same time; tasks are of one source and state."""

    number: int
    until: int
    ended: int
    seqs: str
    source: int | None
    state: State | None


class UndecodableRow(Exception):
    """The policy or the links of a task cannot be read. The writer makes the task a chore and repeats the call."""

    def __init__(self, seq: int) -> None:
        super().__init__(seq)
        self.seq = seq


def row_policy(row: TaskRow) -> Policy:
    try:
        return policy_of(row.policy)
    except msgspec.DecodeError:
        raise UndecodableRow(row.seq) from None


def row_links(row: TaskRow) -> Links | None:
    if row.links is None:
        return None
    try:
        return links_of(row.links)
    except msgspec.DecodeError:
        raise UndecodableRow(row.seq) from None


def _wait(row: TaskRow) -> Wait | None:
    if row.wait is None:
        return None
    try:
        return wait_of(row.wait)
    except msgspec.DecodeError:
        raise UndecodableRow(row.seq) from None


@lru_cache(_MAX_HISTORIES)
def _first_history(wait_until: int) -> History:
    return History(wait_until=wait_until)


def to_record(row: TaskRow, source: str, now: float) -> Record:
    policy = row_policy(row)
    history = NO_HISTORY
    if row.reason is None and row.wait_until is not None and row.state == "waiting":
        history = _first_history(row.wait_until)
    elif row.reason is not None:
        result = None if row.result_until is not None and row.result_until <= now else row.result
        history = History(
            row.reason, row.retries, row.crashes, row.earlier, bool(row.cancel_requested), row.settled_fence,
            row.session, row.started, row.ended, row.keep_until, result, row.error, row.hops,
            row.revives, _wait(row), row.wait_until,
        )  # fmt: skip
    return Record(
        row.uuid, source, row.body, policy, row.lane, row.unique, row.due, row.seq, row.added, row.state, history,
        None if row.links is None else row_links(row),
    )  # fmt: skip


def to_readable(row: TaskRow, source: str, now: float) -> Record:
    """For a reader, which cannot change the task: an undecodable policy has its defaults."""
    try:
        return to_record(row, source, now)
    except UndecodableRow:
        record = to_record(msgspec.structs.replace(row, policy="{}", links=None, wait=None), source, now)
        return with_state(record, record.state, with_history(record.history, reason="undecodable"))


def is_suspect(row: TaskRow) -> bool:
    crashes = row.crashes if row.reason is not None else 0
    return crashes + 1 >= row_policy(row).max_crashes


def to_save(record: Record) -> Row:
    """The parameters of `save_history`."""
    history = record.history
    wait = None if history.wait is None else wait_text(history.wait)
    return (
        record.due, record.state, history.reason, history.retries, history.crashes, history.earlier,
        int(history.cancel_requested), history.settled_fence, history.session, history.started, history.ended,
        history.keep_until, history.result, history.error, history.hops, history.revives,
        None, wait, history.wait_until, record.seq,
    )  # fmt: skip


def to_limit(row: Row) -> Limit:
    name, cap, rate, burst, paused, reason, owner, paused_since, lane_rule, mode = row
    return Limit(name, cap, rate, burst, bool(paused), reason, owner, paused_since, lane_rule, mode)


def to_schedule(row: Row) -> Schedule:
    name, rule, digest, next_at, rev, paused, last_at, runs, incoming = row
    return Schedule(name, rule, digest, next_at, rev, bool(paused), last_at, runs, bool(incoming))


def to_event(row: Row) -> OutboxEvent:
    """The columns of ``{event_columns}`` in event_queries.sql: those of a `NewEvent` are between seq and status."""
    seq, *event, status, attempts, error, sent_at, position = row
    return OutboxEvent(seq, NewEvent(*event), status, attempts, error, sent_at, position)


def to_handle(row: Row) -> HandleRecord:
    """The columns of ``{handle_columns}`` in event_queries.sql."""
    handle_id, correlation_id, expected, target, status, created, expires_at, ended = row
    types = msgspec.json.decode(expected, type=_EXPECTED)
    return HandleRecord(
        handle_id, correlation_id, types, target, expires_at - created, status, created, expires_at, ended
    )


def from_handle(handle: HandleRecord) -> Row:
    """The parameters of `save_handle`, without the app."""
    return (
        handle.id, handle.correlation_id, json_list(handle.expected), handle.target, handle.status, handle.created,
        handle.expires_at, handle.ended,
    )  # fmt: skip


def json_list(values: object) -> str:
    """A parameter for json_each()."""
    return msgspec.json.encode(values).decode()
