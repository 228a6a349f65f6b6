"""Rows of the task table, and the records they stand for."""

from __future__ import annotations

from typing import Any

from onthedot.stores.contract import NO_HISTORY, History, Record
from onthedot.stores.policy_json import policy_of

Row = tuple[Any, ...]


def to_record(row: Row, source: str, now: float) -> Record:
    """Columns as in the queries: uuid … state, then past and result_until, unless why is NULL: then it has none."""
    history = NO_HISTORY
    if row[10] is not None:
        result = None if row[22] is not None and row[22] <= now else row[20]
        history = History(
            row[10], row[11], row[12], row[13], bool(row[14]), row[15], row[16], row[17], row[18], row[19],
            result, row[21], row[23],
        )  # fmt: skip
    return Record(row[0], source, row[2], policy_of(row[3]), row[4], row[5], row[6], row[7], row[8], row[9], history)


def is_suspect(row: Row) -> bool:
    return (row[12] if row[10] is not None else 0) + 1 >= policy_of(row[3]).max_crashes


def to_save(record: Record) -> Row:
    """The parameters of `save`."""
    history = record.history
    return (
        record.due,
        record.state,
        history.reason,
        history.retries,
        history.crashes,
        history.earlier,
        int(history.cancel_requested),
        history.settled_fence,
        history.session,
        history.started,
        history.ended,
        history.keep_until,
        history.result,
        history.error,
        history.hops,
        None,
        record.seq,
    )
