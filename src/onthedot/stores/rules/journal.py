"""The journal of a task: of an error the first note stays, of progress the last."""

from __future__ import annotations

from collections.abc import Sequence

from onthedot.stores.contract import Lease, Note
from onthedot.stores.rules.task_tables import TaskTables


def note(tables: TaskTables, notes: Sequence[Note]) -> list[Lease]:
    """Write notes under their leases; return the leases that are lost."""
    lost: list[Lease] = []
    for each in notes:
        seq = tables.find_leased(each.lease)
        if seq is None:
            lost.append(each.lease)
        else:
            write_note(tables, seq, each)
    return lost


def write_note(tables: TaskTables, seq: int, note: Note) -> None:
    if tables.has_note(seq, note):
        if note.kind == "error":
            return
        tables.drop_note(seq, note)  # a later progress gets a later number, so that readers see it
    tables.append_note(seq, note)
