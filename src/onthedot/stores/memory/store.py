"""The memory store: the reference of what the contract means."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from onthedot import forks
from onthedot.clock.clock import Clock, SystemClock
from onthedot.stores.contract import (
    CHORES,
    CLIENT_LEASE,
    Added,
    Again,
    Ask,
    Beat,
    Claimed,
    Done,
    Ended,
    Fire,
    Held,
    Hints,
    Lease,
    Limit,
    NewTask,
    Note,
    Outcome,
    Page,
    Record,
    Schedule,
    Standing,
    State,
    Turn,
    Verdict,
    Why,
)
from onthedot.stores.hint_streams import Listeners
from onthedot.stores.memory.change_log import Changes
from onthedot.stores.memory.claim import Taking, resting, take_strays
from onthedot.stores.memory.find import find
from onthedot.stores.memory.journal import Journal
from onthedot.stores.memory.position import standing
from onthedot.stores.memory.schedules import Schedules
from onthedot.stores.memory.sessions import Session, Sessions
from onthedot.stores.memory.tables import Board, Claim
from onthedot.stores.rules.records import ENDED, ENDING, back, crashed, ended, moved, past_with, settled_by


class MemoryStore:
    """Dicts and heaps under one lock. Gone with the process; may be called from any thread.

    >>> import asyncio
    >>> store = MemoryStore()
    >>> asyncio.run(store.add([NewTask("u1", "email", b"{}")]))
    [Added(uuid='u1', fresh=True)]
    """

    private = True
    immediate = True
    direct = True
    lease: int | None = None  # a session dies with the process, and so does the store

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._board = Board(self._clock.ahead)
        self._sessions = Sessions()
        self._schedules = Schedules()
        self._journal = Journal()
        self._changes = Changes()
        self._listeners = Listeners()
        self._fence = 0
        forks.alive.add(self)

    async def open(self) -> None:
        pass  # it is there as soon as it is made

    async def shut(self) -> None:
        pass  # kept for the next start: it goes with the last reference

    # -- tasks

    async def add(self, tasks: Sequence[NewTask]) -> Sequence[Added]:
        with self._call() as now:
            at = int(now)
            return [self._board.add(task, at, now) for task in tasks]

    async def turn(self, session: str, outcomes: Sequence[Outcome], ask: Ask | None) -> Turn:
        with self._call(session) as now:
            verdicts: list[Verdict] = [self._settle(outcome, now) for outcome in outcomes]
            if ask is None:
                return Turn(verdicts, alive=self._sessions.get(session) is not None)
            self._reap(now)
            holder = self._sessions.get(session)
            if holder is None:
                return Turn(verdicts, alive=False)
            refilled = self._board.refill(now)
            promoted = self._board.promote(now)
            claimed = self._claim(holder, ask, now, more=not (refilled and promoted))
            return Turn(verdicts, claimed)

    async def note(self, notes: Sequence[Note]) -> Sequence[Lease]:
        with self._call():
            lost: list[Lease] = []
            for note in notes:
                if self._held_by(note.lease) is None:
                    lost.append(note.lease)
                else:
                    self._journal.write(note)
            return lost

    async def cancel(self, session: str, uuids: Sequence[str], reason: str = "") -> Held:
        def take(record: Record, now: float) -> Record | None:
            holder = self._board.holds.get(record.uuid)
            if holder is not None:
                self._flag(record)
                self._listeners.tell(holder.session, cancel={record.uuid: reason})
                return None
            if record.past.why not in ENDING:
                record = self._board.to_chores(record, "cancel", now)
            return self._flag(record, "cancel")

        with self._call(session) as now:
            return self._lease(session, uuids, take, now)

    async def lift(self, session: str, uuids: Sequence[str]) -> Held:
        with self._call(session) as now:
            self._reap(now)
            return self._lease(session, uuids, self._board.lift, now)

    def _lease(
        self, session: str, uuids: Sequence[str], take: Callable[[Record, float], Record | None], now: float
    ) -> Held:
        """As chores, those that it takes."""
        self._sessions.open(session, now + CLIENT_LEASE)
        claim = self._new_claim(session, now, chores=True)
        leased: list[Record] = []
        for uuid in uuids:
            record = self._board.records.get(uuid)
            if record is not None and record.state not in ENDED and (taken := take(record, now)) is not None:
                self._board.hold(taken, claim)
                leased.append(taken)
        return Held(self._keep_claim(claim), leased)

    async def adopt(self, records: Sequence[Record]) -> Sequence[Added]:
        with self._call() as now:
            return [self._board.adopt(record, now) for record in records]

    async def revive(self, uuids: Sequence[str]) -> Sequence[str]:
        with self._call() as now:
            live: list[str] = []
            for uuid in uuids:
                record = self._board.records.get(uuid)
                if record is None or record.state == "succeeded":
                    continue
                if record.state not in ENDED or self._board.revive(record, now):
                    live.append(uuid)
            return live

    # -- sessions

    async def beat(self, session: str, info: bytes, lease: int) -> Beat:
        with self._call(session) as now:
            holder = self._sessions.beat(session, info, now + lease)
            if holder is None:
                return Beat(alive=False)
            if lease <= 0:
                self._bury(holder, now)
                return Beat(alive=False)
            return Beat(alive=True, cancel=[lease for lease, record in self._runs(holder) if record.past.cancel])

    async def close(self, session: str) -> None:
        with self._call(session) as now:
            holder = self._sessions.close(session)
            if holder is not None:
                self._give_back(holder, now)

    def hints(self, session: str) -> Hints:
        return self._listeners.listen(session)

    # -- control

    async def put(self, schedules: Sequence[Schedule], limits: Sequence[Limit]) -> Sequence[bool]:
        with self._call() as now:
            answers = [self._schedules.put(schedule) for schedule in schedules]
            for limit in limits:
                if self._board.limits.put(limit, now):
                    self._board.woke.add(limit.name.partition("/")[0])
            if schedules:
                self._board.sooner.add("")  # of no source, but somebody has to look at the time again
            return [*answers, *(True for _ in limits)]

    async def fire(self, fires: Sequence[Fire]) -> Sequence[bool]:
        with self._call() as now:
            return [
                self._schedules.fire(fire, lambda task: self._board.add(task, int(now), now).fresh) for fire in fires
            ]

    async def drop(self, schedules: Sequence[str]) -> None:
        with self._call():
            self._schedules.drop(schedules)

    async def purge(self, limit: int, most: int = 1_000_000) -> int:
        with self._call() as now:
            return self._board.purge(limit, most, now)

    # -- looking

    async def get(self, uuids: Sequence[str]) -> Sequence[Record | None]:
        with self._lock:
            now = self._clock.now()
            found = [self._board.records.get(uuid) for uuid in uuids]
            return [None if record is None else self._board.seen(record, now) for record in found]

    async def find(self, where: Mapping[str, str], after: str | None, limit: int) -> Page:
        with self._lock:
            return find(self._board, where, after, limit, self._clock.now())

    async def notes(self, uuid: str, after: int, limit: int) -> Sequence[tuple[int, Note]]:
        with self._lock:
            return self._journal.read(uuid, after, limit)

    async def tally(self) -> Mapping[tuple[str, State], int]:
        with self._lock:
            tally = self._board.tally.items()
            return {(source, state): count for source, counts in tally for state, count in counts.items() if count}

    async def state(self) -> tuple[Sequence[Schedule], Sequence[Limit], Mapping[str, bytes]]:
        with self._lock:
            return self._schedules.all(), self._board.limits.all(), self._sessions.infos(self._clock.now())

    async def standing(self, uuid: str) -> Standing | None:
        with self._lock:
            return standing(self._board, uuid, self._clock.now())

    async def changes(self, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        with self._lock:
            return self._changes.read(after, limit)

    # -- one call: what moved is logged, who waits is told

    def _call(self, session: str | None = None) -> _Call:
        return _Call(self, session)

    def _enter(self) -> float:
        """Under the lock, the call's moment."""
        self._lock.acquire()
        self._board.woke.clear()
        self._board.sooner.clear()
        return self._clock.now()

    def _exit(self, session: str | None, now: float) -> None:
        """What has moved is written down and told, also by a call that went wrong half-way."""
        try:
            board = self._board
            if moves := board.moves:
                self._changes.write(now, moves)
                self._tell_ends(moves.ended)
                moves.clear()
            if board.gone:
                self._journal.forget(board.gone)
                board.gone.clear()
            if board.woke or board.sooner:
                self._tell_workers(session)
        finally:
            self._lock.release()

    def _tell_workers(self, but: str | None) -> None:
        sources = self._board.woke | self._board.sooner
        for session in self._sessions.names():
            if session != but:
                self._listeners.tell(session, sources=sources)

    def _tell_ends(self, records: Sequence[Record]) -> None:
        told: dict[str, list[str]] = {}
        for record in records:
            if (to := record.policy.reply_to) is not None and to in self._listeners:
                told.setdefault(to, []).append(record.uuid)
        for session, uuids in told.items():
            self._listeners.tell(session, ended=uuids)

    # -- settling

    def _held_by(self, lease: Lease) -> Claim | None:
        claim = self._board.holds.get(lease.uuid)
        if claim is None or claim.fence != lease.fence or claim.session != lease.session:
            return None
        return claim

    def _settle(self, outcome: Outcome, now: float) -> Verdict:
        lease, board = outcome.lease, self._board
        claim = board.holds.get(lease.uuid)
        if claim is None or claim.fence != lease.fence or claim.session != lease.session:
            return self._late(lease)
        record = board.records[lease.uuid]
        past, started = record.past, record.past.started if claim.chores else claim.at
        board.let_go(record, claim)
        if not claim.left or (board.suspects and record.suspect):
            self._sessions.settled(claim, record)
        match outcome:
            case Done():
                result: bytes | None = outcome.result
                if result and outcome.keep_result is not None:
                    self._kept_apart(outcome, now)
                    result = None
                over = ended(past, lease, started, now, outcome.keep, result, past.error)
                board.end(record, "succeeded", over, outcome.keep)
            case Ended():
                over = ended(past, lease, started, now, outcome.keep, None, outcome.error)
                board.end(record, outcome.state, over, outcome.keep)
            case Again() if claim.chores and past.why != "lifted":  # it must end, whoever does it
                board.wait_to_end(moved(record, record.state, settled_by(past, lease)))
            case Again():
                if outcome.error:
                    self._journal.write(Note(lease, "error", str(record.attempt), outcome.error))
                since = past.started if outcome.after is None else started
                board.again(record, back(past, lease, outcome.counted, since, outcome.error), outcome.after, now)
        if board.limits.declared or board.suspects or record.lane is not None:
            board.freed(record, now)
        if outcome.also is not None:
            for task in outcome.also.adds:
                board.add(task, int(now), now)
        return "ok"

    def _kept_apart(self, outcome: Done, now: float) -> None:
        """A result that is to go before its record."""
        assert outcome.keep_result is not None
        self._board.results.put(outcome.lease.uuid, outcome.result, min(outcome.keep, outcome.keep_result), now)

    def _late(self, lease: Lease) -> Verdict:
        record = self._board.records.get(lease.uuid)
        if record is not None and (record.past.settled, record.past.session) == (lease.fence, lease.session):
            return "repeat"
        return "lost"

    # -- claiming

    def _claim(self, session: Session, ask: Ask, now: float, *, more: bool) -> Claimed:
        if ask.number == session.number:
            tasks, chores = (self._board.held(claim) for claim in session.last)
        else:
            tasks, chores = self._take(session, ask, now)
        rest = resting(self._board, ask.pools, ask.suspects > session.suspects, now)
        fence, woke = session.last[0].fence if tasks or chores else 0, frozenset(self._board.woke)
        due, next_in = self._schedules.due(now), self._next_in(now, rest)
        return Claimed(fence, tasks, chores, due, rest, woke, next_in, more or len(chores) == CHORES, now)

    def _take(self, session: Session, ask: Ask, now: float) -> tuple[list[Record], list[Record]]:
        board = self._board
        claim = self._new_claim(session.name, now)
        aside = self._new_claim(session.name, now, chores=True)
        chores = board.take_chores(aside, CHORES)
        if ask.known is not None:
            chores += take_strays(board, ask.known, aside, CHORES - len(chores), now)
        tasks: list[Record] = []
        for pool in ask.pools:
            taking = Taking(board, pool, claim, ask.suspects - session.suspects, now)
            before = taking.suspects
            tasks += taking.run()
            session.suspects += before - taking.suspects
        session.number, session.last = ask.number, (claim, aside)
        self._keep_claim(claim, aside)
        return tasks, chores

    def _next_in(self, now: float, rest: Mapping[str, float | None]) -> float | None:
        moments = (self._board.next_alarm(), self._sessions.next_death(), self._schedules.next_after(now))
        waits = [wait for wait in rest.values() if wait is not None]
        waits += [max(0.0, moment - now) for moment in moments if moment is not None]
        return min(waits, default=None)

    def _new_claim(self, session: str, now: float, *, chores: bool = False) -> Claim:
        return Claim(self._fence + 1, session, int(now), chores=chores)

    def _keep_claim(self, *claims: Claim) -> int:
        """Claims that took nothing leave no trace, and no number is used up."""
        fence = 0
        for claim in claims:
            if claim.left:
                self._sessions.hold(claim)
                fence = self._fence = claim.fence
        return fence

    def _flag(self, record: Record, why: Why | None = None) -> Record:
        flagged = moved(record, record.state, past_with(record.past, why=why, cancel=True))
        self._board.records[record.uuid] = flagged
        return flagged

    # -- the end of a session

    def _runs(self, session: Session) -> Iterator[tuple[Lease, Record]]:
        for claim in session.claims:
            if not claim.chores:
                for record in self._board.held(claim):
                    yield Lease(record.uuid, claim.fence, session.name), record

    def _reap(self, now: float) -> None:
        for dead in self._sessions.overdue(now):
            self._bury(dead, now)

    def _bury(self, session: Session, now: float) -> None:
        """A suspect that ran alone took the session down; without one, any run may have done it."""
        self._sessions.bury(session.name)
        runs = [record for _, record in self._runs(session)]
        suspects = [record for record in runs if record.suspect]
        self._give_back(session, now, crashes={record.uuid for record in suspects or runs})

    def _give_back(self, session: Session, now: float, crashes: set[str] | None = None) -> None:
        """crashes: those of a dead session that count as such; None: it was closed in order."""
        board = self._board
        held = [(claim, record) for claim in session.claims for record in board.held(claim)]
        for claim, record in held:
            board.let_go(record, claim)
            past = record.past
            if crashes is not None:
                past = crashed(past, record.policy.max_crashes, claim.at, record.uuid in crashes)
            if claim.chores:
                board.wait_to_end(record)
            else:
                board.again(record, past, None, now)
        for _, record in sorted(held, key=lambda each: (each[1].rank, each[1].seq)):
            board.freed(record, now)


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
