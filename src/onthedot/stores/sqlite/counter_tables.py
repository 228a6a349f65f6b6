"""Counters, waiting tasks, signals and subscriptions of an SQLite store."""

from __future__ import annotations

from collections.abc import Sequence

from onthedot.stores.contract import COUNTER_KEEP, MAX_SUBSCRIPTIONS, NO_COUNTER, Counter, NewSignal, Record
from onthedot.stores.rules.task_tables import waits_of
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import TaskRow, json_list
from onthedot.stores.sqlite.side_tables import SqliteSideTables


class SqliteCounterTables(SqliteSideTables):
    """Verbs of `TaskTables`. A counter is dirty from the step in which a wait for it is over until that wait ends."""

    # -- counters and waits

    @property
    def has_reached(self) -> bool:
        return self._run(SQL["any_dirty"], (self.app,)).fetchone() is not None

    def counter(self, name: str) -> Counter:
        row = self._run(SQL["counter"], (self.app, name)).fetchone()
        return NO_COUNTER if row is None else Counter(*row)

    def raise_counter(self, name: str, ended: int, failed: int) -> None:
        until = int(self.now) + COUNTER_KEEP
        (value,) = self._run(SQL["raise_counter"], (self.app, name, ended, failed, until)).fetchone()
        self._mark_if_reached(name, value)

    def _mark_if_reached(self, name: str, value: int) -> None:
        if self._run(SQL["any_waiting"], (self.app, name, value)).fetchone() is not None:
            self._run(SQL["mark_dirty"], (self.app, name))
            self.notifications.wait_over = True

    def enter_waiting(self, records: Sequence[Record]) -> None:
        """They wait from now on; a counter that has its value already is dirty."""
        names: set[str] = set()
        for wait, until, sharing in waits_of(records):
            seqs = json_list([record.seq for record in sharing])
            for name, value in wait.counters:
                self._run(SQL["enter_waiting"], (self.app, name, value, seqs))
                names.add(name)
            if until is not None:
                self._run(SQL["set_timeouts"], (self.app, until, seqs))
                self.notifications.alarmed.update(record.source for record in sharing)
        for name in names:
            self._mark_if_reached(name, self.counter(name).value)

    def leave_waiting(self, records: Sequence[Record], *, timed: bool) -> None:
        """timed: their timeouts end, too."""
        for wait, until, sharing in waits_of(records):
            seqs = json_list([record.seq for record in sharing])
            for name, value in wait.counters:
                self._run(SQL["leave_waiting"], (self.app, name, value, seqs))
            if timed and until is not None:
                self._run(SQL["clear_timeouts"], (self.app, until, seqs))

    def pop_reached(self, limit: int) -> list[Record]:
        found: dict[int, Record] = {}
        for (name,) in self._run(SQL["dirty"], (self.app, limit)).fetchall():
            rows = self._run(SQL["waiting"], (self.app, name, self.counter(name).value, limit)).fetchall()
            for row in (TaskRow(*columns) for columns in rows):
                if len(found) < limit:
                    found[row.seq] = self.record(row)
            if len(found) == limit:
                break  # the next call looks at this counter again
            self._run(SQL["unmark_dirty"], (self.app, name))
        return [found[seq] for seq in sorted(found)]

    def drop_counters(self, limit: int) -> None:
        self._run(SQL["drop_dirty"], (self.app, limit))  # all that waited were cancelled, and no turn has looked
        self._run(SQL["drop_counters"], (self.app, self.now, limit))

    # -- signals

    def has_signal(self, name: str, signal_id: str) -> bool:
        return self._run(SQL["has_signal"], (self.app, name, signal_id, self.now)).fetchone() is not None

    def count_signals(self, name: str) -> int:
        count: int
        (count,) = self._run(SQL["count_signals"], (self.app, name, self.now)).fetchone()
        return count

    def append_signal(self, signal: NewSignal, number: int) -> None:
        now = int(self.now)
        row = (self.app, signal.name, number, signal.id, signal.payload, now + signal.keep)
        self._run(SQL["append_signal"], row)
        self._run(SQL["set_counter"], (self.app, signal.name, number, now + COUNTER_KEEP))
        self._mark_if_reached(signal.name, number)

    def drop_signals(self, limit: int) -> None:
        self._run(SQL["drop_signals"], (self.app, self.now, limit))

    # -- subscriptions

    def subscribe(self, session: str, uuid: str) -> None:
        row = {"app": self.app, "uuid": uuid, "session": session, "most": MAX_SUBSCRIPTIONS}
        self._run(SQL["subscribe"], row)

    def subscribers(self, uuid: str) -> Sequence[str]:
        return [session for (session,) in self._run(SQL["subscribers"], (self.app, uuid))]

    def end_subscriptions(self, uuids: Sequence[str]) -> None:
        """These tasks have ended: their subscribers learn it, and nothing more."""
        if not uuids or self._run(SQL["any_subscription"], (self.app,)).fetchone() is None:
            return
        for uuid, session in self._run(SQL["end_subscriptions"], (self.app, json_list(uuids))).fetchall():
            self.notifications.ended.setdefault(session, []).append(uuid)

    def drop_session(self, name: str) -> None:
        super().drop_session(name)
        self._run(SQL["drop_subscriptions"], (self.app, name))
