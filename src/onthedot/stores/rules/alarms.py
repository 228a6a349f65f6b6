"""Alarms: what happens to a task by itself, at its one alarm."""

from __future__ import annotations

from collections.abc import Sequence

from onthedot.stores.contract import Record
from onthedot.stores.rules.places import arrive, end_as_chore, wake
from onthedot.stores.rules.records import expiry
from onthedot.stores.rules.task_tables import TaskTables


def promote(tables: TaskTables, popped: Sequence[Record]) -> None:
    """Handle alarms that have come and were taken out."""
    due: list[Record] = []
    for record in popped:
        is_waiting = record.state == "waiting"
        expires_at = expiry(record)
        if not is_waiting and (expires_at is None or expires_at > tables.now):
            due.append(record)
            continue
        arrive(tables, due)  # those before it may take the capacity that it releases
        due.clear()
        if is_waiting and record.history.started is not None:
            wake(tables, [(record, int(tables.now))])
        elif record.lane is None or is_waiting:
            end_as_chore(tables, record, "expired", alarm_popped=True)
        else:  # another task of its lane may have admitted it since, which sets its alarm again
            end_as_chore(tables, tables.load(record.uuid) or record, "expired")
    arrive(tables, due)
