"""Lanes: when a parked task is admitted to ready."""

from __future__ import annotations

from onthedot.stores.contract import BATCH, Record
from onthedot.stores.rules.limits import count_admitted
from onthedot.stores.rules.records import UNQUEUED_REASONS, with_state
from onthedot.stores.rules.task_tables import TaskTables


def has_capacity(tables: TaskTables, record: Record) -> bool:
    """Whether the lane of a task admits it now. A refill that is due comes first: it admits by rank."""
    if record.lane is None:
        return True
    lane = tables.limits.lane(record.lane)
    if lane.refill_at is not None and lane.refill_at <= tables.now:
        return False
    return tables.limits.has_capacity(lane, record.policy.cost, tables.now)


def admit(tables: TaskTables, name: str) -> int:
    """Admit the first parked tasks of a lane while it has capacity, at most BATCH; return how many."""
    lane = tables.limits.lane(name)
    for done in range(BATCH):
        record = tables.first_parked(name)
        if record is None or not tables.limits.has_capacity(lane, record.policy.cost, tables.now):
            return done
        _admit_one(tables, record)
    tables.limits.set_refill(lane, tables.now)
    return BATCH


def overtake(tables: TaskTables, uuid: str) -> None:
    """Admit a task that was just parked, if those before it wait for more tokens than it needs."""
    record = tables.load(uuid)
    if record is None or record.lane is None or record.state != "parked" or record.history.reason in UNQUEUED_REASONS:
        return
    if tables.limits.has_capacity(tables.limits.lane(record.lane), record.policy.cost, tables.now):
        _admit_one(tables, record)


def _admit_one(tables: TaskTables, record: Record) -> None:
    assert record.lane is not None
    tables.leave(record)
    tables.clear_alarm(record)
    count_admitted(tables.limits.lane(record.lane), record, +1)
    tables.enter([with_state(record, "ready")])


def refill_lanes(tables: TaskTables) -> bool:
    """Admit in lanes whose refill has come; True: there may be more."""
    done = 0
    while done < BATCH:
        names = tables.pop_refilled(BATCH - done)
        if not names:
            return False
        for name in names:
            done += 1 + admit(tables, name)
    return True


def release_capacity(tables: TaskTables, record: Record) -> None:
    """The task has ended or was requeued: its limits may admit another task, or itself, by rank."""
    if record.lane is not None:
        admit(tables, record.lane)
        overtake(tables, record.uuid)
        tables.forget_lane(record.lane)
    woken = tables.notifications.woken
    if tables.limits.has_limits and tables.limits.effective(record.source) is not None:
        woken.add(record.source)
    if record.is_suspect:
        woken.update(tables.suspect_sources())
