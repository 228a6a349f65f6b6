"""The SQLite store: one file, any number of processes of one machine."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from onthedot.clock.protocol import Clock
from onthedot.clock.system import SystemClock
from onthedot.errors import StoreUnavailable
from onthedot.forks import keep_over_fork, register_fork_hooks
from onthedot.stores.contract import (
    Added,
    ChangePage,
    ClaimRequest,
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
    Record,
    Schedule,
    State,
    StoreTraits,
    TurnResult,
    Verdict,
)
from onthedot.stores.rules.records import ENDED
from onthedot.stores.sqlite import journal, schedules as schedule_rules, sessions
from onthedot.stores.sqlite.claim import SqlitePicker
from onthedot.stores.sqlite.notifier import DatagramNotifier
from onthedot.stores.sqlite.reader_thread import ReaderThread
from onthedot.stores.sqlite.reads import SqliteReads
from onthedot.stores.sqlite.schema import is_ready
from onthedot.stores.sqlite.settle import SettleBatch
from onthedot.stores.sqlite.tables import SqliteTables
from onthedot.stores.sqlite.transactions import join
from onthedot.stores.sqlite.writer_thread import WriterThread

T = TypeVar("T")


class SqliteStore:
    """Several apps may share a file: each sees its own tasks.

    >>> import asyncio, tempfile
    >>> async def life(path: str) -> None:
    ...     store = SqliteStore(path)
    ...     await store.open()
    ...     print(await store.add([NewTask("u1", "email", b"{}")]))
    ...     await store.shut()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(life(f"{folder}/onthedot.db"))
    [Added(uuid='u1', fresh=True)]
    """

    traits: StoreTraits = StoreTraits(shared=True)

    def __init__(
        self, path: str | Path, clock: Clock | None = None, name: str = "onthedot", *, auto_schema: bool = True
    ) -> None:
        self.path: str = str(Path(path).resolve())  # locks and sockets are beside the file itself, not beside a link
        self._clock = clock or SystemClock()
        self._name = name
        self._auto_schema = auto_schema
        self._ears = DatagramNotifier(Path(f"{self.path}-sessions"), name)
        self._lock = threading.Lock()
        self._users = 0
        self._desks: tuple[WriterThread, ReaderThread] | None = None
        self._torn = False  # by a fork in the middle of a write: this copy is of no use
        register_fork_hooks(self, store=True)

    # -- open and shut: once for every loop that uses it

    async def open(self) -> None:
        if self._torn:
            raise StoreUnavailable(
                f"{self.path}: this process was forked while another program held the file; start it afresh (spawn)"
            )
        with self._lock:
            self._users += 1
            if self._desks is None:
                self._desks = self._start()
        try:
            if not is_ready(self.path, self._name):
                await self._write(lambda _: None)
        except BaseException:
            await self.close()
            raise

    def _start(self) -> tuple[WriterThread, ReaderThread]:
        writer = WriterThread(self.path, self._name, self._now, self._ears, auto_schema=self._auto_schema)
        reader = ReaderThread(self.path, self._name)
        self._ears.watch, self._ears.unwatch = writer.watch, writer.unwatch
        for fd in self._ears.fds():
            writer.watch(fd)
        writer.start()
        reader.start()
        return writer, reader

    async def close(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users or self._desks is None:
                return
            (writer, reader), self._desks = self._desks, None
        await reader.stop()
        await writer.stop()

    def _now(self) -> float:
        """By the wall clock, after a jump of it too: it is the one that all processes of the file share."""
        return self._clock.now() + self._clock.wall_clock_jump()

    async def _write(self, work: Callable[[SqliteTables], T], session: str | None = None, *, early: bool = False) -> T:
        """Early: what a worker does by itself, and does again if a power cut takes it back."""

        def call(tables: SqliteTables) -> T:
            tables.told.but = session
            return work(tables)

        return await self._open_desks[0].ask(call, early=early)

    async def read(self, work: Callable[[SqliteReads, float], T]) -> T:
        """Runs work on the reader thread."""
        return await self._open_desks[1].ask(lambda looking: work(looking, self._now()))

    @property
    def _open_desks(self) -> tuple[WriterThread, ReaderThread]:
        if self._desks is None:
            raise StoreUnavailable(f"{self.path} is not open")
        return self._desks

    @property
    def _owner(self) -> str:
        return self._open_desks[0].presence.owner

    # -- tasks

    async def add(self, tasks: Sequence[NewTask]) -> Sequence[Added]:
        """As of this moment, however long others hold the file: a delay counts from here."""
        now = self._now()

        def write(tables: SqliteTables) -> list[Added]:
            tables.now = now
            return tables.add(tasks)

        return await self._write(write)

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        claims = request is not None
        return await self._write(lambda tables: _turn(tables, session, outcomes, request), session, early=claims)

    async def note(self, notes: Sequence[Note]) -> Sequence[Lease]:
        return await self._write(lambda tables: journal.note(tables, notes), early=True)

    async def cancel(self, session: str, uuids: Sequence[str], reason: str = "") -> LeasedTasks:
        return await self._write(lambda tables: sessions.cancel(tables, session, uuids, reason, self._owner), session)

    async def lift(self, session: str, uuids: Sequence[str]) -> LeasedTasks:
        return await self._write(lambda tables: sessions.lift(tables, session, uuids, self._owner), session)

    async def adopt(self, records: Sequence[Record]) -> Sequence[Added]:
        return await self._write(lambda tables: [tables.adopt(record) for record in records])

    async def revive(self, uuids: Sequence[str]) -> Sequence[str]:
        def write(tables: SqliteTables) -> list[str]:
            live: list[str] = []
            for uuid in uuids:
                record = tables.by_uuid(uuid)
                if record is None or record.state == "succeeded":
                    continue
                if record.state not in ENDED or tables.revive(record):
                    live.append(uuid)
            return live

        return await self._write(write)

    # -- sessions

    async def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        def write(tables: SqliteTables) -> HeartbeatResult:
            return sessions.heartbeat(tables, session, info, lease, self._owner)

        return await self._write(write, session, early=True)

    async def close_session(self, session: str, *, crashed: bool = False) -> None:
        end = sessions.crash if crashed else sessions.close
        await self._write(lambda tables: end(tables, session), session, early=True)

    def hints(self, session: str) -> Hints:
        return self._ears.listen(session)

    # -- control

    async def put_schedules(self, schedules: Sequence[Schedule]) -> Sequence[bool]:
        return await self._write(lambda tables: schedule_rules.put_schedules(tables, schedules))

    async def put_limits(self, limits: Sequence[Limit]) -> None:
        await self._write(lambda tables: schedule_rules.put_limits(tables, limits))

    async def fire(self, fires: Sequence[FireRequest]) -> Sequence[bool]:
        return await self._write(lambda tables: [schedule_rules.fire(tables, fire) for fire in fires], early=True)

    async def delete_schedules(self, schedules: Sequence[str]) -> None:
        await self._write(lambda tables: schedule_rules.drop(tables, schedules))

    async def purge(self, limit: int, most: int = 1_000_000) -> int:
        return await self._write(lambda tables: schedule_rules.purge(tables, limit, most), early=True)

    # -- looking

    async def get(self, uuids: Sequence[str]) -> Sequence[Record | None]:
        return await self.read(lambda looking, now: looking.get(uuids, now))

    async def find(self, where: Mapping[str, str], after: str | None, limit: int) -> Page:
        return await self.read(lambda looking, now: looking.find(where, after, limit, now))

    async def notes(self, uuid: str, after: int, limit: int) -> Sequence[tuple[int, Note]]:
        return await self.read(lambda looking, _: looking.notes(uuid, after, limit))

    async def tally(self) -> Mapping[tuple[str, State], int]:
        return await self.read(lambda looking, _: looking.tally())

    async def schedules(self) -> Sequence[Schedule]:
        return await self.read(lambda reads, _: reads.schedules())

    async def limits(self) -> Sequence[Limit]:
        return await self.read(lambda reads, _: reads.limits())

    async def sessions(self) -> Mapping[str, bytes]:
        return await self.read(lambda reads, now: reads.sessions(now))

    async def position(self, uuid: str) -> Position | None:
        return await self.read(lambda looking, now: looking.position(uuid, now))

    async def changes(self, after: str, limit: int) -> ChangePage:
        return await self.read(lambda looking, _: looking.changes(after, limit))

    # -- inside the caller's transaction

    def add_in(self, connection: sqlite3.Connection, tasks: Sequence[NewTask]) -> Sequence[Added]:
        """Adds with the caller's commit, or not at all. On the caller's thread, and connection to this file."""
        return self._join(connection, lambda tables: tables.add(tasks))

    def settle_in(self, connection: sqlite3.Connection, outcome: Outcome) -> Verdict:
        """Settles with the caller's commit. If the answer is not "ok", the caller should roll back."""
        return self._join(connection, lambda tables: SettleBatch(tables).run([outcome])[0])

    def _join(self, connection: sqlite3.Connection, work: Callable[[SqliteTables], T]) -> T:
        answer, told, number = join(connection, self.path, self._name, self._now(), work)
        with self._lock:
            if self._desks is None:  # whoever opens it finds it started
                self._desks = self._start()
        self._desks[0].await_commit(number, told)
        return answer

    # -- around a fork

    def before_fork(self) -> None:
        rested = [desk.pause() for desk in self._desks or ()]
        self._torn = not all(rested)

    def after_fork_in_parent(self) -> None:
        for desk in self._desks or ():
            desk.resume()
        self._torn = False

    def after_fork(self) -> None:
        """Threads, locks and sockets are the parent's; the connections were closed before."""
        self._lock = threading.Lock()
        self._ears.after_fork()
        self._ears = DatagramNotifier(self._ears.folder, self._name)
        if self._desks is not None:
            for desk in self._desks:
                desk.after_fork()
            keep_over_fork(self._desks)
        self._users, self._desks = 0, None


def _turn(tables: SqliteTables, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
    verdicts = SettleBatch(tables).run(outcomes) if outcomes else []
    if request is None:
        return TurnResult(verdicts, alive=sessions.worker(tables, session) is not None)
    sessions.reap_overdue(tables)
    holder = sessions.worker(tables, session)
    if holder is None:
        return TurnResult(verdicts, alive=False)
    more = not (tables.refill_lanes() & tables.promote())
    claiming = SqlitePicker(tables, holder, request)
    if request.number == holder.number:
        tasks, chores = claiming.repeat_claim()
    elif request.number == tables.asked.get(session):
        tasks, chores = [], []
    else:
        tasks, chores = claiming.take()
        tables.asked[session] = request.number
    return TurnResult(verdicts, claiming.claimed(tasks, chores, more=more))
