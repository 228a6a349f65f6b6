"""The SQLite store: one file, any number of processes of one machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from onthedot.clock.protocol import Clock
from onthedot.clock.system import SystemClock
from onthedot.errors import StoreUnavailable
from onthedot.forks import keep_over_fork, register_fork_hooks
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
    Verdict,
)
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
from onthedot.stores.sqlite.notifier import DatagramNotifier
from onthedot.stores.sqlite.outbox import SqliteOutbox
from onthedot.stores.sqlite.reads import ReaderThread, SqliteReads
from onthedot.stores.sqlite.schema import is_ready
from onthedot.stores.sqlite.tables import SqliteTables
from onthedot.stores.sqlite.transactions import join
from onthedot.stores.sqlite.writer_thread import WriterThread

T = TypeVar("T")


class SqliteParts(NamedTuple):
    """The parts of a store that use threads, locks and sockets; a simulation has others."""

    writer: Callable[..., WriterThread] = WriterThread
    reader: Callable[..., ReaderThread] = ReaderThread
    notifier: Callable[[Path, str], DatagramNotifier] = DatagramNotifier


_PARTS = SqliteParts()


class _Threads(NamedTuple):
    writer: WriterThread
    reader: ReaderThread


class SqliteStore(SqliteOutbox):
    """Several apps may share a file: each sees its own tasks.

    >>> import asyncio, tempfile
    >>> async def life(path: str) -> None:
    ...     store = SqliteStore(path)
    ...     await store.open()
    ...     print(await store.add([NewTask("u1", "email", b"{}")]))
    ...     await store.close()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(life(f"{folder}/onthedot.db"))
    [Added(uuid='u1', fresh=True)]
    """

    traits: StoreTraits = StoreTraits(shared=True, cancel_safe=True)

    def __init__(
        self,
        path: str | Path,
        clock: Clock | None = None,
        name: str = "onthedot",
        *,
        auto_schema: bool = True,
        parts: SqliteParts = _PARTS,
    ) -> None:
        self.path: str = str(Path(path).resolve())  # locks and sockets are beside the file itself, not beside a link
        self._clock = clock or SystemClock()
        self._name = name
        self._auto_schema = auto_schema
        self._parts = parts
        self._notifier = parts.notifier(Path(f"{self.path}-sessions"), name)
        self._lock = threading.Lock()
        self._users = 0
        self._threads: _Threads | None = None
        self._is_torn = False  # it was forked in the middle of a write: this copy cannot be used
        register_fork_hooks(self, store=True)

    # -- open and close: once for every loop that uses it

    async def open(self) -> None:
        if self._is_torn:
            raise StoreUnavailable(
                f"{self.path}: this process was forked while another program held the file; start it afresh (spawn)"
            )
        with self._lock:
            self._users += 1
            self._ensure_started()
        try:
            if not is_ready(self.path, self._name):
                await self._write(lambda _: None)
        except BaseException:
            await self.close()
            raise

    def _ensure_started(self) -> _Threads:
        if self._threads is None:
            writer = self._parts.writer(
                self.path, self._name, self.earliest_now, self._notifier, auto_schema=self._auto_schema
            )
            reader = self._parts.reader(self.path, self._name, self.earliest_now)
            self._notifier.attach(writer)
            writer.start()
            reader.start()
            self._threads = _Threads(writer, reader)
        return self._threads

    async def close(self) -> None:
        with self._lock:
            self._users -= 1
            threads = self._threads
            if self._users or threads is None:
                return
            self._threads = None
        await threads.reader.stop()
        await threads.writer.stop()

    def earliest_now(self) -> float:
        """By the wall clock, which all processes of the file share; a clock that was read at a start is not shared."""
        if self._clock.is_system:
            return time.time_ns() / 1e6
        return self._clock.now() + self._clock.wall_clock_jump()

    def _write(
        self,
        work: Callable[[SqliteTables], T],
        session: str | None = None,
        *,
        at_commit: bool = False,
        is_add: bool = False,
    ) -> Awaitable[T]:
        """at_commit: answered before the fsync, since a worker repeats the call if a power cut reverts it.

        is_add: its caller does not wait for a disk that hangs.
        """
        return self._open_threads.writer.ask(work, caller=session, at_commit=at_commit, is_add=is_add)

    def read(self, work: Callable[[SqliteReads], T]) -> Awaitable[T]:
        """Run work on the reader thread."""
        return self._open_threads.reader.ask(work)

    @property
    def _open_threads(self) -> _Threads:
        if self._threads is None:
            raise StoreUnavailable(f"{self.path} is not open", stored=False)
        return self._threads

    @property
    def writer(self) -> WriterThread:
        """The thread that writes; a seam for tests."""
        return self._open_threads.writer

    # -- tasks

    async def add(self, tasks: Sequence[NewTask], deadline: float | None = None) -> Sequence[Added]:
        """As of now, however long others hold the file: a delay counts from here."""
        now = self.earliest_now()

        def write(tables: SqliteTables) -> list[Added]:
            if deadline is not None and tables.now > deadline:
                raise DeadlinePassed(tables.now)
            tables.now = now
            return insert_rules.add(tables, tasks)

        return await self._write(write, is_add=True)

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        def write(tables: SqliteTables) -> TurnResult:
            return claim_rules.turn(tables, session, outcomes, request)

        return await self._write(write, session, at_commit=request is not None)

    async def note(self, notes: Sequence[Note]) -> Sequence[Lease]:
        return await self._write(lambda tables: journal_rules.note(tables, notes), at_commit=True)

    async def cancel(self, session: str, uuids: Sequence[str], reason: str = "") -> LeasedTasks:
        return await self._write(lambda tables: session_rules.cancel(tables, session, uuids, reason), session)

    async def lift(self, session: str, uuids: Sequence[str]) -> LeasedTasks:
        return await self._write(lambda tables: transfer_rules.lift(tables, session, uuids), session)

    async def adopt(self, records: Sequence[Record]) -> Sequence[Added]:
        return await self._write(lambda tables: [transfer_rules.adopt(tables, record) for record in records])

    async def revive(self, uuids: Sequence[str]) -> Sequence[str]:
        return await self._write(lambda tables: transfer_rules.revive(tables, uuids))

    async def signal(self, signals: Sequence[NewSignal]) -> Sequence[bool]:
        return await self._write(lambda tables: counter_rules.signal(tables, signals))

    # -- sessions

    async def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        def write(tables: SqliteTables) -> HeartbeatResult:
            return session_rules.heartbeat(tables, session, info, lease)

        return await self._write(write, session, at_commit=True)

    async def close_session(self, session: str, *, crashed: bool = False) -> None:
        def write(tables: SqliteTables) -> None:
            session_rules.close_session(tables, session, crashed=crashed)

        await self._write(write, session, at_commit=True)

    async def subscribe(self, session: str, uuids: Sequence[str]) -> None:
        await self._write(lambda tables: session_rules.subscribe(tables, session, uuids), session, at_commit=True)

    def hints(self, session: str) -> Hints:
        return self._notifier.listen(session)

    # -- control

    async def put_schedules(self, schedules: Sequence[Schedule]) -> Sequence[bool]:
        return await self._write(lambda tables: schedule_rules.put_schedules(tables, schedules))

    async def put_limits(self, limits: Sequence[Limit], replaces: Sequence[Limit] = ()) -> bool:
        return await self._write(lambda tables: tables.put_limits(limits, replaces))

    async def fire(self, fires: Sequence[FireRequest]) -> Sequence[bool]:
        return await self._write(lambda tables: [schedule_rules.fire(tables, fire) for fire in fires], at_commit=True)

    async def delete_schedules(self, schedules: Sequence[str]) -> None:
        await self._write(lambda tables: tables.delete_schedules(schedules))

    async def write_series(self, entries: Sequence[SeriesEntry], replaces: Sequence[SeriesEntry] = ()) -> bool:
        series_rules.check(entries, replaces)
        return await self._write(lambda tables: series_rules.write(tables.series, entries, replaces), at_commit=True)

    async def purge(self, limit: int, most: int = 1_000_000) -> int:
        return await self._write(lambda tables: retention_rules.purge(tables, limit, most), at_commit=True)

    # -- reads

    async def get(self, uuids: Sequence[str]) -> Sequence[Record | None]:
        return await self.read(lambda reads: reads.get(uuids))

    async def results(self, uuids: Sequence[str]) -> Sequence[bytes | None]:
        return await self.read(lambda reads: reads.results(uuids))

    async def find(self, where: Mapping[str, str], after: str | None, limit: int) -> Page:
        return await self.read(lambda reads: reads.find(where, after, limit))

    async def notes(
        self, uuid: str, after: int, limit: int, kind: NoteKind | None = None
    ) -> Sequence[tuple[int, Note]]:
        return await self.read(lambda reads: reads.notes(uuid, after, limit, kind))

    async def signals(self, name: str, after: int, limit: int) -> SignalPage:
        return await self.read(lambda reads: reads.signals(name, after, limit))

    async def signal_names(self, limit: int) -> Sequence[str]:
        return await self.read(lambda reads: reads.signal_names(limit))

    async def counters(self, names: Sequence[str]) -> Sequence[Counter]:
        return await self.read(lambda reads: reads.counters(names))

    async def read_series(
        self, series: str, since: int, until: int, limit: int, *, newest_first: bool = False
    ) -> Sequence[SeriesEntry]:
        return await self.read(lambda reads: reads.series.read(series, since, until, limit, newest_first=newest_first))

    async def tally(self) -> Mapping[tuple[str, State], int]:
        return await self.read(lambda reads: reads.tally())

    async def schedules(self) -> Sequence[Schedule]:
        return await self.read(lambda reads: reads.schedules())

    async def limits(self) -> Sequence[Limit]:
        return await self.read(lambda reads: reads.limits())

    async def sessions(self) -> Mapping[str, bytes]:
        return await self.read(lambda reads: reads.sessions())

    async def position(self, uuid: str) -> Position | None:
        return await self.read(lambda reads: reads.position(uuid))

    async def changes(self, after: str, limit: int, resolve: int = 0) -> ChangePage:
        return await self.read(lambda reads: reads.changes(after, limit, resolve))

    # -- inside the caller's transaction

    def add_in(self, connection: object, tasks: Sequence[NewTask]) -> Sequence[Added]:
        """Adds with the caller's commit, or not at all. On the caller's thread, and connection to this file."""
        return self._join(connection, lambda tables: insert_rules.add(tables, tasks))

    def settle_in(self, connection: object, outcome: Outcome) -> Verdict:
        """Settles with the caller's commit. If the answer is not "ok", the caller should roll back."""
        return self._join(connection, lambda tables: tables.settle([outcome])[0])

    def note_in(self, connection: object, note: Note) -> Verdict:
        """Writes to the journal with the caller's commit. If the answer is "lost", the caller should roll back."""
        return self._join(connection, lambda tables: "lost" if journal_rules.note(tables, (note,)) else "ok")

    def limits_in(self, connection: object) -> Sequence[Limit]:
        return self._join(connection, lambda tables: tables.limits.records())

    def _join(self, connection: object, work: Callable[[SqliteTables], T]) -> T:
        answer, call = join(connection, self.path, self._name, self.earliest_now(), work, auto_schema=self._auto_schema)
        with self._lock:
            threads = self._ensure_started()  # the next open finds them started
        threads.writer.await_commit(call)
        return answer

    # -- around a fork

    def before_fork(self) -> None:
        """No thread has a connection or holds a lock."""
        paused = [thread.pause() for thread in self._threads or ()]
        self._is_torn = not all(paused)

    def after_fork_in_parent(self) -> None:
        for thread in self._threads or ():
            thread.resume()
        self._is_torn = False

    def after_fork(self) -> None:
        """Threads, locks and sockets are the parent's; the connections were closed before the fork."""
        self._lock = threading.Lock()
        self._notifier.after_fork()
        self._notifier = self._parts.notifier(self._notifier.folder, self._name)
        if self._threads is not None:
            for thread in self._threads:
                thread.after_fork()
            keep_over_fork(self._threads)
        self._users = 0
        self._threads = None
