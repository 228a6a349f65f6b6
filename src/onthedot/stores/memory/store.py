"""The memory store: the reference of what the contract means."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from onthedot.clock.protocol import Clock
from onthedot.clock.system import SystemClock
from onthedot.forks import register_fork_hooks
from onthedot.stores.contract import (
    CHORES,
    CLIENT_LEASE,
    Added,
    ChangePage,
    ClaimRequest,
    ClaimResult,
    Completed,
    Ended,
    FireRequest,
    HeartbeatResult,
    Hints,
    Lease,
    LeasedTasks,
    Limit,
    NewTask,
    Note,
    Outcome,
    Page,
    Position,
    Reason,
    Record,
    Requeued,
    Schedule,
    State,
    StoreTraits,
    TurnResult,
    Verdict,
)
from onthedot.stores.hint_streams import RECHECK, HintHub
from onthedot.stores.memory.change_log import ChangeLog
from onthedot.stores.memory.claim import MemoryPicker, idle_sources, take_strays
from onthedot.stores.memory.find import find
from onthedot.stores.memory.journal import Journal
from onthedot.stores.memory.position import standing
from onthedot.stores.memory.schedules import ScheduleTable
from onthedot.stores.memory.sessions import SessionEntry, SessionTable
from onthedot.stores.memory.tables import ClaimEntry, MemoryTables
from onthedot.stores.rules.records import (
    CHORE_REASONS,
    ENDED,
    after_crash,
    after_requeue,
    ended,
    settled_by,
    with_history,
    with_state,
)


class MemoryStore:
    """Dicts and heaps under one lock. Gone with the process; may be called from any thread.

    >>> import asyncio
    >>> store = MemoryStore()
    >>> asyncio.run(store.add([NewTask("u1", "email", b"{}")]))
    [Added(uuid='u1', fresh=True)]
    """

    traits: StoreTraits = StoreTraits(shared=False, synchronous=True, cancel_safe=True)

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._tables = MemoryTables(self._clock.wall_clock_jump)
        self._sessions = SessionTable()
        self._schedules = ScheduleTable()
        self._journal = Journal()
        self._changes = ChangeLog()
        self._listeners = HintHub()
        self._fence = 0
        register_fork_hooks(self, store=True)

    # Around a fork: the child gets a copy that no thread is changing.

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork(self) -> None:
        self._lock = threading.Lock()

    async def open(self) -> None:
        pass  # it is there as soon as it is made

    async def close(self) -> None:
        pass  # kept for the next start: it goes with the last reference

    # -- tasks

    async def add(self, tasks: Sequence[NewTask]) -> Sequence[Added]:
        with self._call() as now:
            at = int(now)
            return [self._tables.add(task, at, now) for task in tasks]

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        with self._call(session) as now:
            verdicts: list[Verdict] = [self._settle(outcome, now) for outcome in outcomes]
            if request is None:
                return TurnResult(verdicts, alive=self._sessions.get(session) is not None)
            self._reap(now)
            holder = self._sessions.get(session)
            if holder is None:
                return TurnResult(verdicts, alive=False)
            refilled = self._tables.refill_lanes(now)
            promoted = self._tables.promote(now)
            claimed = self._claim(holder, request, now, more=not (refilled and promoted))
            return TurnResult(verdicts, claimed)

    async def note(self, notes: Sequence[Note]) -> Sequence[Lease]:
        with self._call():
            lost: list[Lease] = []
            for note in notes:
                if self._held_by(note.lease) is None:
                    lost.append(note.lease)
                else:
                    self._journal.write(note)
            return lost

    async def cancel(self, session: str, uuids: Sequence[str], reason: str = "") -> LeasedTasks:
        def take(record: Record, now: float) -> Record | None:
            holder = self._tables.holds.get(record.uuid)
            if holder is not None:
                self._flag(record)
                self._listeners.notify(holder.session, cancel_requests={record.uuid: reason})
                return None
            if record.history.reason not in CHORE_REASONS:
                record = self._tables.end_as_chore(record, "cancel", now)
            return self._flag(record, "cancel")

        with self._call(session) as now:
            return self._lease(session, uuids, take, now)

    async def lift(self, session: str, uuids: Sequence[str]) -> LeasedTasks:
        with self._call(session) as now:
            self._reap(now)
            return self._lease(session, uuids, self._tables.lift, now)

    def _lease(
        self, session: str, uuids: Sequence[str], take: Callable[[Record, float], Record | None], now: float
    ) -> LeasedTasks:
        """As chores, those that it takes."""
        self._sessions.open(session, now + CLIENT_LEASE)
        claim = self._new_claim(session, now, chores=True)
        leased: list[Record] = []
        for uuid in uuids:
            record = self._tables.records.get(uuid)
            if record is not None and record.state not in ENDED and (taken := take(record, now)) is not None:
                self._tables.hold(taken, claim)
                leased.append(taken)
        return LeasedTasks(self._keep_claim(claim), leased)

    async def adopt(self, records: Sequence[Record]) -> Sequence[Added]:
        with self._call() as now:
            return [self._tables.adopt(record, now) for record in records]

    async def revive(self, uuids: Sequence[str]) -> Sequence[str]:
        with self._call() as now:
            live: list[str] = []
            for uuid in uuids:
                record = self._tables.records.get(uuid)
                if record is None or record.state == "succeeded":
                    continue
                if record.state not in ENDED or self._tables.revive(record, now):
                    live.append(uuid)
            return live

    # -- sessions

    async def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        with self._call(session) as now:
            holder = self._sessions.heartbeat(session, info, now + lease)
            if holder is None:
                return HeartbeatResult(alive=False)
            return HeartbeatResult(
                alive=True,
                cancel_requests=[lease for lease, record in self._runs(holder) if record.history.cancel_requested],
            )

    async def close_session(self, session: str, *, crashed: bool = False) -> None:
        with self._call(session) as now:
            if crashed:
                holder = self._sessions.heartbeat(session, b"", now)
                if holder is not None:
                    self._reap_session(holder, now)
                return
            holder = self._sessions.close(session)
            if holder is not None:
                self._release_session(holder, now)

    def hints(self, session: str) -> Hints:
        return self._listeners.listen(session)

    # -- control

    async def put_schedules(self, schedules: Sequence[Schedule]) -> Sequence[bool]:
        with self._call():
            if schedules:
                self._tables.sooner.add(RECHECK)
            return [self._schedules.put(schedule) for schedule in schedules]

    async def put_limits(self, limits: Sequence[Limit]) -> None:
        with self._call() as now:
            for limit in limits:
                if self._tables.limits.put(limit, now):
                    self._tables.woken.add(limit.name.partition("/")[0])

    async def fire(self, fires: Sequence[FireRequest]) -> Sequence[bool]:
        with self._call() as now:
            return [
                self._schedules.fire(fire, lambda task: self._tables.add(task, int(now), now).fresh) for fire in fires
            ]

    async def delete_schedules(self, schedules: Sequence[str]) -> None:
        with self._call():
            self._schedules.delete_schedules(schedules)

    async def purge(self, limit: int, most: int = 1_000_000) -> int:
        with self._call() as now:
            return self._tables.purge(limit, most, now)

    # -- looking

    async def get(self, uuids: Sequence[str]) -> Sequence[Record | None]:
        with self._lock:
            now = self._clock.now()
            found = [self._tables.records.get(uuid) for uuid in uuids]
            return [None if record is None else self._tables.as_seen(record, now) for record in found]

    async def find(self, where: Mapping[str, str], after: str | None, limit: int) -> Page:
        with self._lock:
            return find(self._tables, where, after, limit, self._clock.now())

    async def notes(self, uuid: str, after: int, limit: int) -> Sequence[tuple[int, Note]]:
        with self._lock:
            return self._journal.read(uuid, after, limit)

    async def tally(self) -> Mapping[tuple[str, State], int]:
        with self._lock:
            tally = self._tables.tally.items()
            return {(source, state): count for source, counts in tally for state, count in counts.items() if count}

    async def schedules(self) -> Sequence[Schedule]:
        with self._lock:
            return self._schedules.all()

    async def limits(self) -> Sequence[Limit]:
        with self._lock:
            return self._tables.limits.all()

    async def sessions(self) -> Mapping[str, bytes]:
        with self._lock:
            return self._sessions.infos(self._clock.now())

    async def position(self, uuid: str) -> Position | None:
        with self._lock:
            return standing(self._tables, uuid, self._clock.now())

    async def changes(self, after: str, limit: int) -> ChangePage:
        with self._lock:
            return self._changes.read(after, limit)

    # -- one call: what moved is logged, who waits is told

    def _call(self, session: str | None = None) -> _Call:
        return _Call(self, session)

    def _enter(self) -> float:
        """Under the lock, the call's moment."""
        self._lock.acquire()
        self._tables.woken.clear()
        self._tables.sooner.clear()
        return self._clock.now()

    def _exit(self, session: str | None, now: float) -> None:
        """What has moved is written down and told, also by a call that went wrong half-way."""
        try:
            tables = self._tables
            if moves := tables.moves:
                self._changes.write(now, moves)
                self._tell_ends(moves.ended)
                moves.clear()
            if tables.gone:
                self._journal.forget(tables.gone)
                tables.gone.clear()
            if tables.woken or tables.sooner:
                self._tell_workers(session)
        finally:
            self._lock.release()

    def _tell_workers(self, but: str | None) -> None:
        sources = self._tables.woken | self._tables.sooner
        for session in self._sessions.names():
            if session != but:
                self._listeners.notify(session, sources=sources)

    def _tell_ends(self, records: Sequence[Record]) -> None:
        told: dict[str, list[str]] = {}
        for record in records:
            if (to := record.policy.reply_to) is not None and to in self._listeners:
                told.setdefault(to, []).append(record.uuid)
        for session, uuids in told.items():
            self._listeners.notify(session, ended=uuids)

    # -- settling

    def _held_by(self, lease: Lease) -> ClaimEntry | None:
        claim = self._tables.holds.get(lease.uuid)
        if claim is None or claim.fence != lease.fence or claim.session != lease.session:
            return None
        return claim

    def _settle(self, outcome: Outcome, now: float) -> Verdict:
        lease, tables = outcome.lease, self._tables
        claim = tables.holds.get(lease.uuid)
        if claim is None or claim.fence != lease.fence or claim.session != lease.session:
            return self._late(lease)
        record = tables.records[lease.uuid]
        history, started = record.history, record.history.started if claim.chores else claim.at
        tables.release(record, claim)
        if not claim.left or (tables.suspects and record.is_suspect):
            self._sessions.settled(claim, record)
        match outcome:
            case Completed():
                result: bytes | None = outcome.result
                if result and outcome.keep_result is not None:
                    self._kept_apart(outcome, now)
                    result = None
                over = ended(history, lease, started, now, outcome.keep, result, history.error)
                tables.end(record, "succeeded", over, outcome.keep)
            case Ended():
                over = ended(history, lease, started, now, outcome.keep, None, outcome.error)
                tables.end(record, outcome.state, over, outcome.keep)
            case Requeued() if claim.chores and history.reason != "lifted":  # it must end, whoever does it
                tables.queue_chore(with_state(record, record.state, settled_by(history, lease)))
            case Requeued():
                if outcome.error:
                    self._journal.write(Note(lease, "error", str(record.attempt), outcome.error))
                since = history.started if outcome.after is None else started
                tables.requeue(
                    record, after_requeue(history, lease, outcome.counted, since, outcome.error), outcome.after, now
                )
        if tables.limits.declared or tables.suspects or record.lane is not None:
            tables.release_capacity(record, now)
        if outcome.effects is not None:
            for task in outcome.effects.tasks:
                tables.add(task, int(now), now)
        return "ok"

    def _kept_apart(self, outcome: Completed, now: float) -> None:
        """A result that is to go before its record."""
        assert outcome.keep_result is not None
        self._tables.results.put(outcome.lease.uuid, outcome.result, min(outcome.keep, outcome.keep_result), now)

    def _late(self, lease: Lease) -> Verdict:
        record = self._tables.records.get(lease.uuid)
        if record is not None and (record.history.settled_fence, record.history.session) == (
            lease.fence,
            lease.session,
        ):
            return "repeat"
        return "lost"

    # -- claiming

    def _claim(self, session: SessionEntry, request: ClaimRequest, now: float, *, more: bool) -> ClaimResult:
        if request.number == session.number:
            tasks, chores = (self._tables.held(claim) for claim in session.last)
        else:
            tasks, chores = self._take(session, request, now)
        rest = idle_sources(self._tables, request.pools, request.max_suspects > session.suspects, now)
        fence, woke = session.last[0].fence if tasks or chores else 0, frozenset(self._tables.woken)
        due, next_in = self._schedules.due(now), self._next_in(now, rest)
        return ClaimResult(fence, tasks, chores, due, rest, woke, next_in, more or len(chores) == CHORES, now)

    def _take(self, session: SessionEntry, request: ClaimRequest, now: float) -> tuple[list[Record], list[Record]]:
        tables = self._tables
        claim = self._new_claim(session.name, now)
        aside = self._new_claim(session.name, now, chores=True)
        chores = tables.take_chores(aside, CHORES)
        if request.known_sources is not None:
            chores += take_strays(tables, request.known_sources, aside, CHORES - len(chores), now)
        tasks: list[Record] = []
        for pool in request.pools:
            taking = MemoryPicker(tables, pool, claim, request.max_suspects - session.suspects, now)
            before = taking.suspects
            tasks += taking.run()
            session.suspects += before - taking.suspects
        session.number, session.last = request.number, (claim, aside)
        self._keep_claim(claim, aside)
        return tasks, chores

    def _next_in(self, now: float, rest: Mapping[str, float | None]) -> float | None:
        moments = (self._tables.next_alarm(), self._sessions.next_death(), self._schedules.next_after(now))
        waits = [wait for wait in rest.values() if wait is not None]
        waits += [max(0.0, moment - now) for moment in moments if moment is not None]
        return min(waits, default=None)

    def _new_claim(self, session: str, now: float, *, chores: bool = False) -> ClaimEntry:
        return ClaimEntry(self._fence + 1, session, int(now), chores=chores)

    def _keep_claim(self, *claims: ClaimEntry) -> int:
        """Claims that took nothing leave no trace, and no number is used up."""
        fence = 0
        for claim in claims:
            if claim.left:
                self._sessions.hold(claim)
                fence = self._fence = claim.fence
        return fence

    def _flag(self, record: Record, reason: Reason | None = None) -> Record:
        flagged = with_state(record, record.state, with_history(record.history, reason=reason, cancel_requested=True))
        self._tables.records[record.uuid] = flagged
        return flagged

    # -- the end of a session

    def _runs(self, session: SessionEntry) -> Iterator[tuple[Lease, Record]]:
        for claim in session.claims:
            if not claim.chores:
                for record in self._tables.held(claim):
                    yield Lease(record.uuid, claim.fence, session.name), record

    def _reap(self, now: float) -> None:
        for dead in self._sessions.overdue(now):
            self._reap_session(dead, now)

    def _reap_session(self, session: SessionEntry, now: float) -> None:
        """A suspect that ran alone took the session down; without one, any run may have done it."""
        self._sessions.reap_session(session.name)
        runs = [record for _, record in self._runs(session)]
        suspects = [record for record in runs if record.is_suspect]
        self._release_session(session, now, crashes={record.uuid for record in suspects or runs})

    def _release_session(self, session: SessionEntry, now: float, crashes: set[str] | None = None) -> None:
        """crashes: those of a dead session that count as such; None: it was closed in order."""
        tables = self._tables
        leased = [(claim, record) for claim in session.claims for record in tables.held(claim)]
        for claim, record in leased:
            tables.release(record, claim)
            history = record.history
            if crashes is not None:
                history = after_crash(history, record.policy.max_crashes, claim.at, record.uuid in crashes)
            if claim.chores:
                tables.queue_chore(record)
            else:
                tables.requeue(record, history, None, now)
        for _, record in sorted(leased, key=lambda each: (each[1].rank, each[1].seq)):
            tables.release_capacity(record, now)


class _Call:
    """``with store._call() as now``: a class, since it stands around every call and a generator costs thrice."""

    __slots__ = ("_now", "_session", "_store")

    def __init__(self, store: MemoryStore, session: str | None) -> None:
        self._store = store
        self._session = session

    def __enter__(self) -> float:
        self._now = self._store._enter()
        return self._now

    def __exit__(self, *exc: object) -> None:
        self._store._exit(self._session, self._now)
