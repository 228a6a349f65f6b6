"""The tasks of an SQLite store: one row per task, per history, per place and per lease."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from onthedot.stores.contract import (
    NO_HISTORY,
    Added,
    Links,
    NewTask,
    Outcome,
    Policy,
    Record,
    SlotPool,
    State,
    StoreIdentity,
    Verdict,
)
from onthedot.stores.links_json import links_text
from onthedot.stores.policy_json import policy_text
from onthedot.stores.rules.insert import first_history, new_record
from onthedot.stores.rules.places import due_in
from onthedot.stores.rules.records import alarm_of
from onthedot.stores.rules.task_tables import LeasedRecord, SessionEntry
from onthedot.stores.sqlite import retention
from onthedot.stores.sqlite.claim import SqlitePicker
from onthedot.stores.sqlite.counter_tables import SqliteCounterTables
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import Row, TaskRow, json_list, to_save
from onthedot.stores.sqlite.settle import SettleBatch


class SqliteTables(SqliteCounterTables):
    """`TaskTables` on a connection, inside one transaction."""

    fence: int

    # -- records

    def due_time(self, new: NewTask) -> int:
        return new.at if new.at is not None else due_in(new.after, self.now)

    def insert(self, tasks: Sequence[NewTask]) -> list[Added]:
        """All at once; if some exist already, one by one, since only a new task gets a number."""
        records = self._new_records(tasks)
        if self.db.executemany(SQL["insert"], self._requests(records)).rowcount == len(records):
            self.seq: int = records[-1].seq
            self._enqueue(records)
            return [Added(new.uuid, fresh=True) for new in tasks]
        self._run(SQL["undo_insert"], (records[0].seq,))
        return [Added(new.uuid, self._insert_one(new)) for new in tasks]

    def _insert_one(self, new: NewTask) -> bool:
        records = self._new_records([new])
        is_new = self.db.executemany(SQL["insert"], self._requests(records)).rowcount > 0
        if is_new:
            self.seq += 1
            self._enqueue(records)
        return is_new

    def _new_records(self, tasks: Sequence[NewTask]) -> list[Record]:
        now = self.now
        added = int(now)
        links: Links | None = None
        history = NO_HISTORY
        records: list[Record] = []
        for seq, new in enumerate(tasks, self.seq + 1):
            due = added if new.at is None and new.after <= 0 else self.due_time(new)
            if new.links is not links:
                links = new.links
                history = first_history(links, now)
            records.append(new_record(new, seq, due, added, now, history))
        return records

    def _requests(self, records: Sequence[Record]) -> Iterator[Row]:
        """The parameters of `insert`. Tasks that are added together usually share source, policy and links."""
        app = self.app
        source = ""
        source_id = 0
        policy: Policy | None = None
        text = ""
        links: Links | None = None
        link_columns = _link_columns(links)
        for record in records:
            if record.source != source:
                source = record.source
                source_id = self.source_id(source)
            if record.policy is not policy:
                policy = record.policy
                text = policy_text(policy)
            if record.links is not links:
                links = record.links
                link_columns = _link_columns(links)
            yield (
                record.seq, app, record.uuid, source_id, record.body, text, record.lane, record.unique, record.due,
                record.added, record.state, record.history.wait_until, *link_columns,
            )  # fmt: skip

    def insert_copy(self, record: Record) -> int:
        self.seq += 1
        for _, *request in self._requests([record]):
            self._run(SQL["insert"], (self.seq, *request))
        return self.seq

    def save(self, record: Record, *, leased: bool = False) -> None:
        self._run(SQL["save_history"], to_save(record))
        if leased:
            self._run(SQL["touch"], (record.seq,))

    def replace_request(self, record: Record) -> None:
        self._run(SQL["replace"], (record.body, policy_text(record.policy), record.lane, record.seq))

    def delete_ended(self, record: Record) -> None:
        self.leave_ended(record)
        self.delete([(record.seq,)])

    def leave_ended(self, record: Record) -> None:
        self.count(record.source, record.state, -1)

    def identity(self) -> StoreIdentity:
        return StoreIdentity(self.data_set, self.fence)

    # -- places

    def enter(self, records: Sequence[Record]) -> None:
        """A task without a history has its place in its own row; then one statement writes many of them."""
        if not records:
            return
        saves: list[Row] = []
        places: defaultdict[tuple[int, State], list[int]] = defaultdict(list)
        for record in records:
            if record.history is NO_HISTORY:
                places[record.due, record.state].append(record.seq)
            else:
                saves.append(to_save(record))
        if saves:
            self.db.executemany(SQL["save_history"], saves)
        for (due, state), seqs in places.items():
            text = json_list(seqs)
            self._run(SQL["save_place"], (due, state, text))
            self._run(SQL["drop_histories"], (text,))
        self._enqueue(records)

    def _enqueue(self, records: Sequence[Record]) -> None:
        ready: list[Row] = []
        parked: list[Row] = []
        alarms: list[Row] = []
        waiting: list[Record] = []
        notifications = self.notifications
        name = ""
        source = 0
        for record in records:
            state = record.state
            seq = record.seq
            if record.source != name:
                name = record.source
                source = self.source_id(name)
            key = (source, state)
            self.counts[key] += 1
            self.transitions[key].append(seq)
            if state == "ready":  # `Record.is_suspect` and `rank`, without calls per task
                suspect = record.history.crashes + 1 >= record.policy.max_crashes
                ready.append((source, suspect, record.due - record.policy.boost, seq))
                notifications.woken.add(record.source)
            elif state == "parked":
                parked.append((self.app, record.lane, record.rank, seq))
            elif state == "waiting":
                waiting.append(record)
                continue
            if state == "scheduled" or record.policy.expires is not None:
                alarm = alarm_of(record)
                if alarm is not None:
                    alarms.append((self.app, alarm, seq))
                    notifications.alarmed.add(record.source)
        for query, rows in (("enter_ready", ready), ("enter_parked", parked), ("set_alarm", alarms)):
            if rows:
                self.db.executemany(SQL[query], rows)
        if waiting:
            self.enter_waiting(waiting)

    def leave(self, record: Record) -> None:
        self.count(record.source, record.state, -1)
        if record.state == "ready":
            place = (self.source_id(record.source), record.is_suspect, record.rank, record.seq)
            self._run(SQL["leave_ready"], place)
        elif record.state == "parked":
            self._run(SQL["leave_parked"], (self.app, record.lane, record.rank, record.seq))
        elif record.state == "waiting":
            self.leave_waiting([record], timed=False)

    def leave_waits(self, records: Sequence[Record]) -> None:
        for source, number in Counter(record.source for record in records).items():
            self.count(source, "waiting", -number)
        self.leave_waiting(records, timed=True)

    def clear_alarm(self, record: Record) -> None:
        alarm = alarm_of(record)
        if alarm is not None:
            self._run(SQL["clear_alarm"], (self.app, alarm, record.seq))

    def pop_due(self, limit: int) -> Sequence[Record]:
        rows = self._run(SQL["due_alarms"], (self.app, self.now, limit)).fetchall()
        if not rows:
            return ()
        due = [TaskRow(*task) for *task, _ in rows]
        *_, last_alarm = rows[-1]
        self._run(SQL["clear_due_alarms"], (self.app, last_alarm, due[-1].seq))
        return [self.record(row) for row in due]

    def first_parked(self, lane: str) -> Record | None:
        row = self._run(SQL["first_parked"], (self.app, lane)).fetchone()
        return None if row is None else self.record(TaskRow(*row))

    # -- chores

    def enter_chores(self, record: Record, *, queued: bool) -> None:
        self.save(record)
        self.count(record.source, record.state, +1)
        self.transitions[self.source_id(record.source), record.state].append(record.seq)
        if queued:
            self._run(SQL["enter_chore"], (self.app, record.seq))

    def pop_chores(self, limit: int) -> list[Record]:
        """`lease` deletes their rows: a cancel leases chores, too."""
        rows = self._run(SQL["chores"], (self.app, limit)).fetchall()
        return [self.record(TaskRow(*row)) for row in rows]

    def pop_strays(self, known: frozenset[str], limit: int) -> list[Record]:  # noqa: ARG002 - as the docstring tells
        """None: a source that is unknown to this process may be known to another."""
        return []

    # -- claims and leases

    def has_ready(self, source: str, *, suspects: bool) -> bool:
        return self._run(SQL["any_ready"], (self.source_id(source), suspects)).fetchone() is not None

    def suspect_sources(self) -> Iterable[str]:
        return [name for (name,) in self._run(SQL["suspect_sources"], (self.app,))]

    def pick(self, pool: SlotPool, max_suspects: int) -> tuple[list[Record], int]:
        picker = SqlitePicker(self, pool, max_suspects)
        return picker.run(), max_suspects - picker.suspects

    def lease(self, session: str, tasks: Sequence[Record], chores: Sequence[Record]) -> int:
        if not tasks and not chores:
            return 0
        self.fence += 1
        if chores:
            seqs = [record.seq for record in chores]
            self.db.executemany(SQL["leave_chore"], [(seq,) for seq in seqs])
            self._run(SQL["lease_many"], (self.fence, True, 0, json_list(seqs)))
        if tasks:
            seqs = [record.seq for record in tasks]
            self._run(SQL["lease_many"], (self.fence, False, len(chores), json_list(seqs)))
        claim = (self.fence, self.app, session, int(self.now), len(tasks) + len(chores))
        self._run(SQL["new_claim"], claim)
        return self.fence

    def leased_under(self, session: SessionEntry) -> tuple[list[Record], list[Record]]:
        leased = self._leased(session.fence, 0) if session.fence else []
        tasks = [each.record for each in leased if not each.chore]
        chores = [each.record for each in leased if each.chore]
        return tasks, chores

    def _leased(self, fence: int, claimed_at: int) -> list[LeasedRecord]:
        """In the order of taking."""
        rows = self._run(SQL["leased_under"], (fence,)).fetchall()
        return [LeasedRecord(self.record(TaskRow(*task)), fence, claimed_at, bool(chore)) for *task, chore in rows]

    def leased_by(self, session: str) -> Sequence[LeasedRecord]:
        claims = self._run(SQL["claims_of"], (self.app, session)).fetchall()
        return [leased for fence, at in claims for leased in self._leased(fence, at)]

    def lease_holder(self, record: Record) -> str | None:
        session: str | None
        (session,) = self._run(SQL["lease_holder"], (record.seq,)).fetchone() or (None,)
        return session

    def release(self, leased: Sequence[LeasedRecord], session: str) -> None:
        self._run(SQL["release"], (json_list([each.record.seq for each in leased]),))
        self._run(SQL["drop_claims_of"], (self.app, session))

    def settle(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        return SettleBatch(self).run(outcomes)

    # -- retention

    def drop_expired(self, limit: int) -> int:
        return retention.drop_expired(self, limit)

    def drop_oldest(self, limit: int, most: int) -> int:
        return retention.drop_oldest(self, limit, most)

    def drop_expired_results(self, limit: int) -> None:
        retention.drop_expired_results(self, limit)


def _link_columns(links: Links | None) -> tuple[str | None, str | None]:
    return (None, None) if links is None else (links_text(links), links.flow)
