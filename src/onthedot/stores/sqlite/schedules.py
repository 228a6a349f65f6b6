"""Schedules, limits, retention."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import astuple, replace

from onthedot.stores.contract import Fire, Limit, Schedule
from onthedot.stores.sqlite.claim import to_schedule
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import Row
from onthedot.stores.sqlite.tables import Board


def put(board: Board, schedules: Sequence[Schedule], limits: Sequence[Limit]) -> list[bool]:
    answers = [_put(board, schedule) for schedule in schedules]
    if changed := board.limits.put_all(limits, board.now):
        board.told.woke |= {limit.name.partition("/")[0] for limit in changed}
        board.control += 1
    if schedules:
        board.told.sooner.add("")  # of no source, but somebody has to look at the time again
    return [*answers, *(True for _ in limits)]


def _schedule(board: Board, name: str) -> Schedule | None:
    row = board.db.execute(SQL["schedule"], (board.app, name)).fetchone()
    return None if row is None else to_schedule(row)


def _write(board: Board, schedule: Schedule) -> None:
    board.db.execute(SQL["put_schedule"], (board.app, *astuple(schedule)))


def _put(board: Board, new: Schedule) -> bool:
    old = _schedule(board, new.name)
    if new.rev > 0:
        if old is None or old.rev != new.rev:
            return False
        _write(board, replace(new, rev=new.rev + 1))
    elif old is None:
        _write(board, replace(new, rev=1))
    elif not (new.declared and new.declared == old.declared):
        changed = replace(old, rule=new.rule, declared=new.declared, next_at=new.next_at, rev=old.rev + 1)
        _write(board, changed)
    return True


def fire(board: Board, fire: Fire) -> bool:
    old = _schedule(board, fire.name)
    if old is None or old.rev != fire.rev or old.paused:
        return False
    fresh = sum(added.fresh for added in board.add(fire.tasks))
    last_at = old.last_at if fire.last_at is None else fire.last_at
    _write(board, replace(old, next_at=fire.next_at, rev=old.rev + 1, last_at=last_at, runs=old.runs + fresh))
    return True


def drop(board: Board, schedules: Sequence[str]) -> None:
    board.db.executemany(SQL["drop_schedule"], [(board.app, name) for name in schedules])


def purge(board: Board, limit: int, most: int) -> int:
    """First what is past its time, then what ended first, if there are too many."""
    db, app, now = board.db, board.app, board.now
    gone = 0
    while gone < limit and (row := db.execute(SQL["past_time"], (app, "task", now)).fetchone()) is not None:
        gone += _drop(board, row, limit - gone)
    board.save_tally()
    beyond = db.execute(SQL["kept_number"], (app,)).fetchone()[0] - most
    while gone < limit and beyond > 0 and (row := db.execute(SQL["oldest_end"], (app, "task")).fetchone()) is not None:
        dropped = _drop(board, row, min(limit - gone, beyond))
        gone, beyond = gone + dropped, beyond - dropped
    db.execute(SQL["drop_keys"], (now,))
    for _ in range(limit):
        row = db.execute(SQL["past_time"], (app, "result", now)).fetchone()
        if row is None:
            break
        db.execute(SQL["forget_results"], (row[3], now))
        db.execute(SQL["drop_kept"], row[:1])
    board.limits.sweep(now)
    return gone


def _drop(board: Board, kept: Row, most: int) -> int:
    """Of tasks that ended together; those that were revived since are not found."""
    number, until, ended, seqs = kept
    db = board.db
    found = sorted(db.execute(SQL["doomed"], (seqs, until, ended)).fetchall())
    doomed, left = found[:most], found[most:]
    if left:
        db.execute(SQL["lessen_kept"], (msgspec.json.encode([row[0] for row in left]).decode(), number))
    else:
        db.execute(SQL["drop_kept"], (number,))
    for _, source, state in doomed:
        board.counts[source, state] -= 1
    board.delete([row[:1] for row in doomed])
    return len(doomed)
