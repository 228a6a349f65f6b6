"""The state of one transaction, and the tables around the tasks: sessions, unique keys, notes and schedules.

They use the writer's connection, or that of a caller whose transaction is joined.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import astuple

from onthedot.stores.contract import MAX_TRANSITIONS, Lease, Limit, Note, Record, Schedule, State
from onthedot.stores.rules.notifications import Notifications
from onthedot.stores.rules.task_tables import SessionEntry, UniqueKey
from onthedot.stores.sqlite.change_rows import LoggedTransitions
from onthedot.stores.sqlite.claim_numbers import ClaimNumbers, LastRequest
from onthedot.stores.sqlite.event_tables import SqliteEventTables
from onthedot.stores.sqlite.limits import SqliteLimitTable
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import Row, TaskRow, json_list, to_record, to_schedule
from onthedot.stores.sqlite.series import SqliteSeries

_MAX_DEAD = 10_000  # how many dead names are remembered


class Sequences(NamedTuple):
    """The last numbers given out; `control` grows with every limit, session and member of a group."""

    seq: int
    fence: int
    transitions: int
    control: int
    data_set: str  # the random id of the file's data
    event_seq: int


class TransactionState:
    def __init__(self, db: sqlite3.Connection, app: int, claim_numbers: ClaimNumbers | None = None) -> None:
        """claim_numbers: those of the connection before."""
        self.db = db
        self._claim_numbers = claim_numbers or ClaimNumbers()
        self._run = db.execute
        self.app = app
        self.process: str = ""  # the writer sets it when it has one
        self.limits: SqliteLimitTable = SqliteLimitTable(db, self.app)
        self.events: SqliteEventTables = SqliteEventTables(db, self.app)
        self.series: SqliteSeries = SqliteSeries(db, self.app)
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
        self.seq, self.fence, self.transition_count, self.control, self.data_set, self.events.seq = self._stored
        self.events.joins = 0
        self._claim_numbers.begin(self.data_set, self.fence)
        if self.control != self._loaded_control:
            self.limits.load()

    def flush(self) -> None:
        """Write what was counted in memory, just before the commit; if that fails, `forget` follows."""
        self.save_tally()
        if self.limits.lanes:
            self.limits.save()
            self.limits.forget()
        if self.transition_count != self._stored.transitions:
            self._run(SQL["trim_changes"], (self.transition_count - MAX_TRANSITIONS,))
        self.control += self.events.joins
        sequences = Sequences(self.seq, self.fence, self.transition_count, self.control, self.data_set, self.events.seq)
        if sequences != self._stored:
            self._run(SQL["save_sequences"], sequences)
        self._loaded_control = self.control

    def commit(self) -> None:
        self._run("COMMIT")
        self._claim_numbers.commit(self.fence)

    def rollback(self) -> None:
        if self.db.in_transaction:
            self._run("ROLLBACK")
        self._claim_numbers.rollback()
        self.forget()

    def forget(self) -> None:
        """After a rollback: nothing that was cached can be trusted."""
        self._loaded_control = -1
        self._source_ids: dict[str, int] = {}
        self._source_names: dict[int, str] = {}
        self.counts: defaultdict[tuple[int, str], int] = defaultdict(int)  # by source and state: the difference
        self.recent_claims: dict[str, tuple[TaskRow, int]] = {}  # by uuid: claimed here, not settled yet; its fence
        self.limits.forget()
        self.start_call(0)

    # -- one call

    def start_call(self, now: float, caller: str | None = None) -> None:
        self.now: float = now
        self.events.now = now
        self.notifications: Notifications = Notifications(caller=caller)
        self.transitions: defaultdict[tuple[int, str], list[int | str]] = defaultdict(list)  # by source and new state

    def end_call(self) -> Notifications:
        """Write one row of the change log; return what the others must learn."""
        if self.transitions:
            stored = [
                LoggedTransitions(self.source_name(source), state, len(tasks), tasks)
                for (source, state), tasks in self.transitions.items()
            ]
            self.transition_count += sum(each.number for each in stored)
            self._run(SQL["log_changes"], (self.transition_count, self.app, int(self.now), json_list(stored)))
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


class SqliteSideTables(TransactionState):
    """Verbs of `TaskTables` that touch no task."""

    control: int

    # -- sessions

    def find_session(self, name: str) -> SessionEntry | None:
        row = self._run(SQL["session"], (self.app, name)).fetchone()
        if row is None:
            return None
        session = SessionEntry(name, *row)
        last = self._claim_numbers.find(name)
        if last is not None:  # newer than the row, which is written only by a claim that took something
            session.number = last.number
            session.fence = last.fence
        return session

    def save_session(self, session: SessionEntry, *, joined: bool = False) -> None:
        if joined:
            self.control += 1
            self.notifications.session_joined = True
        _, *row = astuple(session)
        self._run(SQL["save_session"], (self.app, session.name, *row))

    def save_claim(self, session: SessionEntry) -> None:
        self._claim_numbers.set(session.name, LastRequest(session.number, session.fence))
        if session.fence:
            self.save_session(session)

    def drop_session(self, name: str) -> None:
        self._run(SQL["drop_session"], (self.app, name))
        self._claim_numbers.drop(name)
        if self.events.leave_groups(name):
            self.notifications.events = True  # its buckets are free
        self.control += 1

    def is_dead(self, name: str) -> bool:
        return self._run(SQL["is_dead"], (self.app, name)).fetchone() is not None

    def mark_dead(self, name: str) -> None:
        self._run(SQL["mark_dead"], (self.app, name))
        self._run(SQL["trim_dead"], (_MAX_DEAD,))

    def overdue_sessions(self) -> Sequence[str]:
        return [name for (name,) in self._run(SQL["overdue"], (self.app, self.now)).fetchall()]

    def sessions_of(self, process: str) -> Sequence[str]:
        return [name for (name,) in self._run(SQL["sessions_of_process"], (self.app, process)).fetchall()]

    # -- unique keys

    def find_key(self, source: str, unique: str) -> UniqueKey | None:
        row = self._run(SQL["unique_key"], (self.source_id(source), unique)).fetchone()
        return None if row is None else UniqueKey._make(row)

    def set_key(self, source: str, unique: str, key: UniqueKey) -> None:
        self._run(SQL["set_key"], (self.source_id(source), unique, *key))

    def drop_expired_keys(self) -> None:
        self._run(SQL["drop_keys"], (self.now,))

    # -- recent uuids

    def is_recent(self, uuid: str) -> bool:
        return self._run(SQL["is_recent"], (self.app, uuid, self.now)).fetchone() is not None

    def drop_recent(self) -> None:
        self._run(SQL["drop_recent"], (self.now,))

    # -- notes

    def find_leased(self, lease: Lease) -> int | None:
        row = self._run(SQL["leased_seq"], (self.app, lease.uuid, lease.fence, lease.session)).fetchone()
        if row is None:
            return None
        seq: int
        (seq,) = row
        return seq

    def has_note(self, seq: int, note: Note) -> bool:
        return self._run(SQL["has_note"], (seq, note.kind, note.name)).fetchone() is not None

    def drop_note(self, seq: int, note: Note) -> None:
        self._run(SQL["drop_note"], (seq, note.kind, note.name))

    def append_note(self, seq: int, note: Note) -> None:
        row = (seq, note.kind, note.name, note.data, note.lease.fence, note.lease.session)
        self._run(SQL["write_note"], row)

    # -- schedules and limits

    def find_schedule(self, name: str) -> Schedule | None:
        row = self._run(SQL["schedule"], (self.app, name)).fetchone()
        return None if row is None else to_schedule(row)

    def save_schedule(self, schedule: Schedule) -> None:
        self._run(SQL["put_schedule"], (self.app, *astuple(schedule)))

    def delete_schedules(self, names: Sequence[str]) -> None:
        self.db.executemany(SQL["drop_schedule"], [(self.app, name) for name in names])

    def due_schedules(self) -> list[Schedule]:
        return [to_schedule(row) for row in self._run(SQL["due_schedules"], (self.app, self.now))]

    def put_limits(self, limits: Sequence[Limit], replaces: Sequence[Limit]) -> bool:
        if not self.limits.are_stored(replaces):
            return False
        changed = self.limits.put_all(limits, self.now)
        if changed:
            self.notifications.woken |= {limit.name.partition("/")[0] for limit in changed}
            self.control += 1
        return True

    def pop_refilled(self, limit: int) -> Sequence[str]:
        return self.limits.pop_refilled(limit, self.now)

    def forget_lane(self, lane: str) -> None:
        pass  # `limits.save` drops the row of a lane of which nothing has to be kept

    def next_times(self) -> Iterable[float | None]:
        if self.limits.lanes:
            self.limits.save()
        times: tuple[float | None, ...] = self._run(SQL["next_times"], {"app": self.app, "now": self.now}).fetchone()
        return times
