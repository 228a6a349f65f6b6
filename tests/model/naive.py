"""The contract, written to be read: one dict of rows and loops over all of it, no heaps, no indexes.

What a store is compared with. Slow on purpose, synchronous, without hints and change log.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor

from msgspec.structs import replace

from onthedot.clock.protocol import Clock
from onthedot.stores.contract import (
    BATCH,
    CHORES,
    CLIENT_LEASE,
    Added,
    ClaimRequest,
    ClaimResult,
    Completed,
    Ended,
    HeartbeatResult,
    Lease,
    LeasedTasks,
    NewTask,
    Note,
    Outcome,
    Reason,
    Record,
    Requeued,
    SlotPool,
    State,
    TurnResult,
    Verdict,
)
from tests.model.control import Control
from tests.model.rows import Hold, Presence, Row


def due_after(now: float, after: int) -> int:
    """Rounded up, so that nothing is early; but now is now."""
    return ceil(now + after) if after > 0 else floor(now)


class NaiveStore(Control):
    private = True
    immediate = True
    direct = True

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.keys: dict[tuple[str, str], tuple[str, int | None]] = {}  # who has it, until when (None: until it ends)
        self.graves: set[str] = set()
        self.fence = self.seq = 0
        self.woke: set[str] = set()

    # -- adding

    def add(self, tasks: Sequence[NewTask]) -> list[Added]:
        return [self._add(task) for task in tasks]

    def _add(self, task: NewTask) -> Added:
        now = self.clock.now()
        due = task.at if task.at is not None else due_after(now, task.after)
        if task.uuid in self.rows:
            return Added(task.uuid, fresh=False)
        if (holder := self._holder(task.source, task.unique)) is not None:
            if task.policy.on_conflict == "replace":
                self._replace(holder, task, due)
            return Added(holder, fresh=False)
        self.seq += 1
        row = self.rows[task.uuid] = Row(
            Record(
                task.uuid, task.source, task.body, task.policy, task.lane, task.unique, due, self.seq, floor(now),
                "scheduled",
            )
        )  # fmt: skip
        self._hold_key(row.record)
        self._enter(row)
        return Added(task.uuid, fresh=True)

    def _replace(self, uuid: str, task: NewTask, due: int) -> None:
        row = self.rows.get(uuid)
        if row is None or not row.live or row.hold is not None or row.chore is not None or row.lifted:
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
            hold = record.policy.unique_for
            self.keys[record.source, record.unique] = (record.uuid, None if hold is None else record.added + hold)

    def revive(self, uuids: Sequence[str]) -> list[str]:
        for row in self._known(uuids):
            record = row.record
            other = self._holder(record.source, record.unique) not in (None, record.uuid)
            if record.state not in ("failed", "cancelled") or other:
                continue
            row.change(
                reason="due", earlier=record.attempt, retries=0, crashes=0, cancel_requested=False,
                ended=None, keep_until=None, result=None, error=None,
            )  # fmt: skip
            row.record = replace(row.record, due=due_after(self.clock.now(), 0))
            self._hold_key(row.record)
            self._enter(row)
        return [uuid for uuid in uuids if uuid in self.rows and self.rows[uuid].live]

    def _known(self, uuids: Sequence[str]) -> list[Row]:
        return [self.rows[uuid] for uuid in uuids if uuid in self.rows]

    # -- where a row goes that nobody holds

    def _enter(self, row: Row) -> None:
        """New, replaced or revived: a lane is looked at when the alarm comes."""
        if row.record.lane is None and row.record.due <= self.clock.now():
            self._arrive(row)
        else:
            row.move("scheduled", row.record.due)

    def _file(self, row: Row) -> None:
        """Nobody holds it any more."""
        if row.record.history.cancel_requested:
            row.move("ready", None)
            self._make_chore(row, "cancel")
        elif row.record.due > self.clock.now():
            row.move("scheduled", row.record.due)
        else:
            self._arrive(row)

    def _arrive(self, row: Row) -> None:
        """With a lane it is parked; `_admit` sees to it, by rank with those that wait already."""
        if row.record.lane is None:
            row.move("ready", row.expiry)
            self.woke.add(row.record.source)
        else:
            row.move("parked", row.expiry)

    def _admit(self, lane: str | None, arrived: Sequence[Row] = ()) -> None:
        """The parked ones of a lane, by rank, while it is open; then those that came just now, if it is for them."""
        for row in self.limit_rules.in_lane(lane, "parked"):
            if not self._admit_one(row):
                break
        for row in sorted(arrived, key=lambda row: row.place):
            if row.waits("parked"):
                self._admit_one(row)

    def _admit_one(self, row: Row) -> bool:
        assert row.record.lane is not None
        if not self.limit_rules.opens(row.record.lane, row.record.policy.cost):
            return False
        row.move("ready", row.alarm)
        self.woke.add(row.record.source)
        return True

    def _make_chore(self, row: Row, reason: Reason) -> None:
        row.change(reason=reason)
        row.alarm, row.chore = None, self._count()

    def _promote(self) -> int:
        now = self.clock.now()
        rows = [row for row in self.rows.values() if row.alarm is not None and row.alarm <= now]
        rows = sorted(rows, key=lambda row: (row.alarm, row.record.seq))[:BATCH]
        for row in rows:
            if row.expiry is not None and row.expiry <= now:
                self._make_chore(row, "expired")
                self._admit(row.record.lane)
            else:
                self._arrive(row)
                self._admit(row.record.lane, [row])
        return len(rows)

    # -- settling

    def _settle(self, outcome: Outcome) -> Verdict:
        lease, row = outcome.lease, self.rows.get(outcome.lease.uuid)
        if row is None or not row.under(lease) or row.hold is None:
            history = row.record.history if row else None
            return (
                "repeat"
                if history and (history.settled_fence, history.session) == (lease.fence, lease.session)
                else "lost"
            )
        release = isinstance(outcome, Requeued) and outcome.after is None
        if row.running and not release:
            row.change(started=floor(row.hold.at))
        if row.running:
            self._freed(row)
        row.change(settled_fence=lease.fence, session=lease.session)
        was_chore = row.hold.chore
        row.hold = row.chore = None
        match outcome:
            case Completed():
                self._end(row, "succeeded", outcome.keep, result=outcome.result)
            case Ended():
                self._end(row, outcome.state, outcome.keep, error=outcome.error)
            case Requeued() if was_chore and not row.lifted:
                self._make_chore(row, row.record.history.reason)
            case Requeued():
                self._again(row, outcome)
        self._admit(row.record.lane, [row])
        self.add(outcome.effects.tasks if outcome.effects else ())
        return "ok"

    def _end(self, row: Row, state: State, keep: int, **what: bytes) -> None:
        ended = floor(self.clock.now())
        row.change(ended=ended, keep_until=ended + keep, **what)
        row.move(state, None)
        row.end = self._count()
        key = (row.record.source, row.record.unique or "")
        if self.keys.get(key) == (row.record.uuid, None):
            del self.keys[key]
        if keep == 0:
            del self.rows[row.record.uuid]

    def _again(self, row: Row, outcome: Requeued) -> None:
        if outcome.error:
            self._write(row, Note(outcome.lease, "error", str(row.record.attempt), outcome.error))
            row.change(error=outcome.error)
        if outcome.counted:
            row.change(retries=row.record.history.retries + 1)
        if outcome.after is not None and not row.record.history.cancel_requested:
            row.record = replace(row.record, due=due_after(self.clock.now(), outcome.after))
        row.change(reason="due")
        self._file(row)

    # -- claiming

    def turn(self, session: str, outcomes: Sequence[Outcome], ask: ClaimRequest | None) -> TurnResult:
        self.woke = set()
        verdicts = [self._settle(outcome) for outcome in outcomes]
        if ask is None:
            return TurnResult(verdicts, None, session in self.presences and session not in self.graves)
        self._reap()
        if session not in self.presences or self.presences[session].info is None:
            return TurnResult(verdicts, None, alive=False)
        for lane in {row.record.lane for row in self.rows.values()}:
            self._admit(lane)
        promoted = self._promote()
        return TurnResult(verdicts, self._claim(session, ask, promoted))

    def _claim(self, session: str, ask: ClaimRequest, promoted: int) -> ClaimResult:
        claims = self.presences[session].claims
        fresh = ask.number not in claims
        fence = self.fence + 1 if fresh else claims[ask.number]
        if fresh:
            self._take_chores(session, fence, ask.known_sources)
            for pool in ask.pools:
                self._take(session, fence, pool, ask.max_suspects)
        mine = [row for row in self.rows.values() if row.hold and row.hold.fence == fence]
        if fresh:
            claims[ask.number] = fence if mine else 0
            self.fence = max(self.fence, claims[ask.number])
        pools = {source: number for number, pool in enumerate(ask.pools) for source in pool.capacity}
        tasks = [row for row in mine if row.running]
        tasks.sort(key=lambda row: (pools.get(row.record.source, -1), row.place))
        chores = sorted((row for row in mine if not row.running), key=lambda row: row.chore or 0)
        asked = [source for pool in ask.pools for source, room in pool.capacity.items() if room > 0]
        resting = [source for source in asked if not self.takeable(source, session, ask.max_suspects)]
        rest = {source: self._rest(source, session, ask.max_suspects) for source in resting}
        return ClaimResult(
            fence=fence if mine else 0,
            tasks=[row.record for row in tasks],
            chores=[row.record for row in chores],
            schedules=self.due_schedules(),
            idle=rest,
            woken=frozenset(self.woke),
            next_in=self._next_in([wait for wait in rest.values() if wait is not None]),
            more=promoted == BATCH or len(chores) == CHORES,
            now=self.clock.now(),
        )

    def _take_chores(self, session: str, fence: int, known: frozenset[str] | None) -> None:
        waiting = [row for row in self.rows.values() if row.chore is not None and row.hold is None]
        taken = sorted(waiting, key=lambda row: row.chore or 0)[:CHORES]
        for row in taken:
            row.hold = Hold(fence, session, self.clock.now(), chore=True)
        unknown = {row.record.source for row in self.rows.values()} - known if known is not None else ()
        for _ in range(CHORES - len(taken)):
            for row in self.limit_rules.ready([*unknown])[:1]:
                self._make_chore(row, "stray")
                row.hold = Hold(fence, session, self.clock.now(), chore=True)
                self._admit(row.record.lane)

    def _take(self, session: str, fence: int, pool: SlotPool, suspects: int) -> None:
        total, room = pool.total, dict(pool.capacity)
        for row in self.limit_rules.ready([*room]):
            record, cost = row.record, row.record.policy.cost
            if total <= 0 or room[record.source] <= 0 or not self.limit_rules.source_starts(record.source):
                continue
            if self._crowded(row, session, suspects):
                continue
            if record.lane is not None and not self.limit_rules.starts(record.lane, cost):
                row.move("parked", row.alarm)
                continue
            self.limit_rules.spend(record.source, 1)
            if record.lane is not None:
                self.limit_rules.spend(record.lane, self.limit_rules.price(record.lane, cost))
            row.alarm, row.hold = None, Hold(fence, session, self.clock.now(), chore=False)
            total, room[record.source] = total - 1, room[record.source] - 1

    def _crowded(self, row: Row, session: str, suspects: int) -> bool:
        """A suspect, and the session runs as many as it may."""
        doubtful = [other for other in self._held(session) if other.running and other.record.is_suspect]
        return row.record.is_suspect and len(doubtful) >= suspects

    def takeable(self, source: str, session: str, suspects: int) -> bool:
        ready = [row for row in self.limit_rules.ready([source]) if not self._crowded(row, session, suspects)]
        return bool(ready) and self.limit_rules.source_starts(source)

    def _rest(self, source: str, session: str, suspects: int) -> float | None:
        ready = [row for row in self.limit_rules.ready([source]) if not self._crowded(row, session, suspects)]
        return self.limit_rules.wait(source, 1) if ready and self.limit_rules.source_fits(source) else None

    def _next_in(self, waits: list[float]) -> float | None:
        now, rows = self.clock.now(), self.rows.values()
        times: list[float] = [row.alarm for row in rows if row.alarm is not None]
        times += [presence.until for presence in self.presences.values()]
        times += [s.next_at for s in self.stored_schedules.values() if not s.paused and s.next_at and s.next_at > now]
        waits = waits + [max(0.0, time - now) for time in times]
        lanes = {row.record.lane for row in rows if row.record.lane}
        waits += [wait for wait in map(self.limit_rules.lane_wait, lanes) if wait is not None]
        return min(waits, default=None)

    def _reap(self) -> None:
        for name in [name for name, presence in self.presences.items() if presence.until <= self.clock.now()]:
            self._die(name)

    def _present(self, session: str) -> None:
        until = self.clock.now() + CLIENT_LEASE
        if self.presences.setdefault(session, Presence(until, None)).info is None:
            self.presences[session].until = until

    def lift(self, session: str, uuids: Sequence[str]) -> LeasedTasks:
        self._reap()
        self._present(session)
        taken = []
        for row in self._known(uuids):
            if row.live and row.hold is None and row.chore is None:
                lane = row.in_lane
                row.change(reason="lifted")
                row.alarm, row.hold = None, Hold(self.fence + 1, session, self.clock.now(), chore=True)
                self._admit(lane)
                taken.append(row)
        self.fence += bool(taken)
        return LeasedTasks(self.fence if taken else 0, [row.record for row in taken])

    def adopt(self, records: Sequence[Record]) -> list[Added]:
        return [self._adopt(record) for record in records]

    def _adopt(self, record: Record) -> Added:
        here = self.rows.get(record.uuid)
        if here is not None and not (here.gone and here.record.history.hops <= record.history.hops):
            return Added(record.uuid, fresh=False)
        if (holder := self._holder(record.source, record.unique)) not in (None, record.uuid):
            return Added(str(holder), fresh=False)
        self.seq += 1
        history = replace(
            record.history,
            reason="lifted",
            cancel_requested=False,
            settled_fence=0,
            session=None,
            ended=None,
            keep_until=None,
        )
        history = replace(history, hops=history.hops + 1)
        copy = replace(record, seq=self.seq, state="scheduled", history=replace(history, result=None))
        self.rows[record.uuid] = Row(copy)
        self._hold_key(copy)
        return Added(record.uuid, fresh=True)

    def cancel(self, session: str, uuids: Sequence[str]) -> LeasedTasks:
        self._present(session)
        taken = []
        for row in self._known(uuids):
            if row.live:
                row.change(cancel_requested=True)
                if row.hold is None:
                    lane = row.in_lane
                    self._make_chore(row, "cancel")
                    row.hold = Hold(self.fence + 1, session, self.clock.now(), chore=True)
                    self._admit(lane)
                    taken.append(row)
        self.fence += bool(taken)
        return LeasedTasks(self.fence if taken else 0, [row.record for row in taken])

    # -- sessions

    def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        if session not in self.graves:
            presence = self.presences.setdefault(session, Presence(0, info))
            presence.until, presence.info = self.clock.now() + lease, info
        if session in self.graves:
            return HeartbeatResult(alive=False)
        wanted = [row for row in self._held(session) if row.running and row.record.history.cancel_requested]
        return HeartbeatResult(True, [Lease(row.record.uuid, row.hold.fence, session) for row in wanted if row.hold])

    def close_session(self, session: str, crashed: bool = False) -> None:
        if crashed:
            if session not in self.graves:
                self.presences.setdefault(session, Presence(0, b""))
                self._die(session)
        elif self.presences.pop(session, None):
            self._give_back(self._held(session))

    def _held(self, session: str) -> list[Row]:
        return [row for row in self.rows.values() if row.hold and row.hold.session == session]

    def _die(self, session: str) -> None:
        del self.presences[session]
        self.graves.add(session)
        leased = self._held(session)
        runs = [row for row in leased if row.running and row.hold]
        counted = [row for row in runs if row.record.is_suspect] or runs
        for row in counted:
            row.change(crashes=row.record.history.crashes + 1)
        for row in runs:
            row.change(reason="crash", started=floor(row.hold.at if row.hold else 0))
        self._give_back(leased, counted)

    def _give_back(self, rows: list[Row], crashed: Sequence[Row] = ()) -> None:
        for row in rows:
            history, most = row.record.history, row.record.policy.max_crashes
            if row.lifted:
                if history.cancel_requested:
                    self._make_chore(row, "cancel")
            elif not row.running:
                self._make_chore(row, history.reason)
            elif row in crashed and history.crashes >= most and not history.cancel_requested:
                self._make_chore(row, "crashed")
            else:
                self._file(row)
            row.hold = None
        for row in rows:
            self._freed(row)
        for lane in {row.record.lane for row in rows}:
            self._admit(lane, [row for row in rows if row.record.lane == lane])

    def _freed(self, row: Row) -> None:
        """A run is over: whoever waited for a slot of its source or for a suspect's may start."""
        sources = {other.record.source for other in self.rows.values() if other.record.is_suspect}
        self.woke |= {row.record.source} | (sources if row.record.is_suspect else set())
