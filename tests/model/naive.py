"""The reference implementation of the contract: one dict of rows and loops over all of them, no heaps, no indexes.

Stores are compared with it. It is slow on purpose, synchronous, and has no hints and no change feed.
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
    RECENT_MS,
    Added,
    ClaimRequest,
    ClaimResult,
    Completed,
    Ended,
    HeartbeatResult,
    Lease,
    LeasedTasks,
    Note,
    Outcome,
    Record,
    Requeued,
    SlotPool,
    State,
    Suspended,
    TurnResult,
    Verdict,
)
from tests.model.naive_places import NaivePlaces
from tests.model.rows import Row, RowLease, SessionRow, due_after


class NaiveStore(NaivePlaces):
    private = True
    immediate = True
    direct = True

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.dead_sessions: set[str] = set()
        self.subscriptions: set[tuple[str, str]] = set()  # session, uuid

    # -- settling

    def _settle(self, outcome: Outcome) -> Verdict:
        lease = outcome.lease
        row = self.rows.get(outcome.lease.uuid)
        if row is None or not row.under(lease) or row.lease is None:
            history = row.record.history if row else None
            return (
                "repeat"
                if history and (history.settled_fence, history.session) == (lease.fence, lease.session)
                else "lost"
            )
        release = isinstance(outcome, Requeued) and outcome.after is None
        if row.running and not release:
            row.change(started=floor(row.lease.at))
        if row.running:
            self._release_capacity(row)
        row.change(settled_fence=lease.fence, session=lease.session)
        was_chore = row.lease.chore
        row.lease = row.chore = None
        match outcome:
            case Completed():
                self._end(row, "succeeded", outcome.keep, result=outcome.result)
                row.result_until = None
                if outcome.keep_result is not None:
                    row.result_until = floor(self.clock.now()) + outcome.keep_result
            case Ended():
                self._end(row, outcome.state, outcome.keep, error=outcome.error)
            case Requeued() if was_chore and not row.lifted:
                self._make_chore(row, row.record.history.reason)
            case Requeued():
                self._again(row, outcome)
            case Suspended() if was_chore:
                self._still_a_chore(row)
            case Suspended():
                self._suspend(row, outcome)
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
        self.changed(row)
        self._drop_subscriptions(uuid=row.record.uuid)
        if keep == 0:
            self.recent[row.record.uuid] = row.record.added + RECENT_MS
            self.drop(row.record.uuid)

    def _still_a_chore(self, row: Row) -> None:
        """A lifted task waits for the next lift, unless it is to be cancelled."""
        if not row.lifted:
            self._make_chore(row, row.record.history.reason)
        elif row.record.history.cancel_requested:
            self._make_chore(row, "cancel")

    def _suspend(self, row: Row, outcome: Suspended) -> None:
        self._reset_crashes(row)
        row.change(reason="due")
        if row.record.history.cancel_requested:
            self._requeue(row)
            return
        timeout = outcome.wait.timeout
        until = None if timeout is None else ceil(self.clock.now() + timeout)
        row.change(wait=outcome.wait, wait_until=until)
        row.move("waiting", until)

    def _reset_crashes(self, row: Row) -> None:
        history = row.record.history
        row.change(crashes=0, earlier=history.earlier + history.crashes)

    def _again(self, row: Row, outcome: Requeued) -> None:
        if outcome.error:
            self._write(row, Note(outcome.lease, "error", str(row.record.attempt), outcome.error))
            row.change(error=outcome.error)
        if outcome.reset_crashes:
            self._reset_crashes(row)
        if outcome.counted:
            row.change(retries=row.record.history.retries + 1)
        if outcome.after is not None and not row.record.history.cancel_requested:
            row.record = replace(row.record, due=due_after(self.clock.now(), outcome.after))
        row.change(reason="due")
        self._requeue(row)

    # -- claiming

    def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        self.woken = set()
        verdicts = [self._settle(outcome) for outcome in outcomes]
        if request is None:
            return TurnResult(verdicts, None, session in self.session_rows and session not in self.dead_sessions)
        self._reap_overdue()
        if session not in self.session_rows or self.session_rows[session].info is None:
            return TurnResult(verdicts, None, alive=False)
        for lane in {row.record.lane for row in self.rows.values()}:
            self._admit(lane)
        waits = self.end_waits()
        promoted = self._promote()
        return TurnResult(verdicts, self._claim(session, request, max(waits, promoted)))

    def _claim(self, session: str, request: ClaimRequest, promoted: int) -> ClaimResult:
        claims = self.session_rows[session].claims
        is_late = request.number < max(claims, default=0)
        fresh = request.number not in claims and not is_late
        has_gap = request.number > max(claims, default=0) + 1
        fence = self.fence + 1 if fresh or is_late else claims[request.number]
        held = self._held(session)
        if has_gap and held:
            for row in held:
                row.lease = RowLease(fence, session, self.clock.now(), chore=not row.running)
        elif fresh:
            self._take_chores(session, fence, request.known_sources)
            for pool in request.pools:
                self._take(session, fence, pool, request.max_suspects)
        mine = [row for row in self.rows.values() if row.lease and row.lease.fence == fence]
        if fresh:
            claims[request.number] = fence if mine else 0
            self.fence = max(self.fence, claims[request.number])
        pools = {source: number for number, pool in enumerate(request.pools) for source in pool.capacity}
        tasks = [row for row in mine if row.running]
        tasks.sort(key=lambda row: (pools.get(row.record.source, -1), row.place))
        chores = sorted((row for row in mine if not row.running), key=lambda row: row.chore or 0)
        requested = [source for pool in request.pools for source, capacity in pool.capacity.items() if capacity > 0]
        idle_sources = [source for source in requested if not self.has_startable(source, session, request.max_suspects)]
        idle = {source: self._idle_time(source, session, request.max_suspects) for source in idle_sources}
        return ClaimResult(
            fence=fence if mine else 0,
            tasks=[row.record for row in tasks],
            chores=[row.record for row in chores],
            schedules=self.due_schedules(),
            idle=idle,
            woken=frozenset(self.woken),
            next_in=self._next_in([wait for wait in idle.values() if wait is not None]),
            more=promoted == BATCH or len(chores) == CHORES or is_late or has_gap,
            now=self.clock.now(),
        )

    def _take_chores(self, session: str, fence: int, known: frozenset[str] | None) -> None:
        waiting = [row for row in self.rows.values() if row.chore is not None and row.lease is None]
        taken = sorted(waiting, key=lambda row: row.chore or 0)[:CHORES]
        for row in taken:
            row.lease = RowLease(fence, session, self.clock.now(), chore=True)
        unknown = {row.record.source for row in self.rows.values()} - known if known is not None else ()
        for _ in range(CHORES - len(taken)):
            for row in self.limit_rules.ready([*unknown])[:1]:
                self._make_chore(row, "stray")
                row.lease = RowLease(fence, session, self.clock.now(), chore=True)
                self._admit(row.record.lane)

    def _take(self, session: str, fence: int, pool: SlotPool, suspects: int) -> None:
        total = pool.total
        capacity = dict(pool.capacity)
        for row in self.limit_rules.ready([*capacity]):
            record = row.record
            cost = row.record.policy.cost
            if total <= 0 or capacity[record.source] <= 0 or not self.limit_rules.source_may_start(record.source):
                continue
            if self._exceeds_suspects(row, session, suspects):
                continue
            if record.lane is not None and not self.limit_rules.may_start(record.lane, cost):
                row.move("parked", row.alarm)
                continue
            self.limit_rules.spend(record.source, 1)
            if record.lane is not None:
                self.limit_rules.spend(record.lane, self.limit_rules.price(record.lane, cost))
            row.alarm = None
            row.lease = RowLease(fence, session, self.clock.now(), chore=False)
            total = total - 1
            capacity[record.source] = capacity[record.source] - 1

    def _exceeds_suspects(self, row: Row, session: str, suspects: int) -> bool:
        """Whether it is a suspect and the session runs as many as it may."""
        doubtful = [other for other in self._held(session) if other.running and other.record.is_suspect]
        return row.record.is_suspect and len(doubtful) >= suspects

    def has_startable(self, source: str, session: str, suspects: int) -> bool:
        ready = [row for row in self.limit_rules.ready([source]) if not self._exceeds_suspects(row, session, suspects)]
        return bool(ready) and self.limit_rules.source_may_start(source)

    def _idle_time(self, source: str, session: str, suspects: int) -> float | None:
        ready = [row for row in self.limit_rules.ready([source]) if not self._exceeds_suspects(row, session, suspects)]
        return self.limit_rules.wait(source, 1) if ready and self.limit_rules.source_fits(source) else None

    def _next_in(self, waits: list[float]) -> float | None:
        now = self.clock.now()
        rows = self.rows.values()
        times: list[float] = [row.alarm for row in rows if row.alarm is not None]
        times += [session_row.until for session_row in self.session_rows.values()]
        times += [s.next_at for s in self.stored_schedules.values() if not s.paused and s.next_at and s.next_at > now]
        waits = waits + [max(0.0, time - now) for time in times]
        lanes = {row.record.lane for row in rows if row.record.lane}
        waits += [wait for wait in map(self.limit_rules.lane_wait, lanes) if wait is not None]
        return min(waits, default=None)

    def _reap_overdue(self) -> None:
        for name in [name for name, session_row in self.session_rows.items() if session_row.until <= self.clock.now()]:
            self._reap_session(name)

    def _open_client_session(self, session: str) -> None:
        until = self.clock.now() + CLIENT_LEASE
        if self.session_rows.setdefault(session, SessionRow(until, None)).info is None:
            self.session_rows[session].until = until

    def lift(self, session: str, uuids: Sequence[str]) -> LeasedTasks:
        self._reap_overdue()
        self._open_client_session(session)
        taken = []
        for row in self._known(uuids):
            is_linked = row.record.links is not None or row.record.state == "waiting"
            if row.live and row.lease is None and row.chore is None and not is_linked:
                lane = row.in_lane
                row.change(reason="lifted")
                row.alarm = None
                row.lease = RowLease(self.fence + 1, session, self.clock.now(), chore=True)
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
        self._open_client_session(session)
        taken = []
        for row in self._known(uuids):
            if row.live:
                row.change(cancel_requested=True)
                if row.lease is None:
                    lane = row.in_lane
                    self._end_as_chore(row, "cancel")
                    row.lease = RowLease(self.fence + 1, session, self.clock.now(), chore=True)
                    self._admit(lane)
                    taken.append(row)
        self.fence += bool(taken)
        return LeasedTasks(self.fence if taken else 0, [row.record for row in taken])

    # -- sessions

    def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        if session not in self.dead_sessions:
            session_row = self.session_rows.setdefault(session, SessionRow(0, info))
            session_row.until = self.clock.now() + lease
            session_row.info = info
        if session in self.dead_sessions:
            return HeartbeatResult(alive=False)
        wanted = [row for row in self._held(session) if row.running and row.record.history.cancel_requested]
        return HeartbeatResult(True, [Lease(row.record.uuid, row.lease.fence, session) for row in wanted if row.lease])

    def close_session(self, session: str, crashed: bool = False) -> None:
        if crashed:
            if session not in self.dead_sessions:
                self.session_rows.setdefault(session, SessionRow(0, b""))
                self._reap_session(session)
        elif self.session_rows.pop(session, None):
            self._drop_subscriptions(session)
            self._release(self._held(session))

    def subscribe(self, session: str, uuids: Sequence[str]) -> None:
        self._open_client_session(session)
        self.subscriptions |= {(session, row.record.uuid) for row in self._known(uuids) if row.live}

    def _drop_subscriptions(self, session: str | None = None, uuid: str | None = None) -> None:
        self.subscriptions = {each for each in self.subscriptions if session != each[0] and uuid != each[1]}

    def _held(self, session: str) -> list[Row]:
        return [row for row in self.rows.values() if row.lease and row.lease.session == session]

    def _reap_session(self, session: str) -> None:
        del self.session_rows[session]
        self.dead_sessions.add(session)
        self._drop_subscriptions(session)
        leased = self._held(session)
        runs = [row for row in leased if row.running and row.lease]
        counted = [row for row in runs if row.record.is_suspect] or runs
        for row in counted:
            row.change(crashes=row.record.history.crashes + 1)
        for row in runs:
            row.change(reason="crash", started=floor(row.lease.at if row.lease else 0))
        self._release(leased, counted)

    def _release(self, rows: list[Row], crashed: Sequence[Row] = ()) -> None:
        for row in rows:
            history = row.record.history
            most = row.record.policy.max_crashes
            if row.lifted:
                if history.cancel_requested:
                    self._make_chore(row, "cancel")
            elif not row.running:
                self._make_chore(row, history.reason)
            elif row in crashed and history.crashes >= most and not history.cancel_requested:
                self._make_chore(row, "crashed")
            else:
                self._requeue(row)
            row.lease = None
        for row in rows:
            self._release_capacity(row)
        for lane in {row.record.lane for row in rows}:
            self._admit(lane, [row for row in rows if row.record.lane == lane])

    def _release_capacity(self, row: Row) -> None:
        """A run has ended: tasks that were blocked by its source or by a suspect may start."""
        sources = {other.record.source for other in self.rows.values() if other.record.is_suspect}
        self.woken |= {row.record.source} | (sources if row.record.is_suspect else set())
