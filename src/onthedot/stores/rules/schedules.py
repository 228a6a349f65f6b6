"""Schedules: compare-and-set on the revision, so that no leader is needed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from onthedot.stores.contract import FireRequest, Schedule
from onthedot.stores.rules.insert import add
from onthedot.stores.rules.task_tables import TaskTables


def put_schedules(tables: TaskTables, schedules: Sequence[Schedule]) -> list[bool]:
    """False: the revision did not match."""
    if schedules:
        tables.notifications.recheck = True
    return [put_schedule(tables, schedule) for schedule in schedules]


def put_schedule(tables: TaskTables, new: Schedule) -> bool:
    old = tables.find_schedule(new.name)
    if new.rev > 0:
        if old is None or old.rev != new.rev:
            return False
        tables.save_schedule(replace(new, rev=new.rev + 1))
    elif old is None:
        tables.save_schedule(replace(new, rev=1))
    elif not (new.definition_digest and new.definition_digest == old.definition_digest):
        changed = replace(
            old, rule=new.rule, definition_digest=new.definition_digest, next_at=new.next_at, rev=old.rev + 1
        )
        tables.save_schedule(changed)
    return True


def fire(tables: TaskTables, fire: FireRequest) -> bool:
    """Add the tasks of a window and move the schedule on; False: it has another revision, or is paused."""
    old = tables.find_schedule(fire.name)
    if old is None or old.rev != fire.rev or old.paused:
        return False
    fresh = sum(added.fresh for added in add(tables, fire.tasks))
    last_at = old.last_at if fire.last_at is None else fire.last_at
    runs = old.runs + fresh
    tables.save_schedule(replace(old, next_at=fire.next_at, rev=old.rev + 1, last_at=last_at, runs=runs))
    return True
