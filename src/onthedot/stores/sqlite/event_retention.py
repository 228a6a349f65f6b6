"""Events, resume handles and arrivals that are over. One row per call shows what may be dropped, not one per event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import RetentionRow, json_list

if TYPE_CHECKING:
    from onthedot.stores.sqlite.tables import SqliteTables


def purge_events(tables: SqliteTables, limit: int, keep_sent: int, keep_arrivals: int) -> int:
    """At most `limit` of each kind; return how many."""
    dropped = _drop_expired(tables, "event", limit, keep_sent)
    dropped += _drop_handles(tables, limit, keep_sent)
    return dropped + _drop_expired(tables, "arrival", limit, keep_arrivals)


def _drop_expired(tables: SqliteTables, what: Literal["event", "arrival"], limit: int, keep: int) -> int:
    dropped = 0
    while dropped < limit:
        row = tables.db.execute(SQL["expired_retention"], (tables.app, what, tables.now - keep)).fetchone()
        if row is None:
            break
        dropped += _drop(tables, what, RetentionRow._make(row), limit - dropped)
    return dropped


def _drop(tables: SqliteTables, what: Literal["event", "arrival"], retention: RetentionRow, limit: int) -> int:
    """Events that were sent together, or arrivals that came together; arrivals with a handle are dropped with that."""
    found = "sent_events" if what == "event" else "arrivals_without_handle"
    rows = tables.db.execute(SQL[found], (retention.seqs, tables.app, retention.ended)).fetchall()
    numbers = [number for (number,) in rows]
    if len(numbers) > limit:
        tables.db.execute(SQL["reduce_retention"], (json_list(numbers[limit:]), retention.number))
    else:
        tables.db.execute(SQL["drop_retention"], (retention.number,))
    delete = "delete_events" if what == "event" else "delete_arrivals"
    tables.db.execute(SQL[delete], (json_list(numbers[:limit]),))
    return min(len(numbers), limit)


def _drop_handles(tables: SqliteTables, limit: int, keep: int) -> int:
    """A handle past its time is expired first; then it is kept like any other that has ended."""
    tables.db.execute(SQL["expire_handles"], (tables.app, tables.now, limit))
    rows = tables.db.execute(SQL["drop_handles"], (tables.app, tables.now - keep, limit)).fetchall()
    for correlation_id in {each for (each,) in rows}:
        tables.db.execute(SQL["drop_arrivals_of"], {"app": tables.app, "correlation": correlation_id})
    return len(rows)
