"""Unique keys: at most one live task per source and key."""

from __future__ import annotations

from onthedot.stores.contract import NewTask, Record
from onthedot.stores.rules.task_tables import TaskTables, UniqueKey


def key_holder(tables: TaskTables, source: str, unique: str) -> str | None:
    """The uuid of the task that holds a key now."""
    key = tables.find_key(source, unique)
    if key is None or (key.until is not None and key.until <= tables.now):
        return None
    return key.uuid


def take_key(tables: TaskTables, uuid: str, task: NewTask | Record, added: int) -> None:
    """Until the task ends, or for the time that its policy names."""
    assert task.unique is not None
    until = None if task.policy.unique_for is None else added + task.policy.unique_for
    tables.set_key(task.source, task.unique, UniqueKey(uuid, until))
