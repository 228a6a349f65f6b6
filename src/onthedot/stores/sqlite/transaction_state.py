"""What one transaction keeps in mind: numbers, counts, names, what moved and whom to tell.

All of it happens on the writer's connection, or on a caller's whose transaction is joined.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from onthedot.stores.contract import Record, State
from onthedot.stores.sqlite.limits import SqliteLimitTable
from onthedot.stores.sqlite.notifications import Notifications
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import Row, to_record, to_save

_MOST_MOVES = 100_000  # in the change log


class TransactionState:
    def __init__(self, db: sqlite3.Connection, app: int) -> None:
        self.db = db
        self._run = db.execute
        self.app = app
        self.limits: SqliteLimitTable = SqliteLimitTable(db, self.app)
        self.seq: int = 0
        self.fence: int = 0
        self.moved: int = 0
        self.control: int = 0
        self.seen: int = -1  # the control number whose limits are known
        self.forget()

    # -- a transaction of many calls

    def begin(self) -> None:
        self._was: Row = self._run(SQL["sequences"]).fetchone()
        self.seq, self.fence, self.moved, self.control = self._was
        if self.control != self.seen:
            self.limits.load()

    def flush(self) -> None:
        """What was counted in memory, before the commit."""
        self.save_tally()
        self.limits.save()
        if self.moved != self._was[2]:
            self._run(SQL["trim_changes"], (self.moved - _MOST_MOVES,))
        counters = (self.seq, self.fence, self.moved, self.control)
        if counters != self._was:
            self._run(SQL["save_sequences"], counters)

    def done(self) -> None:
        """Committed."""
        self.seen = self.control
        self.limits.forget()

    def forget(self) -> None:
        """Rolled back: whatever was remembered may not be true."""
        self.seen = -1
        self._ids: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self.counts: defaultdict[tuple[int, str], int] = defaultdict(int)  # by source and state: what has changed
        self.recent_claims: dict[
            str, tuple[Row, int]
        ] = {}  # by uuid: what was claimed here and is not settled yet; its fence
        self.asked: dict[str, int] = {}  # by session: the last ask, since one that took nothing is not in the file
        self.limits.forget()
        self.start_call(0)

    # -- one call

    def start_call(self, now: float) -> None:
        self.now: float = now
        self.told: Notifications = Notifications()
        self.moves: defaultdict[str, list[Any]] = defaultdict(list)  # state → seqs; "gone" → uuid, source, state

    def end_call(self) -> Notifications:
        """One row in the change log, and what others are to be told."""
        number = sum(map(len, self.moves.values()))
        if number:
            self.moved += number
            self._run(
                SQL["log_changes"], (self.moved, self.app, int(self.now), msgspec.json.encode(self.moves).decode())
            )
        return self.told

    # -- names and counts

    def id_of(self, source: str) -> int:
        if (number := self._ids.get(source)) is None:
            row = self._run(SQL["source"], (self.app, source)).fetchone()
            number = row[0] if row is not None else self._run(SQL["new_source"], (self.app, source)).fetchone()[0]
            self._ids[source], self._names[number] = number, source
        return number

    def name_of(self, number: int) -> str:
        if (name := self._names.get(number)) is None:
            name = self._names[number] = self._run(SQL["source_name"], (number,)).fetchone()[0]
        return name

    def count(self, source: str, state: State, by: int) -> None:
        self.counts[self.id_of(source), state] += by

    def counted(self, source: str, state: State) -> int:
        key = (self.id_of(source), state)
        row = self._run(SQL["tally_of"], key).fetchone()
        return self.counts[key] + (0 if row is None else row[0])

    def save_tally(self) -> None:
        if self.counts:
            rows = [(*key, number) for key, number in self.counts.items() if number]
            self.db.executemany(SQL["add_tally"], rows)
            self.counts.clear()

    # -- records

    def record(self, row: Row) -> Record:
        return to_record(row, self.name_of(row[1]), self.now)

    def by_uuid(self, uuid: str) -> Record | None:
        row = self._run(SQL["by_uuid"], (self.app, uuid)).fetchone()
        return None if row is None else self.record(row)

    def save(self, record: Record) -> None:
        self._run(SQL["save_history"], to_save(record))

    def delete(self, seqs: Sequence[Row]) -> None:
        for what in ("delete_task", "delete_history", "delete_notes") if seqs else ():
            self.db.executemany(SQL[what], seqs)

    def is_held(self, record: Record) -> bool:
        return self._run(SQL["lease"], (record.seq,)).fetchone() is not None
