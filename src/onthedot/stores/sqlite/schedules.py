"""Schedules, limits, retention."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import astuple, replace

from onthedot.stores.contract import FireRequest, Limit, Schedule
from onthedot.stores.hint_streams import RECHECK
from onthedot.stores.sqlite.claim import to_schedule
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import Row
from onthedot.stores.sqlite.tables import SqliteTables


def put_schedules(tables: SqliteTables, schedules: Sequence[Schedule]) -> list[bool]:
    if schedules:
        tables.told.sooner.add(RECHECK)
    return [_put(tables, schedule) for schedule in schedules]


def put_limits(tables: SqliteTables, limits: Sequence[Limit]) -> None:
    if changed := tables.limits.put_all(limits, tables.now):
        tables.told.woken |= {limit.name.partition("/")[0] for limit in changed}
        tables.control += 1


def _schedule(tables: SqliteTables, name: str) -> Schedule | None:
    row = tables.db.execute(SQL["schedule"], (tables.app, name)).fetchone()
    return None if row is None else to_schedule(row)


def _write(tables: SqliteTables, schedule: Schedule) -> None:
    tables.db.execute(SQL["put_schedule"], (tables.app, *astuple(schedule)))


def _put(tables: SqliteTables, new: Schedule) -> bool:
    old = _schedule(tables, new.name)
    if new.rev > 0:
        if old is None or old.rev != new.rev:
            return False
        _write(tables, replace(new, rev=new.rev + 1))
    elif old is None:
        _write(tables, replace(new, rev=1))
    elif not (new.definition_digest and new.definition_digest == old.definition_digest):
        changed = replace(
            old, rule=new.rule, definition_digest=new.definition_digest, next_at=new.next_at, rev=old.rev + 1
        )
        _write(tables, changed)
    return True


def fire(tables: SqliteTables, fire: FireRequest) -> bool:
    old = _schedule(tables, fire.name)
    if old is None or old.rev != fire.rev or old.paused:
        return False
    fresh = sum(added.fresh for added in tables.add(fire.tasks))
    last_at = old.last_at if fire.last_at is None else fire.last_at
    _write(tables, replace(old, next_at=fire.next_at, rev=old.rev + 1, last_at=last_at, runs=old.runs + fresh))
    return True


def drop(tables: SqliteTables, schedules: Sequence[str]) -> None:
    tables.db.executemany(SQL["drop_schedule"], [(tables.app, name) for name in schedules])


def purge(tables: SqliteTables, limit: int, most: int) -> int:
    """First what is past its time, then what ended first, if there are too many."""
    db, app, now = tables.db, tables.app, tables.now
    gone = 0
    while gone < limit and (row := db.execute(SQL["expired_retention"], (app, "task", now)).fetchone()) is not None:
        gone += _drop(tables, row, limit - gone)
    tables.save_tally()
    beyond = db.execute(SQL["retained_count"], (app,)).fetchone()[0] - most
    while (
        gone < limit
        and beyond > 0
        and (row := db.execute(SQL["oldest_retention"], (app, "task")).fetchone()) is not None
    ):
        dropped = _drop(tables, row, min(limit - gone, beyond))
        gone, beyond = gone + dropped, beyond - dropped
    db.execute(SQL["drop_keys"], (now,))
    for _ in range(limit):
        row = db.execute(SQL["expired_retention"], (app, "result", now)).fetchone()
        if row is None:
            break
        db.execute(SQL["forget_results"], (row[3], now))
        db.execute(SQL["drop_retention"], row[:1])
    tables.limits.sweep(now)
    return gone


def _drop(tables: SqliteTables, kept: Row, most: int) -> int:
    """Of tasks that ended together; those that were revived since are not found."""
    number, until, ended, seqs = kept
    db = tables.db
    found = sorted(db.execute(SQL["retained_tasks"], (seqs, until, ended)).fetchall())
    doomed, left = found[:most], found[most:]
    if left:
        db.execute(SQL["reduce_retention"], (msgspec.json.encode([row[0] for row in left]).decode(), number))
    else:
        db.execute(SQL["drop_retention"], (number,))
    for _, source, state in doomed:
        tables.counts[source, state] -= 1
    tables.delete([row[:1] for row in doomed])
    return len(doomed)
