"""Moves between stores, and back to life: lift, adopt, revive."""

from __future__ import annotations

from collections.abc import Sequence

from onthedot.stores.contract import ENDED, Added, LeasedTasks, Record
from onthedot.stores.rules.counters import uncount_end
from onthedot.stores.rules.places import end_as_chore, enter, next_place, queue_chore
from onthedot.stores.rules.records import UNQUEUED_REASONS, after_adopt, after_revive, is_superseded, with_state
from onthedot.stores.rules.sessions import lease_chores, open_client_session, reap_overdue
from onthedot.stores.rules.task_tables import TaskTables, UniqueKey
from onthedot.stores.rules.unique_keys import key_holder, take_key


def lift(tables: TaskTables, name: str, uuids: Sequence[str]) -> LeasedTasks:
    """Take pending tasks out of the order and lease them to the caller."""
    reap_overdue(tables)
    open_client_session(tables, name)
    lifted: dict[str, Record] = {}
    for uuid in uuids:
        record = tables.load(uuid)
        if record is None or record.state in ENDED or uuid in lifted or tables.lease_holder(record) is not None:
            continue
        if record.links is not None or record.state == "waiting":
            continue
        if record.history.reason not in UNQUEUED_REASONS:
            record = end_as_chore(tables, record, "lifted")
        if record.history.reason == "lifted":
            lifted[uuid] = record
    return lease_chores(tables, name, list(lifted.values()))


def adopt(tables: TaskTables, record: Record) -> Added:
    """Store another store's task, lifted."""
    existing = tables.load(record.uuid)
    if existing is not None and not is_superseded(existing, record):
        return Added(record.uuid, fresh=False)
    if record.unique is not None:
        holder = key_holder(tables, record.source, record.unique)
        if holder not in (None, record.uuid):
            return Added(holder, fresh=False)
        take_key(tables, record.uuid, record, record.added)
    if existing is not None:
        tables.delete_ended(existing)
    queue_chore(tables, after_adopt(record, tables.insert_copy(record)))
    return Added(record.uuid, fresh=True)


def revive(tables: TaskTables, uuids: Sequence[str]) -> list[str]:
    """Make failed and cancelled tasks due now; return the uuids that are live."""
    live: list[str] = []
    for uuid in uuids:
        record = tables.load(uuid)
        if record is None or record.state == "succeeded":
            continue
        if record.state not in ENDED or _revive_one(tables, record):
            live.append(uuid)
    return live


def _revive_one(tables: TaskTables, record: Record) -> bool:
    """False: another task has its unique key."""
    if record.unique is not None:
        if key_holder(tables, record.source, record.unique) not in (None, record.uuid):
            return False
        if record.policy.unique_for is None:
            tables.set_key(record.source, record.unique, UniqueKey(record.uuid, None))
    tables.leave_ended(record)
    uncount_end(tables, record)
    again = after_revive(record, tables.now)
    if again.state != "waiting":
        again = with_state(again, next_place(again.due, again.lane, tables.now))
    enter(tables, [again])
    return True
