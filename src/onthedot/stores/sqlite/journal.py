"""The journal of each task: errors of its attempts, its progress."""

from __future__ import annotations

from collections.abc import Sequence

from onthedot.stores.contract import Lease, Note
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.tables import SqliteTables


def note(tables: SqliteTables, notes: Sequence[Note]) -> list[Lease]:
    """Answers with the leases that are lost."""
    lost: list[Lease] = []
    for each in notes:
        lease = each.lease
        leased = tables.db.execute(SQL["leased_seq"], (tables.app, lease.uuid, lease.fence, lease.session)).fetchone()
        if leased is None:
            lost.append(lease)
        else:
            write_note(tables, leased[0], each)
    return lost


def write_note(tables: SqliteTables, seq: int, note: Note) -> None:
    there = tables.db.execute(SQL["has_note"], (seq, note.kind, note.name)).fetchone()
    if there is not None:
        if note.kind == "error":
            return
        tables.db.execute(SQL["drop_note"], there)  # a later progress has a later number, so that readers see it
    row = (seq, note.kind, note.name, note.data, note.lease.fence, note.lease.session)
    tables.db.execute(SQL["write_note"], row)
