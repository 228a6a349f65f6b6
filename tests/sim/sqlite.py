"""The real SQLite store, without threads: nodes share a file, crash between two statements, and lose power."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from onthedot.stores.sqlite.fsync_thread import FsyncThread
from onthedot.stores.sqlite.notifier import DatagramNotifier, SessionNotification
from onthedot.stores.sqlite.presence import Presence
from onthedot.stores.sqlite.reads import ReaderThread, SqliteReads
from onthedot.stores.sqlite.request_thread import Request, RequestThread, answer
from onthedot.stores.sqlite.schema import app_of, connect
from onthedot.stores.sqlite.store import SqliteParts, SqliteStore
from onthedot.stores.sqlite.writer_thread import WriterThread
from tests.sim.clock import SimClock
from tests.sim.fault_store import NETWORK, VERBS, shown
from tests.sim.faults import Faults, NodeFault
from tests.sim.ids import stream
from tests.sim.invariants import ExecutedCall, Report, StoreCheck
from tests.sim.loop import NODE, SimLoop
from tests.sim.loss_check import LossCheck

_CALL: ContextVar[tuple[str, tuple[Any, ...]] | None] = ContextVar("call", default=None)
_FRAME = 24 + 4096  # bytes of a frame in the WAL
_HEADER = 32


class NodeKilled(BaseException):
    """The process died before a statement."""


class CrashingConnection(sqlite3.Connection):
    """Raises before the nth statement, and refuses every later one: so no `finally` clause can write."""

    statements_left: int | None = None  # None: it does not crash

    def _count(self) -> None:
        if self.statements_left is not None:
            self.statements_left -= 1
            if self.statements_left <= 0:
                raise NodeKilled

    def execute(self, *args: Any) -> sqlite3.Cursor:
        self._count()
        return super().execute(*args)

    def executemany(self, *args: Any) -> sqlite3.Cursor:
        self._count()
        return super().executemany(*args)


class SqliteFile:
    """One file, and what its processes would get from the machine."""

    max_skew = 0.0  # the processes of a machine share its clock
    bad_sources: frozenset[str] = frozenset()

    def __init__(
        self, seed: int, loop: SimLoop, clock: SimClock, faults: Faults, parts: Mapping[str, Any], report: Report
    ) -> None:
        """parts: classes instead of `SimWriter`, `SimFsync` and `SimPresence`, by "writer", "fsync" and "presence"."""
        self._parts = parts
        self._folder = Path(tempfile.mkdtemp(prefix="onthedot-sim-"))
        self.path = str(self._folder / "tasks.db")
        self.loop = loop
        self.clock = clock
        self.faults = faults
        self.chance: Random = stream(seed, "disk")
        self.losses: LossCheck = LossCheck()  # none: the file stays
        self.trace: Callable[[str, str], None] | None = None
        self.on_killed: Callable[[str], None] | None = None
        self.notifiers: dict[str, SimNotifier] = {}  # by session
        self.writers: dict[str, SimWriter] = {}  # by process
        self.dead: set[str] = set()
        self.synced: int = 0  # bytes of the WAL
        self.locked_until: float = 0.0  # by another program
        self.sync_delay: float = 0.0  # seconds, while the disk is slow
        self.is_checked: bool = False
        self.loop.run(_open_and_close(self.store_of("setup", clock)))
        self._view = SqliteView(self.path)
        self.check: StoreCheck = StoreCheck(self._view, clock, report)
        self.is_checked = True

    def trace_to(self, trace: Callable[[str, str], None]) -> None:
        self.trace = trace

    def store_of(self, node: str, clock: SimClock) -> Any:
        writer = self._parts.get("writer", SimWriter)
        parts = SqliteParts(partial(writer, self, node), partial(SimReader, self), partial(SimNotifier, self))
        return TracedStore(SqliteStore(self.path, clock, "sim", parts=parts), self, node)

    def kill(self, node: str) -> None:
        """The kernel closes the files of a process that has died; what it has not committed is rolled back."""
        self.dead.add(node)
        writer = self.writers.pop(node, None)
        if writer is not None:
            writer.end_connection()

    def new_fsync(self) -> SimFsync:
        fsync: SimFsync = self._parts.get("fsync", SimFsync)(self)
        return fsync

    def new_presence(self, node: str) -> SimPresence:
        presence: SimPresence = self._parts.get("presence", SimPresence)(self, node)
        return presence

    def apply(self, fault: NodeFault, node: str) -> None:
        match fault.kind:
            case "abort":
                writer = self.writers.get(node)
                if writer is not None:
                    writer.crash_after(1 + int(fault.size * 60))
            case "locked":
                self.locked_until = self.loop.time() + fault.size * 6
            case _:
                self.sync_delay = fault.size * 7
                self.loop.call_as(NETWORK, 1.0, self._speed_up)

    def _speed_up(self) -> None:
        self.sync_delay = 0.0

    def end_faults(self) -> None:
        self.locked_until = 0.0
        self.sync_delay = 0.0
        for writer in self.writers.values():
            writer.crash_after(None)

    def cut_power(self) -> SqliteView:
        """All processes have died, and the WAL ends somewhere after its last fsync."""
        base = Path(self.path)
        data = base.read_bytes()
        wal = Path(f"{self.path}-wal").read_bytes()
        first = max(0, -(-(self.synced - _HEADER) // _FRAME))
        last = max(first, (len(wal) - _HEADER) // _FRAME)
        kept = self.chance.randint(first, last)
        self._view.close()
        for path in self._folder.glob("tasks.db*"):
            if path.is_file():
                path.unlink()
        base.write_bytes(data)
        Path(f"{self.path}-wal").write_bytes(wal[: _HEADER + kept * _FRAME])
        self._view = SqliteView(self.path)
        self.synced = _HEADER + kept * _FRAME
        return self._view

    def close(self) -> None:
        for node in list(self.writers):
            self.kill(node)
        self._view.close()
        shutil.rmtree(self._folder)


async def _open_and_close(store: SqliteStore) -> None:
    await store.open()
    await store.put_limits([])
    await store.close()


class TracedStore:
    """Tells the writer which verb a call is."""

    def __init__(self, inner: SqliteStore, file: SqliteFile, node: str) -> None:
        self._inner = inner
        self._file = file
        self._node = node
        self.traits = inner.traits

    def __getattr__(self, name: str) -> Any:
        if name in VERBS:
            return partial(self._call, name)
        return getattr(self._inner, name)

    async def _call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        token = _CALL.set((verb, args))
        if self._file.trace is not None:
            self._file.trace(self._node, f"{verb}{shown(*args)}")
        try:
            return await getattr(self._inner, verb)(*args, **kwargs)
        finally:
            _CALL.reset(token)


class InlineThread(RequestThread[Any]):
    """Runs requests on the loop, as code of its node."""

    def drive(self, file: SqliteFile) -> None:
        self._file = file
        self._close_pipe()

    def start(self) -> None:
        self._context_node = NODE.get()

    def wake(self) -> None:
        if not self._is_woken and not self._stopping:
            self._is_woken = True
            self._file.loop.call_as(self._context_node, self._file.chance.random() * 0.01, self._drain)

    def _drain(self) -> None:
        left = self._file.locked_until - self._file.loop.time()
        if left > 0 and isinstance(self, WriterThread):
            self._file.loop.call_as(self._context_node, min(left, 0.25), self._drain)
            return
        self._is_woken = False
        try:
            while self._calls:
                self._step()
        except NodeKilled:
            assert self._file.on_killed is not None
            self._file.on_killed(self._context_node)

    async def stop(self) -> None:
        self._drain()
        self._stopping = True
        self.close()

    def watch(self, fd: int) -> None:
        raise AssertionError("a simulated store has no descriptors")


class SimReader(InlineThread, ReaderThread):
    def __init__(self, file: SqliteFile, *args: Any) -> None:
        super().__init__(*args)
        self.drive(file)

    def is_gone(self, process: str) -> bool:
        return process in self._file.dead


class SimWriter(InlineThread, WriterThread):
    def __init__(self, file: SqliteFile, node: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.drive(file)
        self._node = node
        self._fsync = file.new_fsync()
        self._presence = file.new_presence(node)
        self._executed: list[ExecutedCall] = []
        self._connection: CrashingConnection | None = None

    def start(self) -> None:
        super().start()
        self._fsync.start()
        self._file.writers[self._node] = self
        self._tick()

    def _tick(self) -> None:
        """Looks after dead processes, as the thread does without pidfds."""
        if self._stopping:
            return
        self.patience()
        if self._calls:
            self.wake()
        self._file.loop.call_as(self._context_node, 0.5, self._tick)

    def on_joined(self) -> None:
        self._checked_peers = 0.0
        self._calls.append(Request(lambda _: None))
        self.wake()

    # -- of the machine

    def monotonic(self) -> float:
        return self._file.loop.time()

    def connect(self) -> sqlite3.Connection:
        db = connect(self.path, CrashingConnection)
        assert isinstance(db, CrashingConnection)
        self._connection = db
        return db

    @contextmanager
    def _write_lock(self) -> Generator[None]:
        yield  # one step of the loop is one transaction, so no other process is in one

    def crash_after(self, statements: int | None) -> None:
        if self._connection is not None:
            self._connection.statements_left = statements

    def end_connection(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()

    # -- what is executed

    async def ask(self, work: Callable[[Any], Any], **kwargs: Any) -> Any:
        call = _CALL.get()
        if call is not None:
            work = partial(self._recorded, work, *call)
        return await super().ask(work, **kwargs)

    def _recorded(self, work: Callable[[Any], Any], verb: str, args: tuple[Any, ...], tables: Any) -> Any:
        expected: list[bool] = []
        if verb == "turn":
            expected = [tables.find_leased(outcome.lease) is not None for outcome in args[1]]
        result = work(tables)
        self._executed.append(ExecutedCall(verb, args, result, expected))
        return result

    def commit_together(self, tables: Any, calls: Any) -> Any:
        self._executed.clear()
        notifications = super().commit_together(tables, calls)
        if self._file.trace is not None:
            for call in self._executed:
                self._file.trace(self._node, f"{call.verb} committed:{shown(call.result)}")
        if self._file.is_checked:
            self._file.check.committed(self._executed)
        return notifications


class SimFsync(FsyncThread):
    """Syncs after a moment."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self.failed = ""

    def start(self) -> None:
        self._context_node = NODE.get()

    def open(self) -> None:
        pass

    def sync(self, calls: list[Request[Any]]) -> None:
        size = Path(f"{self._file.path}-wal").stat().st_size
        delay = 0.002 + self._file.chance.random() * 0.02 + self._file.sync_delay
        if not calls:
            delay += 0.05
        self._file.loop.call_as(self._context_node, delay, partial(self._synced, size, calls))

    def _synced(self, size: int, calls: list[Request[Any]]) -> None:
        self._file.synced = max(self._file.synced, size)
        answer(calls)

    def disconnect(self) -> None:
        pass

    def after_fork(self) -> None:
        pass

    def end(self) -> None:
        pass


