"""The tables around the tasks of an SQLite store: sessions, unique keys, notes and schedules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import astuple

from onthedot.stores.contract import Lease, Limit, Note, Schedule
from onthedot.stores.rules.task_tables import SessionEntry, UniqueKey
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import to_schedule
from onthedot.stores.sqlite.transaction_state import TransactionState

_MAX_DEAD = 10_000  # how many dead names are remembered


class SqliteSideTables(TransactionState):
    """Verbs of `TaskTables` that touch no task."""

    control: int

    # -- sessions

    def find_session(self, name: str) -> SessionEntry | None:
        row = self._run(SQL["session"], (self.app, name)).fetchone()
        if row is None:
            return None
        session = SessionEntry(name, *row)
        if name in self.requests:  # newer than the row, which is written only by a claim that took something
            session.number, session.fence = self.requests[name]
        return session

    def save_session(self, session: SessionEntry, *, joined: bool = False) -> None:
        if joined:
            self.control += 1
            self.notifications.session_joined = True
        _, *row = astuple(session)
        self._run(SQL["save_session"], (self.app, session.name, *row))

    def save_claim(self, session: SessionEntry) -> None:
        self.requests[session.name] = (session.number, session.fence)
        if session.fence:
            self.save_session(session)

    def drop_session(self, name: str) -> None:
        self._run(SQL["drop_session"], (self.app, name))
        self.requests.pop(name, None)
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

    def put_limits(self, limits: Sequence[Limit]) -> None:
        changed = self.limits.put_all(limits, self.now)
        if changed:
            self.notifications.woken |= {limit.name.partition("/")[0] for limit in changed}
            self.control += 1

    def pop_refilled(self, limit: int) -> Sequence[str]:
        return self.limits.pop_refilled(limit, self.now)

    def forget_lane(self, lane: str) -> None:
        pass  # `limits.save` drops the row of a lane of which nothing has to be kept

    def next_times(self) -> Iterable[float | None]:
        if self.limits.lanes:
            self.limits.save()
        times: tuple[float | None, ...] = self._run(SQL["next_times"], {"app": self.app, "now": self.now}).fetchone()
        return times
