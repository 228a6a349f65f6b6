"""Where every task is, and the steps between: add, arrive, park, admit, let go, end.

The steps are the memory store's, over tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from onthedot.stores.contract import BATCH, Added, History, NewTask, Reason, Record, State
from onthedot.stores.policy_json import policy_of, policy_text
from onthedot.stores.rules.limits import admitted
from onthedot.stores.rules.records import (
    CHORE_REASONS,
    ENDED,
    adopted,
    alarm,
    due_in,
    expiry,
    is_superseded,
    rescheduled,
    revived,
    with_history,
    with_state,
)
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import Row, to_save
from onthedot.stores.sqlite.transaction_state import TransactionState


class SqliteTables(TransactionState):
    # -- adding

    def add(self, tasks: Sequence[NewTask]) -> list[Added]:
        """Plain ones go in together; one with a key may move another, which has to be there by then."""
        answers: list[Added] = []
        plain: list[NewTask] = []
        for new in tasks:
            if new.unique is None:
                plain.append(new)
                continue
            answers += self._add_plain(plain)
            plain.clear()
            answers.append(self._add_unique(new))
        return answers + self._add_plain(plain)

    def _add_plain(self, tasks: Sequence[NewTask]) -> list[Added]:
        """All at once; if some are there already, one by one, since a number is for a fresh task only."""
        if not tasks:
            return []
        first = self.seq + 1
        rows = [self._row(seq, new) for seq, new in enumerate(tasks, first)]
        if self.db.executemany(SQL["insert"], rows).rowcount == len(rows):
            self._enter_new(tasks, rows)
            return [Added(new.uuid, fresh=True) for new in tasks]
        self._run(SQL["undo_insert"], (first,))
        return [Added(new.uuid, self._insert(new)) for new in tasks]

    def _insert(self, new: NewTask) -> bool:
        row = self._row(self.seq + 1, new)
        fresh = self._run(SQL["insert"], row).rowcount > 0
        if fresh:
            self._enter_new([new], [row])
        return fresh

    def _row(self, seq: int, new: NewTask) -> Row:
        now, lane = self.now, new.lane
        due = self._due(new)
        state: State = "ready" if due <= now and lane is None else "scheduled"
        return (
            seq, self.app, new.uuid, self.id_of(new.source), new.body, policy_text(new.policy), lane, new.unique, due,
            int(now), state,
        )  # fmt: skip

    def _enter_new(self, tasks: Sequence[NewTask], rows: list[Row]) -> None:
        """Into their places: ready, or waiting for their alarm."""
        ready: list[Row] = []
        alarms: list[Row] = []
        for new, row in zip(tasks, rows, strict=True):
            seq, source, due, state, policy = row[0], row[3], row[8], row[10], new.policy
            self.counts[source, state] += 1
            self.moves[state].append(seq)
            if state == "ready":
                ready.append((source, policy.max_crashes <= 1, due - policy.boost, seq))
                self.told.woken.add(new.source)
            if state == "scheduled" or policy.expires is not None:
                rings = due if state == "scheduled" else due + (policy.expires or 0)
                alarms.append((self.app, rings, seq))
                self.told.sooner.add(new.source)
        self.seq: int = rows[-1][0]
        for what, places in (("enter_ready", ready), ("set_alarm", alarms)):
            if places:
                self.db.executemany(SQL[what], places)

    def _due(self, new: NewTask) -> int:
        return new.at if new.at is not None else due_in(new.after, self.now)

    def _add_unique(self, new: NewTask) -> Added:
        if self._run(SQL["exists"], (self.app, new.uuid)).fetchone() is not None:
            return Added(new.uuid, fresh=False)
        assert new.unique is not None
        holder = self._holder(new.source, new.unique)
        if holder is not None:
            if new.policy.on_conflict == "replace":
                self._replace(holder, new)
            return Added(holder, fresh=False)
        self._hold_key(new.uuid, new, int(self.now))
        return Added(new.uuid, self._insert(new))

    def adopt(self, record: Record) -> Added:
        """A copy of another store's, lifted."""
        here = self.by_uuid(record.uuid)
        if here is not None and not is_superseded(here, record):
            return Added(record.uuid, fresh=False)
        if record.unique is not None:
            holder = self._holder(record.source, record.unique)
            if holder not in (None, record.uuid):
                return Added(holder, fresh=False)
            self._hold_key(record.uuid, record, record.added)
        if here is not None:
            self.count(here.source, here.state, -1)
            self.delete([(here.seq,)])
        self.seq += 1
        row = (
            self.seq, self.app, record.uuid, self.id_of(record.source), record.body, policy_text(record.policy),
            record.lane, record.unique, record.due, record.added, "scheduled",
        )  # fmt: skip
        self._run(SQL["insert"], row)
        self.queue_chore(adopted(record, self.seq))
        return Added(record.uuid, fresh=True)

    def _holder(self, source: str, unique: str) -> str | None:
        leased = self._run(SQL["unique_key"], (self.id_of(source), unique)).fetchone()
        if leased is None or (leased[1] is not None and leased[1] <= self.now):
            return None
        return str(leased[0])

    def _hold_key(self, uuid: str, new: NewTask | Record, added: int) -> None:
        until = None if new.policy.unique_for is None else added + new.policy.unique_for
        self._run(SQL["set_key"], (self.id_of(new.source), new.unique, uuid, until))

    def _replace(self, uuid: str, new: NewTask) -> None:
        record = self.by_uuid(uuid)
        if record is None or record.state in ENDED or record.history.reason in CHORE_REASONS or self.is_held(record):
            return
        self._leave(record)
        self._hold_key(uuid, new, record.added)
        text = policy_text(new.policy)
        self._run(SQL["replace"], (new.body, text, new.lane, record.seq))
        due = self._due(new)
        state: State = "ready" if due <= self.now and new.lane is None else "scheduled"
        self._enter(
            Record(
                uuid, record.source, new.body, policy_of(text), new.lane, record.unique, due, record.seq, record.added,
                state, record.history,
            )
        )  # fmt: skip

    # -- entering and leaving a place

    def _enter(self, record: Record) -> None:
        """Its state says where: scheduled, ready or parked."""
        self.save(record)
        self.count(record.source, record.state, +1)
        self.moves[record.state].append(record.seq)
        if record.state == "ready":
            self._run(SQL["enter_ready"], self._ready_place(record))
            self.told.woken.add(record.source)
        if (rings := alarm(record)) is not None:
            self._run(SQL["set_alarm"], (self.app, rings, record.seq))
            self.told.sooner.add(record.source)
        if record.lane is not None and record.state != "scheduled":
            if record.state == "ready":
                admitted(self.limits.lane(record.lane), record, +1)
            else:
                self._run(SQL["enter_parked"], (self.app, record.lane, record.rank, record.seq))

    def _leave(self, record: Record, *, rang: bool = False) -> None:
        """Out of its place, not by being taken."""
        self.count(record.source, record.state, -1)
        if not rang:
            self.clear_alarm(record)
        if record.state == "ready":
            self._run(SQL["leave_ready"], self._ready_place(record))
        if record.lane is not None and record.state != "scheduled":
            if record.state == "ready":
                admitted(self.limits.lane(record.lane), record, -1)
            else:
                self._leave_parked(record)
            self.admit(record.lane)  # its slot is free, or it stood in the way of those that need less

    def _ready_place(self, record: Record) -> Row:
        return self.id_of(record.source), record.is_suspect, record.rank, record.seq

    def _leave_parked(self, record: Record) -> None:
        self._run(SQL["leave_parked"], (self.app, record.lane, record.rank, record.seq))

    def _admit_one(self, record: Record) -> None:
        """From parked into ready."""
        self.count(record.source, "parked", -1)
        self.clear_alarm(record)
        self._leave_parked(record)
        self._enter(with_state(record, "ready"))

    def clear_alarm(self, record: Record) -> None:
        if (rings := alarm(record)) is not None:
            self._run(SQL["clear_alarm"], (self.app, rings, record.seq))

    def _arrive(self, due: Sequence[Record]) -> None:
        """Into ready, or behind their lane if it is not open for them: those that wait there already it is shut to.

        All at once: a key that is held back may have a thousand of them.
        """
        saves: list[Row] = []
        places: dict[str, list[Row]] = {"enter_ready": [], "enter_parked": [], "set_alarm": []}
        for record in due:
            lane = None if record.lane is None else self.limits.lane(record.lane)
            opens = lane is None or self.limits.has_capacity(lane, record.policy.cost, self.now)
            arrived = with_state(record, "ready" if opens else "parked")
            self.count(record.source, record.state, -1)
            self.count(record.source, arrived.state, +1)
            self.moves[arrived.state].append(record.seq)
            saves.append(to_save(arrived))
            if not opens:
                places["enter_parked"].append((self.app, record.lane, record.rank, record.seq))
            else:
                places["enter_ready"].append(self._ready_place(record))
                self.told.woken.add(record.source)
                if lane is not None:
                    admitted(lane, record, +1)
            if (rings := alarm(arrived)) is not None:
                places["set_alarm"].append((self.app, rings, record.seq))
                self.told.sooner.add(record.source)
        for what, rows in (("save_history", saves), *places.items()):
            self.db.executemany(SQL[what], rows)

    def _pass_by(self, uuid: str) -> None:
        """One that has just come may pass those before it, if they wait for more tokens than it needs."""
        record = self.by_uuid(uuid)
        if record is None or record.lane is None or record.state != "parked" or record.history.reason in CHORE_REASONS:
            return
        if self.limits.has_capacity(self.limits.lane(record.lane), record.policy.cost, self.now):
            self._admit_one(record)

    def park(self, record: Record) -> None:
        """Taken out of ready, but its lane has closed meanwhile."""
        self.count(record.source, "ready", -1)
        self.clear_alarm(record)
        self._enter(with_state(record, "parked"))

    def first_parked(self, lane: str) -> Record | None:
        row = self._run(SQL["first_parked"], (self.app, lane)).fetchone()
        return None if row is None else self.record(row)

    def admit(self, name: str) -> int:
        """Lets parked ones of a lane into ready while it is open; at most a batch of them."""
        lane = self.limits.lane(name)
        for done in range(BATCH):
            record = self.first_parked(name)
            if record is None or not self.limits.has_capacity(lane, record.policy.cost, self.now):
                return done
            self._admit_one(record)
        self.limits.set_refill(lane, self.now)
        return BATCH

    # -- time

    def refill_lanes(self) -> bool:
        """Admits in lanes whose refill has come; False: there may be more."""
        done = 0
        while done < BATCH and (names := self.limits.all_refilled(self.now, BATCH - done)):
            done += sum(1 + self.admit(name) for name in names)
        return done < BATCH

    def promote(self) -> bool:
        """Alarms that have come, at most a batch; False: there may be more."""
        rung = self._run(SQL["due_alarms"], (self.app, self.now, BATCH)).fetchall()
        if rung:
            self._run(SQL["clear_due_alarms"], (self.app, rung[-1][-1], rung[-1][7]))
        due: list[Record] = []
        for row in rung:
            record = self.record(row)
            ends = expiry(record)
            if ends is None or ends > self.now:
                due.append(record)
                continue
            self._arrive(due)  # those before it stand where it may make room
            due.clear()
            if record.lane is not None:  # another of its lane may have let it in since, and armed it again
                record = self.by_uuid(record.uuid) or record
            self.end_as_chore(record, "expired", rang=record.lane is None)
        self._arrive(due)
        return len(rung) < BATCH

    # -- chores

    def end_as_chore(self, record: Record, reason: Reason, *, rang: bool = False) -> Record:
        """From its place: it waits for somebody to end it."""
        self._leave(record, rang=rang)
        return self.queue_chore(with_state(record, record.state, with_history(record.history, reason=reason)))

    def queue_chore(self, record: Record) -> Record:
        """From nowhere: it was held. A lifted one waits for whoever lifts it again, unless it is to be cancelled."""
        if record.history.reason == "lifted" and record.history.cancel_requested:
            record = with_state(record, record.state, with_history(record.history, reason="cancel"))
        self.save(record)
        self.count(record.source, record.state, +1)
        self.moves[record.state].append(record.seq)
        if record.history.reason != "lifted":
            self._run(SQL["enter_chore"], (self.app, record.seq))
            self.told.sooner.add("")  # of no source, but somebody has to end it
        return record

    # -- letting go of what was held

    def release_capacity(self, record: Record) -> None:
        """What it held is free: a limit may let another one in now, or itself again, by rank."""
        if record.lane is not None:
            self.admit(record.lane)
            self._pass_by(record.uuid)
        if self.limits.declared and self.limits.effective(record.source) is not None:
            self.told.woken.add(record.source)
        if record.is_suspect:
            self.told.woken.update(name for _, name in self._run(SQL["ready_sources"], {"app": self.app, "suspect": 1}))

    def requeue(self, record: Record, history: History, after: int | None) -> None:
        """Back to where it came from, or later; or to the chores, if it must end."""
        if history.cancel_requested or history.reason in CHORE_REASONS:
            reason: Reason = "cancel" if history.cancel_requested else history.reason
            self.queue_chore(with_state(record, "ready", with_history(history, reason=reason)))
            return
        due = record.due if after is None else due_in(after, self.now)
        later = rescheduled(record, due, history)
        if due <= self.now:  # behind its lane, if it has one: whoever is first by rank is let in
            later = with_state(later, "ready" if later.lane is None else "parked")
        self._enter(later)

    def revive(self, record: Record) -> bool:
        if record.unique is not None:
            if self._holder(record.source, record.unique) not in (None, record.uuid):
                return False
            if record.policy.unique_for is None:
                self._run(SQL["set_key"], (self.id_of(record.source), record.unique, record.uuid, None))
        self.count(record.source, record.state, -1)
        due = revived(record, self.now)
        self._enter(due if due.lane is not None else with_state(due, "ready"))
        return True
