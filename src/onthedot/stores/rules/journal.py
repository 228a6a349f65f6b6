"""The journal of a task: of progress the last note stays, of others the first."""

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
            if each.kind == "item":
                notify_new_items(tables, each.lease.uuid)
    return lost


def write_note(tables: TaskTables, seq: int, note: Note) -> None:
    if tables.has_note(seq, note):
        if note.kind != "progress":
            return
        tables.drop_note(seq, note)  # a later progress gets a later number, so that readers see it
    tables.append_note(seq, note)


def notify_new_items(tables: TaskTables, uuid: str) -> None:
    for session in tables.subscribers(uuid):
        tables.notifications.new_items.setdefault(session, []).append(uuid)
