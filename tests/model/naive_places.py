"""The rows of the naive store that are not leased: added, replaced, revived, and moved from place to place."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor

from msgspec.structs import replace

from onthedot.clock.protocol import Clock
from onthedot.stores.contract import BATCH, Added, DeadlinePassed, NewTask, Reason, Record
from tests.model.naive_counters import NaiveCounters, resumed
from tests.model.rows import Row, due_after


class NaivePlaces(NaiveCounters):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.keys: dict[tuple[str, str], tuple[str, int | None]] = {}  # holder and end (None: end of the task)
        self.seq = 0
        self.woken: set[str] = set()
        self.recent: dict[str, int] = {}  # uuids of tasks that ended with keep=0, and until when they are known

    # -- adding

    def earliest_now(self) -> float:
        return self.clock.now()

    def add(self, tasks: Sequence[NewTask], deadline: float | None = None) -> list[Added]:
        if deadline is not None and self.clock.now() > deadline:
            raise DeadlinePassed(self.clock.now())
        return [self._add(task) for task in tasks]

    def _add(self, task: NewTask) -> Added:
        now = self.clock.now()
        due = task.at if task.at is not None else due_after(now, task.after)
        if task.uuid in self.rows or self.recent.get(task.uuid, 0) > now:
            return Added(task.uuid, fresh=False)
        if (holder := self._holder(task.source, task.unique)) is not None:
            if task.policy.on_conflict == "replace":
                self._replace(holder, task, due)
            return Added(holder, fresh=False)
        self.seq += 1
        row = self.rows[task.uuid] = Row(
            Record(
                task.uuid, task.source, task.body, task.policy, task.lane, task.unique, due, self.seq, floor(now),
                "scheduled", links=task.links,
            )
        )  # fmt: skip
        self._hold_key(row.record)
        self._enter_first(row)
        return Added(task.uuid, fresh=True)

    def _replace(self, uuid: str, task: NewTask, due: int) -> None:
        row = self.rows.get(uuid)
        if row is None or not row.live or row.lease is not None or row.chore is not None or row.lifted:
            return
        if row.record.links is not None or row.record.state == "waiting":
            return
        lane = row.in_lane
        row.record = replace(row.record, body=task.body, lane=task.lane, policy=task.policy, due=due)
        self._hold_key(row.record)
        self._enter(row)
        self._admit(lane)

    def _holder(self, source: str, unique: str | None) -> str | None:
        uuid, until = self.keys.get((source, unique), (None, None)) if unique is not None else (None, None)
        return uuid if until is None or self.clock.now() < until else None

    def _hold_key(self, record: Record) -> None:
        if record.unique is not None:
            held_ms = record.policy.unique_for
            self.keys[record.source, record.unique] = (record.uuid, None if held_ms is None else record.added + held_ms)

    def revive(self, uuids: Sequence[str]) -> list[str]:
        for row in self._known(uuids):
            record = row.record
            other = self._holder(record.source, record.unique) not in (None, record.uuid)
            if record.state not in ("failed", "cancelled") or other:
                continue
            row.change(
                reason="due", earlier=record.attempt, retries=0, crashes=0, cancel_requested=False,
                ended=None, keep_until=None, result=None, error=None, revives=record.history.revives + 1,
            )  # fmt: skip
            row.record = replace(row.record, due=due_after(self.clock.now(), 0))
            self._hold_key(row.record)
            self.changed(row)
            self._enter_first(row)
        return [uuid for uuid in uuids if uuid in self.rows and self.rows[uuid].live]

    def _known(self, uuids: Sequence[str]) -> list[Row]:
        return [self.rows[uuid] for uuid in uuids if uuid in self.rows]

    # -- the place of a row that is not leased

    def _enter_first(self, row: Row) -> None:
        """To its first wait, if it never started and has one."""
        links = row.record.links
        now = self.clock.now()
        if links is None or links.waits is None or row.record.history.started is not None:
            self._enter(row)
        else:
            timeout = links.waits.timeout
            row.change(wait_until=None if timeout is None else ceil(now + timeout))
            row.move("waiting", row.record.history.wait_until)

    def end_waits(self) -> int:
        found = [(row, counter) for row in self.rows.values() if (counter := self.reached(row)) is not None]
        found = sorted(found, key=lambda each: each[0].record.seq)[:BATCH]
        for row, counter in found:
            wait = self.wait_of(row)
            assert wait is not None
            is_met = {"any": True, "success": counter.failed == 0, "failure": counter.failed > 0}[wait.requires]
            if is_met:
                self._end_wait(row, wait.delay)
            else:
                self._end_as_chore(row, "upstream")
        return len(found)

    def _end_wait(self, row: Row, delay: int) -> None:
        resumed(row)
        row.change(reason="due")
        row.record = replace(row.record, due=max(row.record.due, due_after(self.clock.now(), delay)))
        if row.record.due > self.clock.now():
            row.move("scheduled", row.record.due)
        else:
            self._arrive(row)
            self._admit(row.record.lane, [row])

    def _end_as_chore(self, row: Row, reason: Reason) -> None:
        """A waiting row is ready before it is a chore."""
        if row.record.state == "waiting":
            resumed(row)
            row.move("ready", None)
        self._make_chore(row, reason)

    def _enter(self, row: Row) -> None:
        """Places a new, replaced or revived row; its lane is checked at its alarm."""
        if row.record.lane is None and row.record.due <= self.clock.now():
            self._arrive(row)
        else:
            row.move("scheduled", row.record.due)

    def _requeue(self, row: Row) -> None:
        """Places a row that is not leased any more."""
        if row.record.history.cancel_requested:
            row.move("ready", None)
            self._make_chore(row, "cancel")
        elif row.record.due > self.clock.now():
            row.move("scheduled", row.record.due)
        else:
            self._arrive(row)

    def _arrive(self, row: Row) -> None:
        """A row with a lane is parked; `_admit` admits it by rank, together with the parked ones."""
        if row.record.lane is None:
            row.move("ready", row.expiry)
            self.woken.add(row.record.source)
        else:
            row.move("parked", row.expiry)

    def _admit(self, lane: str | None, arrived: Sequence[Row] = ()) -> None:
        """Admits parked rows by rank while the lane has capacity, then those that have just arrived."""
        for row in self.limit_rules.in_lane(lane, "parked"):
            if not self._admit_one(row):
                break
        for row in sorted(arrived, key=lambda row: row.place):
            if row.waits("parked"):
                self._admit_one(row)

    def _admit_one(self, row: Row) -> bool:
        assert row.record.lane is not None
        if not self.limit_rules.has_capacity(row.record.lane, row.record.policy.cost):
            return False
        row.move("ready", row.alarm)
        self.woken.add(row.record.source)
        return True

    def _make_chore(self, row: Row, reason: Reason) -> None:
        row.change(reason=reason)
        row.alarm = None
        row.chore = self._count()

    def _promote(self) -> int:
        now = self.clock.now()
        rows = [row for row in self.rows.values() if row.alarm is not None and row.alarm <= now]
        rows = sorted(rows, key=lambda row: (row.alarm, row.record.seq))[:BATCH]
        for row in rows:
            if row.record.state == "waiting":
                if row.record.history.started is None:
                    self._end_as_chore(row, "expired")
                else:
                    self._end_wait(row, 0)
            elif row.expiry is not None and row.expiry <= now:
                self._make_chore(row, "expired")
                self._admit(row.record.lane)
            else:
                self._arrive(row)
                self._admit(row.record.lane, [row])
        return len(rows)
