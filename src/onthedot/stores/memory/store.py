"""The memory store: the reference of what the contract means."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from onthedot.clock.protocol import Clock
from onthedot.clock.system import SystemClock
from onthedot.forks import register_fork_hooks
from onthedot.model.uuid7 import new_uuid
from onthedot.stores.contract import (
    Added,
    ChangePage,
    ClaimRequest,
    Counter,
    DeadlinePassed,
    FireRequest,
    HeartbeatResult,
    Hints,
    Lease,
    LeasedTasks,
    Limit,
    NewSignal,
    NewTask,
    Note,
    NoteKind,
    Outcome,
    Page,
    Position,
    Record,
    Schedule,
    SeriesEntry,
    SignalPage,
    State,
    StoreTraits,
    TurnResult,
)
from onthedot.stores.hint_streams import HintHub
from onthedot.stores.memory import reads
from onthedot.stores.memory.change_log import ChangeLog
from onthedot.stores.memory.outbox import MemoryOutbox
from onthedot.stores.memory.tables import MemoryTables
from onthedot.stores.rules import (
    claim as claim_rules,
    counters as counter_rules,
    insert as insert_rules,
    journal as journal_rules,
    retention as retention_rules,
    schedules as schedule_rules,
    series as series_rules,
    sessions as session_rules,
    transfer as transfer_rules,
)
from onthedot.stores.rules.notifications import Notifications


class MemoryStore(MemoryOutbox):
    """Dicts and queues under one lock. It ends with its process and may be called from any thread.

    >>> import asyncio
    >>> store = MemoryStore()
    >>> asyncio.run(store.add([NewTask("u1", "email", b"{}")]))
    [Added(uuid='u1', fresh=True)]
    """

    traits: StoreTraits = StoreTraits(shared=False, synchronous=True, cancel_safe=True)

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._tables = MemoryTables(new_uuid(), self._clock.wall_clock_jump)
        self._changes = ChangeLog()
        self._hints = HintHub()
        register_fork_hooks(self, store=True)

    # Around a fork: the child gets a copy that no thread is changing.

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork(self) -> None:
        self._lock = threading.Lock()

    async def open(self) -> None:
        pass  # it needs no connection

    async def close(self) -> None:
        pass  # its tasks are kept for the next start

    # -- tasks

    def earliest_now(self) -> float:
        return self._clock.now()

    async def add(self, tasks: Sequence[NewTask], deadline: float | None = None) -> Sequence[Added]:
        with self._call() as tables:
            if deadline is not None and tables.now > deadline:
                raise DeadlinePassed(tables.now)
            return insert_rules.add(tables, tasks)

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        with self._call(session) as tables:
            return claim_rules.turn(tables, session, outcomes, request)

    async def note(self, notes: Sequence[Note]) -> Sequence[Lease]:
        with self._call() as tables:
            return journal_rules.note(tables, notes)

    async def cancel(self, session: str, uuids: Sequence[str], reason: str = "") -> LeasedTasks:
        with self._call(session) as tables:
            return session_rules.cancel(tables, session, uuids, reason)

    async def lift(self, session: str, uuids: Sequence[str]) -> LeasedTasks:
        with self._call(session) as tables:
            return transfer_rules.lift(tables, session, uuids)

    async def adopt(self, records: Sequence[Record]) -> Sequence[Added]:
        with self._call() as tables:
            return [transfer_rules.adopt(tables, record) for record in records]

    async def revive(self, uuids: Sequence[str]) -> Sequence[str]:
        with self._call() as tables:
            return transfer_rules.revive(tables, uuids)

    async def signal(self, signals: Sequence[NewSignal]) -> Sequence[bool]:
        with self._call() as tables:
            return counter_rules.signal(tables, signals)

    # -- sessions

    async def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        with self._call(session) as tables:
            return session_rules.heartbeat(tables, session, info, lease)

    async def close_session(self, session: str, *, crashed: bool = False) -> None:
        with self._call(session) as tables:
            session_rules.close_session(tables, session, crashed=crashed)

    async def subscribe(self, session: str, uuids: Sequence[str]) -> None:
        with self._call(session) as tables:
            session_rules.subscribe(tables, session, uuids)

    def hints(self, session: str) -> Hints:
        return self._hints.listen(session)

    # -- control

    async def put_schedules(self, schedules: Sequence[Schedule]) -> Sequence[bool]:
        with self._call() as tables:
            return schedule_rules.put_schedules(tables, schedules)

    async def put_limits(self, limits: Sequence[Limit], replaces: Sequence[Limit] = ()) -> bool:
        with self._call() as tables:
            if not tables.limits.are_stored(replaces):
                return False
            for limit in limits:
                if tables.limits.put(limit):
                    tables.limits.recheck(limit, tables.now)
                    tables.notifications.woken.add(limit.name.partition("/")[0])
            return True

    async def fire(self, fires: Sequence[FireRequest]) -> Sequence[bool]:
        with self._call() as tables:
            return [schedule_rules.fire(tables, fire) for fire in fires]

    async def delete_schedules(self, schedules: Sequence[str]) -> None:
        with self._call() as tables:
            tables.delete_schedules(schedules)

    async def write_series(self, entries: Sequence[SeriesEntry], replaces: Sequence[SeriesEntry] = ()) -> bool:
        series_rules.check(entries, replaces)
        with self._call() as tables:
            return series_rules.write(tables.series, entries, replaces)

    async def purge(self, limit: int, most: int = 1_000_000) -> int:
        with self._call() as tables:
            return retention_rules.purge(tables, limit, most)

    # -- reads

    async def get(self, uuids: Sequence[str]) -> Sequence[Record | None]:
        with self._lock:
            now = self._clock.now()
            found = [self._tables.load(uuid) for uuid in uuids]
            return [None if record is None else self._tables.as_seen(record, now) for record in found]

    async def results(self, uuids: Sequence[str]) -> Sequence[bytes | None]:
        with self._lock:
            now = self._clock.now()
            found = map(self._tables.records.get, uuids)
            return [
                None if record is None or record.state != "succeeded" else self._tables.result(record, now)
                for record in found
            ]

    async def find(self, where: Mapping[str, str], after: str | None, limit: int) -> Page:
        with self._lock:
            return reads.find(self._tables, where, after, limit, self._clock.now())

    async def notes(
        self, uuid: str, after: int, limit: int, kind: NoteKind | None = None
    ) -> Sequence[tuple[int, Note]]:
        with self._lock:
            record = self._tables.load(uuid)
            return [] if record is None else self._tables.read_notes(record.seq, after, limit, kind)

    async def signals(self, name: str, after: int, limit: int) -> SignalPage:
        with self._lock:
            kept = self._tables.signals.kept(name, self._clock.now())
            value = self._tables.counters.get(name).value
            return SignalPage(value, [signal for signal in kept if signal.number > after][:limit])

    async def signal_names(self, limit: int) -> Sequence[str]:
        with self._lock:
            return self._tables.signals.names(limit, self._clock.now())

    async def counters(self, names: Sequence[str]) -> Sequence[Counter]:
        with self._lock:
            return [self._tables.counters.get(name) for name in names]

    async def read_series(
        self, series: str, since: int, until: int, limit: int, *, newest_first: bool = False
    ) -> Sequence[SeriesEntry]:
        with self._lock:
            return self._tables.series.read(series, since, until, limit, newest_first=newest_first)

    async def tally(self) -> Mapping[tuple[str, State], int]:
        with self._lock:
            tally = self._tables.tally.items()
            return {(source, state): count for source, counts in tally for state, count in counts.items() if count}

    async def schedules(self) -> Sequence[Schedule]:
        with self._lock:
            return self._tables.all_schedules()

    async def limits(self) -> Sequence[Limit]:
        with self._lock:
            return self._tables.limits.all()

    async def sessions(self) -> Mapping[str, bytes]:
        with self._lock:
            return self._tables.infos(self._clock.now())

    async def position(self, uuid: str) -> Position | None:
        with self._lock:
            return reads.position(self._tables, uuid, self._clock.now())

    async def changes(self, after: str, limit: int, resolve: int = 0) -> ChangePage:
        with self._lock:
            return self._changes.read(after, limit, resolve)

    # -- one call: its transitions are logged, and the other sessions get hints

    def _call(self, session: str | None = None) -> _Call:
        return _Call(self, session)

    def _begin(self, session: str | None) -> MemoryTables:
        self._lock.acquire()
        tables = self._tables
        tables.now = self._clock.now()
        tables.notifications.caller = session
        return tables

    def _end(self) -> None:
        """Also after a call that failed half-way: what it has changed remains."""
        try:
            tables = self._tables
            if tables.changes:
                self._changes.write(tables.now, tables.changes)
                tables.changes.clear()
            if tables.notifications:
                self._send(tables.notifications)
                tables.notifications.clear()
        finally:
            self._lock.release()

    def _send(self, notifications: Notifications) -> None:
        sources = notifications.woken | notifications.alarmed
        recheck = notifications.recheck or notifications.wait_over
        if self._hints and (sources or recheck):
            for worker in self._tables.workers():
                if worker != notifications.caller:
                    self._hints.notify(worker, sources, recheck=recheck)
        for session, uuid, reason in notifications.cancel_requests:
            self._hints.notify(session, cancel_requests={uuid: reason})
        for session, uuids in notifications.ended.items():
            self._hints.notify(session, ended=uuids)
        for session, uuids in notifications.new_items.items():
            self._hints.notify(session, new_items=uuids)
        if notifications.events:
            for session in self._tables.events.members():
                if session != notifications.caller:
                    self._hints.notify(session, events=True)


class _Call:
    """``with store._call() as tables``. A class: it is around every call, and a generator costs three times as much."""

    __slots__ = ("_session", "_store")

    def __init__(self, store: MemoryStore, session: str | None) -> None:
        self._store = store
        self._session = session

    def __enter__(self) -> MemoryTables:
        return self._store._begin(self._session)

    def __exit__(self, *exc: object) -> None:
        self._store._end()
