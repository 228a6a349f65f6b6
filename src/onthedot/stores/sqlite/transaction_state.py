"""The state of one transaction in memory: numbers, counts, names, transitions and notifications.

It works on the writer's connection, or on that of a caller whose transaction is joined.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from typing import Any, NamedTuple

from onthedot.stores.contract import Record, State
from onthedot.stores.rules.notifications import Notifications
from onthedot.stores.sqlite.limits import SqliteLimitTable
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import Row, TaskRow, json_list, to_record

_MAX_TRANSITIONS = 100_000  # in the change log


class Sequences(NamedTuple):
    """The last numbers given out; `control` grows with every limit and session."""

    seq: int
    fence: int
    transitions: int
    control: int
    data_set: str  # the random id of the file's data


class TransactionState:
    def __init__(self, db: sqlite3.Connection, app: int) -> None:
        self.db = db
        self._run = db.execute
        self.app = app
        self.process: str = ""  # the writer sets it when it has one
        self.limits: SqliteLimitTable = SqliteLimitTable(db, self.app)
        self.data_set: str = ""
        self.seq: int = 0
        self.fence: int = 0
        self.transition_count: int = 0
        self.control: int = 0
        self._loaded_control: int = -1  # the control number whose limits are loaded
        self.forget()

    # -- a transaction of many calls

    def begin(self) -> None:
        self._stored = Sequences(*self._run(SQL["sequences"]).fetchone())
        if self._stored.fence < self.fence or self._stored.data_set != self.data_set:
            self.forget()  # other data were restored into the file
        self.seq, self.fence, self.transition_count, self.control, self.data_set = self._stored
        if self.control != self._loaded_control:
            self.limits.load()

    def flush(self) -> None:
        """Write what was counted in memory, just before the commit; if that fails, `forget` follows."""
        self.save_tally()
        if self.limits.lanes:
            self.limits.save()
            self.limits.forget()
        if self.transition_count != self._stored.transitions:
            self._run(SQL["trim_changes"], (self.transition_count - _MAX_TRANSITIONS,))
        sequences = Sequences(self.seq, self.fence, self.transition_count, self.control, self.data_set)
        if sequences != self._stored:
            self._run(SQL["save_sequences"], sequences)
        self._loaded_control = self.control

    def forget(self) -> None:
        """After a rollback: nothing that was cached can be trusted."""
        self._loaded_control = -1
        self._source_ids: dict[str, int] = {}
        self._source_names: dict[int, str] = {}
        self.counts: defaultdict[tuple[int, str], int] = defaultdict(int)  # by source and state: the difference
        self.recent_claims: dict[str, tuple[TaskRow, int]] = {}  # by uuid: claimed here, not settled yet; its fence
        self.requests: dict[str, tuple[int, int]] = {}  # by session: number and fence of its last claim request
        self.limits.forget()
        self.start_call(0)

    # -- one call

    def start_call(self, now: float, caller: str | None = None) -> None:
        self.now: float = now
        self.notifications: Notifications = Notifications(caller=caller)
        self.transitions: defaultdict[str, list[Any]] = defaultdict(list)  # state → seqs; "gone" → uuid, source, state

    def end_call(self) -> Notifications:
        """Write one row of the change log; return what the others must learn."""
        number = sum(map(len, self.transitions.values()))
        if number:
            self.transition_count += number
            row = (self.transition_count, self.app, int(self.now), json_list(self.transitions))
            self._run(SQL["log_changes"], row)
        return self.notifications

    # -- names and counts

    def source_id(self, source: str) -> int:
        number = self._source_ids.get(source)
        if number is None:
            row = self._run(SQL["source"], (self.app, source)).fetchone()
            if row is None:
                row = self._run(SQL["new_source"], (self.app, source)).fetchone()
            (number,) = row
            self._source_ids[source] = number
            self._source_names[number] = source
        return number

    def source_name(self, number: int) -> str:
        name = self._source_names.get(number)
        if name is None:
            (name,) = self._run(SQL["source_name"], (number,)).fetchone()
            self._source_names[number] = name
        return name

    def count(self, source: str, state: State, by: int) -> None:
        self.counts[self.source_id(source), state] += by

    def count_running(self, source: str) -> int:
        key = (self.source_id(source), "running")
        (stored,) = self._run(SQL["tally_of"], key).fetchone() or (0,)
        return self.counts[key] + int(stored)

    def save_tally(self) -> None:
        if self.counts:
            self.db.executemany(SQL["add_tally"], ((*key, number) for key, number in self.counts.items() if number))
            self.counts.clear()

    # -- records

    def record(self, row: TaskRow) -> Record:
        return to_record(row, self.source_name(row.source), self.now)

    def load(self, uuid: str) -> Record | None:
        row = self._run(SQL["by_uuid"], (self.app, uuid)).fetchone()
        return None if row is None else self.record(TaskRow(*row))

    def delete(self, seqs: list[Row]) -> None:
        """Tasks, with their history and journal."""
        if seqs:
            self.db.executemany(SQL["delete_task"], seqs)
            self.db.executemany(SQL["delete_history"], seqs)
            self.db.executemany(SQL["delete_notes"], seqs)
