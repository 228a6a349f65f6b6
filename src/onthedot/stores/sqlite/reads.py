"""Reads only, on a connection of their own: a slow page never stops the queue."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from onthedot.stores.contract import (
    MAX_AHEAD,
    ChangeEntry,
    ChangePage,
    Lease,
    Limit,
    Note,
    Page,
    Position,
    Record,
    Schedule,
    State,
    Transition,
)
from onthedot.stores.rules.filters import FILTERS, check
from onthedot.stores.rules.position import blockers
from onthedot.stores.rules.records import CHORE_REASONS, ENDED, with_history, with_state
from onthedot.stores.sqlite.claim import to_schedule
from onthedot.stores.sqlite.limits import SqliteLimitTable, to_limit
from onthedot.stores.sqlite.presence import is_gone
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import Row, to_record

_LOOK = 20_000  # records a call looks at
_END = 2**62


class SqliteReads:
    def __init__(self, db: sqlite3.Connection, app: int, presences: Path) -> None:
        self.db = db
        self._app = app
        self._presences = presences

    def get(self, uuids: Sequence[str], now: float) -> list[Record | None]:
        wanted = msgspec.json.encode(uuids).decode()
        found = {row[0]: _seen(row, now) for row in self.db.execute(SQL["get"], (wanted, self._app))}
        return [found.get(uuid) for uuid in uuids]

    def find(self, where: Mapping[str, str], after: str | None, limit: int, now: float) -> Page:
        check(where)
        before = int(after) if after else _END
        said: dict[str, Any] = dict.fromkeys(FILTERS) | dict(where)
        said |= {name: int(where[name]) for name in ("since", "until") if name in where}
        said |= {"app": self._app, "before": before, "limit": limit}
        if where.get("state") == "running":  # few, and known from the claims, however many wait
            rows = [_seen(row, now) for row in self.db.execute(SQL["find_running"], said)]
            return Page(rows, str(rows[-1].seq) if len(rows) == limit else None)
        newest = self._before(before)
        if newest is None:
            return Page([], None)
        low = newest + 1 - _LOOK
        said |= {"before": newest + 1, "low": low}
        rows = [_seen(row, now) for row in self.db.execute(SQL["find"], said)]
        last = rows[-1].seq if len(rows) == limit else low
        return Page(rows, None if self._before(last) is None else str(last))

    def _before(self, seq: int) -> int | None:
        row = self.db.execute(SQL["newest_before"], (self._app, seq)).fetchone()
        return None if row is None else row[0]

    def notes(self, uuid: str, after: int, limit: int) -> list[tuple[int, Note]]:
        rows = self.db.execute(SQL["notes"], (self._app, uuid, after, limit))
        return [(row[0], Note(Lease(uuid, row[1], row[2]), row[3], row[4], row[5])) for row in rows]

    def tally(self) -> dict[tuple[str, State], int]:
        return {(source, state): number for source, state, number in self.db.execute(SQL["tally"], (self._app,))}

    def position(self, uuid: str, now: float) -> Position | None:
        self.db.execute("BEGIN")  # all that is read is of one moment; readers are in nobody's way
        try:
            row = self.db.execute(SQL["leased_task"], (self._app, uuid)).fetchone()
            if row is None or row[-2] is not None:
                return None
            record = to_record(row, self.db.execute(SQL["source_name"], (row[1],)).fetchone()[0], now)
            if record.state in ENDED or record.history.reason in CHORE_REASONS:
                return None
            counted = self.db.execute(SQL["tally_of"], (row[1], "running")).fetchone()
            limits = SqliteLimitTable(self.db, self._app)  # what its rules change is never saved
            limits.load()
            return Position(blockers(limits, record, counted[0] if counted else 0, now), self._ahead(record, row[1]))
        finally:
            self.db.execute("COMMIT")

    def _ahead(self, record: Record, source: int) -> int:
        place = (record.rank, record.seq, MAX_AHEAD)
        queues: list[tuple[str, Row]] = [("ready_before", (source, suspect, *place)) for suspect in (0, 1)]
        if record.state == "parked":
            queues.append(("parked_before", (self._app, record.lane, *place)))
        counts: list[int] = [self.db.execute(SQL[name], queue).fetchone()[0] for name, queue in queues]
        return min(MAX_AHEAD, sum(counts))

    def schedules(self) -> list[Schedule]:
        return [to_schedule(row) for row in self.db.execute(SQL["all_schedules"], (self._app,))]

    def limits(self) -> list[Limit]:
        return [to_limit(row) for row in self.db.execute(SQL["limits"], (self._app,))]

    def sessions(self, now: float) -> dict[str, bytes]:
        workers = self.db.execute(SQL["workers"], (self._app, now)).fetchall()
        gone = {owner for owner in {owner for _, owner, _ in workers} if is_gone(self._presences, owner)}
        return {name: info for name, owner, info in workers if owner not in gone}

    def changes(self, after: str, limit: int) -> ChangePage:
        if not after:
            return ChangePage([], str(self.db.execute(SQL["sequences"]).fetchone()[2]))
        rows = self.db.execute(SQL["changes"], (self._app, int(after), limit)).fetchall()
        entries = [ChangeEntry(str(number), list(self._transitions(at, moves))) for number, at, moves in rows]
        return ChangePage(entries, entries[-1].cursor if entries else after)

    def _transitions(self, at: int, text: str) -> Iterator[Transition]:
        """Tasks that were purged since are left out."""
        moves: dict[State | Literal["gone"], list[Any]] = msgspec.json.decode(text)
        for uuid, source, state in moves.pop("gone", ()):
            yield Transition(at, uuid, source, state)
        for state, seqs in moves.items():
            assert state != "gone"
            wanted = msgspec.json.encode(seqs).decode()
            for _, uuid, source in self.db.execute(SQL["task_names"], (wanted,)):
                yield Transition(at, uuid, source, state)


def _seen(row: Row, now: float) -> Record:
    """As others see it: with the claim that holds it."""
    record = to_record(row, row[-1], now)
    if row[-3] is None:
        return record
    return with_state(record, "running", with_history(record.history, session=row[-3], started=row[-2]))