class SimPresence(Presence):
    """The locks of processes, as the kernel would keep them."""

    def __init__(self, file: SqliteFile, node: str) -> None:
        self._file = file
        self.process = node
        self.path = ""  # no file, and no inode: nothing that another program could remove
        self.inode = 0

    def close(self, *, has_sessions: bool) -> None:
        self._file.dead.add(self.process)

    def after_fork(self) -> None:
        pass

    def is_dead(self, process: str) -> bool:
        return process in self._file.dead

    def pidfd(self, process: str) -> int | None:
        return None


class SimNotifier(DatagramNotifier):
    """Hints between processes: late, twice or never."""

    def __init__(self, file: SqliteFile, folder: Path, app: str) -> None:
        super().__init__(folder, app)
        self._file = file

    def add(self, session: str) -> Any:
        self._file.notifiers[session] = self
        return super().add(session)

    def attach(self, watcher: Any) -> None:
        self._writer: SimWriter = watcher

    def _bind(self, session: str) -> None:
        return None

    def sweep(self) -> None:
        pass

    def send_to(self, session: str, message: SessionNotification) -> None:
        for delay in self._file.faults.of_hint():
            self._file.loop.call_as(NETWORK, delay, partial(self._deliver, session, message))

    def _deliver(self, session: str, message: SessionNotification) -> None:
        receiver = self._file.notifiers.get(session)
        if receiver is not None:
            receiver.on_message(session, message)

    def on_message(self, session: str, message: SessionNotification) -> None:
        if message.session_joined:
            self._writer.on_joined()
        if message.has_hint:
            self.notify_session(session, message)


class SqliteView:
    """Reads of a file, answered without suspending."""

    def __init__(self, path: str) -> None:
        self._db = connect(path)
        app = app_of(self._db, "sim")
        self._reads = SqliteReads(self._db, app, lambda _: False)

    def close(self) -> None:
        self._db.close()

    async def changes(self, after: str, limit: int, resolve: int = 0) -> Any:
        return self._reads.changes(after, limit, resolve)

    async def schedules(self) -> Any:
        return self._reads.schedules()

    async def find(self, where: Any, after: str | None, limit: int) -> Any:
        return self._reads.find(where, after, limit)

    async def get(self, uuids: Any) -> Any:
        return self._reads.get(uuids)

    async def counters(self, names: Any) -> Any:
        return self._reads.counters(names)
