"""Ended tasks and results of an SQLite store, in rows per call and keeping time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onthedot.clock.durations import DAY
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import RetentionRow, json_list

if TYPE_CHECKING:
    from onthedot.stores.sqlite.tables import SqliteTables


def drop_expired(tables: SqliteTables, limit: int) -> int:
    """member: it was past its time before, but its flow lived."""
    dropped = 0
    for what in ("task", "member"):
        while dropped < limit:
            row = tables.db.execute(SQL["expired_retention"], (tables.app, what, tables.now)).fetchone()
            if row is None:
                break
            dropped += _drop(tables, RetentionRow._make(row), limit - dropped)
    return dropped


def drop_oldest(tables: SqliteTables, limit: int, most: int) -> int:
    tables.save_tally()
    (retained,) = tables.db.execute(SQL["retained_count"], (tables.app,)).fetchone()
    number = min(limit, retained - most)
    dropped = 0
    while dropped < number:
        row = tables.db.execute(SQL["oldest_retention"], (tables.app, "task")).fetchone()
        if row is None:
            break
        dropped += _drop(tables, RetentionRow._make(row), number - dropped)
    return dropped


def _drop(tables: SqliteTables, retention: RetentionRow, limit: int) -> int:
    """Tasks that ended together; those that were revived since are not found, and members of a flow that lives stay."""
    found = sorted(
        tables.db.execute(SQL["retained_tasks"], (retention.seqs, retention.until, retention.ended)).fetchall()
    )
    members = [seq for seq, _, _, is_kept in found if is_kept]
    if members:
        _keep(tables, members, retention)
        found = [task for task in found if task[0] not in members]
    left = [seq for seq, _, _, _ in found[limit:]]
    if left:
        tables.db.execute(SQL["reduce_retention"], (json_list(left), retention.number))
    else:
        tables.db.execute(SQL["drop_retention"], (retention.number,))
    for _, source, state, _ in found[:limit]:
        tables.counts[source, state] -= 1
    tables.delete([(seq,) for seq, _, _, _ in found[:limit]])
    return len(found[:limit])


def _keep(tables: SqliteTables, members: list[int], retention: RetentionRow) -> None:
    """They are looked at again a day later."""
    until = int(tables.now) + DAY
    tables.db.execute(SQL["keep_members"], (until, json_list(members)))
    row = (tables.app, "member", until, retention.ended, json_list(members), retention.source, retention.state)
    tables.db.execute(SQL["retain"], row)


def drop_expired_results(tables: SqliteTables, limit: int) -> None:
    for _ in range(limit):
        row = tables.db.execute(SQL["expired_retention"], (tables.app, "result", tables.now)).fetchone()
        if row is None:
            return
        retention = RetentionRow._make(row)
        tables.db.execute(SQL["forget_results"], (retention.seqs, tables.now))
        tables.db.execute(SQL["drop_retention"], (retention.number,))
