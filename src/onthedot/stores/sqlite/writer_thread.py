"""The writer: all queued requests form one transaction, and then one fsync (fsync_thread.py).

Before SQLite's own lock it takes an ``flock`` on ``<db>-write``: the kernel wakes the next process at once, while
SQLite's busy handler sleeps. The WAL is checkpointed only under that lock: SQLite before 3.51.3 can lose a WAL that is
reset while another connection checkpoints.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from onthedot.errors import StoreError, StoreUnavailable
from onthedot.stores.rules.notifications import Notifications
from onthedot.stores.rules.sessions import close_session, reap_session
from onthedot.stores.sqlite.claim_numbers import ClaimNumbers
from onthedot.stores.sqlite.errors import is_busy, translate
from onthedot.stores.sqlite.files import create_folder, open_side_file, side_mode
from onthedot.stores.sqlite.fsync_thread import FsyncThread
from onthedot.stores.sqlite.joined_calls import JoinedCall, JoinedCalls
from onthedot.stores.sqlite.notifier import DatagramNotifier
from onthedot.stores.sqlite.presence import Presence
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.request_thread import Request, RequestThread, answer, inode
from onthedot.stores.sqlite.rows import UndecodableRow
from onthedot.stores.sqlite.schema import BUSY_MS, app_of, connect, is_ready, prepare
from onthedot.stores.sqlite.tables import SqliteTables
from onthedot.stores.sqlite.undecodable import isolate

_CHECKPOINT = 4 << 20  # bytes of WAL
_TRUNCATE = 8 << 20
_STEP = 1 << 20


class WriterThread(RequestThread[SqliteTables]):
    def __init__(
        self, path: str, name: str, now: Callable[[], float], notifier: DatagramNotifier, *, auto_schema: bool
    ) -> None:
        super().__init__("onthedot-sqlite-writer", path)
        self._notifier = notifier
        self._presence: Presence | None = None
        self._has_sessions = True  # this process may have sessions in the file
        self._workers: list[str] = []
        self._members: list[str] = []  # sessions that relay or read events
        self._peers: dict[str, int | None] = {}  # other processes → pidfd, where there is one
        self._known_control = -1  # the control number whose sessions are known
        self._checked_peers = 0.0
        self._joined = JoinedCalls()
        self._name = name
        self._now = now
        self._auto_schema = auto_schema
        self._lock_fd = -1
        self._lock_inode = 0
        self.tables: SqliteTables | None = None
        self._claim_numbers = ClaimNumbers()
        self._fsync = FsyncThread(path)
        self._changes = 0
        self._inode = 0
        self._wal = Path(f"{path}-wal")
        self._checkpoint_at = _CHECKPOINT

    # -- of the machine; a simulation has others

    def monotonic(self) -> float:
        return time.monotonic()

    def connect(self) -> sqlite3.Connection:
        return connect(self.path)

    # -- one transaction

    def work(self, calls: list[Request[SqliteTables]]) -> None:
        notifications: list[Notifications] = []
        taken: list[Request[SqliteTables]] = []
        try:
            with self._write_lock():
                calls = self.reap_dead_peers() + calls  # their tasks can be claimed by the calls that follow
                tables = self._begin(calls)
                taken = [call for call in calls if call.take()]
                notifications = self._commit(tables, taken)
                if tables.control != self._known_control:
                    self._update_peers(tables)
        except Exception as error:  # noqa: BLE001 - it is the answer of the calls
            if not taken:
                taken = [call for call in calls if call.take()]
                self._fail(taken, error)
        answer(self._sync(taken))
        self._notifier.publish(notifications, self._workers, self._members)
        if self.tables is not None:
            self._checkpoint(self.tables.db)

    def _sync(self, calls: list[Request[SqliteTables]]) -> list[Request[SqliteTables]]:
        """Pass the calls that need durability to the fsync thread; return the others.

        A call that wrote nothing waits, too: what it reports as existing may not be synced yet.
        """
        if self.tables is None:
            return calls
        now: list[Request[SqliteTables]] = []
        later: list[Request[SqliteTables]] = []
        for call in calls:
            if call.at_commit or call.error is not None:
                now.append(call)
            else:
                later.append(call)
        changes = self.tables.db.total_changes
        if later or changes != self._changes:
            if self._fsync.failed:
                self._recover_after_failed_sync(self.tables.db)
            self._fsync.sync(later)
        self._changes = changes
        return now

    def _recover_after_failed_sync(self, db: sqlite3.Connection) -> None:
        """After a failed fsync, parts of the WAL may be lost: it is safe when the database itself has everything."""
        with suppress(sqlite3.Error), self._write_lock():
            busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._fsync.failed = self._fsync.failed if busy else ""

    def _fail(self, calls: list[Request[SqliteTables]], error: Exception) -> None:
        for call in calls:
            call.error = translate(error, self.path)

    def _begin(self, calls: list[Request[SqliteTables]]) -> SqliteTables:
        """Wait for another program's lock as long as a call waits."""
        while True:
            try:
                tables = self._opened()
                tables.db.execute("BEGIN IMMEDIATE")
                return tables
            except sqlite3.OperationalError as error:
                if not is_busy(error) or not any(call.waits for call in calls):
                    raise

    def _commit(self, tables: SqliteTables, calls: list[Request[SqliteTables]]) -> list[Notifications]:
        """All in one transaction; if one call fails, nothing has happened, and each call gets its own."""
        try:
            return self.commit_together(tables, calls)
        except Exception as error:  # noqa: BLE001 - it is the answer of the calls
            if len(calls) == 1 and not isinstance(error, UndecodableRow):  # a call that meets such a row is repeated
                self._fail(calls, error)
                return []
        notifications: list[Notifications] = []
        for call in calls:
            try:
                tables.db.execute("BEGIN IMMEDIATE")
                notifications += self._commit_readable(tables, [call])
            except Exception as error:  # noqa: BLE001 - it is the answer of the call
                self._fail([call], error)
        return notifications

    def _commit_readable(self, tables: SqliteTables, calls: list[Request[SqliteTables]]) -> list[Notifications]:
        """A task that cannot be read becomes a chore; then the calls are repeated."""
        isolated: list[Notifications] = []
        while True:
            try:
                return isolated + self.commit_together(tables, calls)
            except UndecodableRow as found:
                tables.db.execute("BEGIN IMMEDIATE")
                isolated += self.commit_together(tables, [Request(partial(isolate, seq=found.seq))])
                tables.db.execute("BEGIN IMMEDIATE")

    def commit_together(self, tables: SqliteTables, calls: list[Request[SqliteTables]]) -> list[Notifications]:
        notifications: list[Notifications] = []
        try:
            tables.begin()
            for call in calls:
                tables.start_call(self._now(), call.caller)
                call.answer = call.work(tables)
                notifications.append(tables.end_call())
            tables.flush()
            tables.commit()
        except BaseException:
            tables.rollback()
            self._known_control = -1  # what it has read of the sessions is not committed
            raise
        return notifications

    # -- what is written in a caller's transaction

    def await_commit(self, call: JoinedCall) -> None:
        """From any thread: send the notifications of a joined call when its transaction is committed."""
        self._joined.append(call, self.monotonic())
        self.wake()

    def _publish_joined(self, tables: SqliteTables) -> None:
        committed = self._joined.pop_committed(tables, self.monotonic())
        if committed:
            self._update_peers(tables)  # this process may not have written anything yet
        self._notifier.publish(committed, self._workers, self._members)

    # -- other processes

    def _update_peers(self, tables: SqliteTables) -> None:
        """The sessions have changed: to which to send, and which processes to watch."""
        self._known_control = tables.control
        rows = tables.db.execute(SQL["sessions"], (tables.app,)).fetchall()
        self._workers = [name for name, _, role in rows if role == "worker"]
        self._members = [name for (name,) in tables.db.execute(SQL["members"], (tables.app,))]
        processes = {process for _, process, _ in rows} - {self.presence.process}
        ended = self._peers.keys() - processes
        for process in ended:
            self._close_pidfd(process)
            del self._peers[process]
        if ended:
            self._notifier.resync()  # a process that died after a commit may not have sent its hints
        for process in processes - self._peers.keys():
            pidfd = self._peers[process] = self.presence.pidfd(process)
            if pidfd is not None:
                self.watch(pidfd)
        self._checked_peers = 0.0

    def reap_dead_peers(self) -> list[Request[SqliteTables]]:
        """Requests that reap the sessions of dead processes: checked after a sign of a death, and every second."""
        now = self.monotonic()
        if not self._peers or now - self._checked_peers < 1:
            return []
        self._checked_peers = now
        dead = [process for process in self._peers if self.presence.is_dead(process)]
        return [Request(partial(_reap_process, process=process)) for process in dead]

    def _close_pidfd(self, process: str) -> None:
        pidfd = self._peers[process]
        if pidfd is not None:
            self._peers[process] = None
            self.unwatch(pidfd)
            os.close(pidfd)

    def on_readable(self, fd: int) -> None:
        ended = [process for process, pidfd in self._peers.items() if pidfd == fd]
        for process in ended:
            self._close_pidfd(process)  # without one it is checked again and again, until it is reaped
        if not ended and not self._notifier.receive(fd):
            return
        self._checked_peers = 0.0
        self._calls.append(Request(lambda _: None))

    def patience(self) -> float | None:
        if self._joined and (self.tables is not None or is_ready(self.path, self._name)):  # the caller may make it so
            with suppress(sqlite3.Error):  # another program may hold the file: this is repeated
                self._publish_joined(self._opened())
        if self._notifier.send() or self._joined:
            return 20
        if None not in self._peers.values():
            return None
        if self.monotonic() - self._checked_peers >= 0.1:
            self._checked_peers = 0.0
            self._calls.append(Request(lambda _: None))
        return 100

    # -- the files

    @property
    def app(self) -> int:
        if self.tables is None:
            raise StoreUnavailable(f"{self.path} is not open")
        return self.tables.app

    def _opened(self) -> SqliteTables:
        if self.tables is not None:
            if inode(self.path) == self._inode:
                if self._presence is not None and inode(self._presence.path) != self._presence.inode:
                    self._restore_side_files()
                return self.tables
            self._leave_replaced_file()
            raise StoreUnavailable(
                f"{self.path} was deleted or replaced while it was open; tasks in it are gone, a new one is made next",
                stored=False,
            )
        db = self.connect()
        try:
            prepare(db, self.path, auto=self._auto_schema)
            db.execute("PRAGMA synchronous = NORMAL")  # the fsync thread syncs
            tables = SqliteTables(db, app_of(db, self._name), self._claim_numbers)
            if self._presence is None:
                mode = side_mode(self.path)
                create_folder(self._notifier.folder, mode)
                self._presence = Presence(self._notifier.folder, mode)
            self._fsync.open()
        except BaseException:
            db.close()
            raise
        self._inode = inode(self.path)
        self._notifier.sweep()
        self._known_control = -1
        tables.process = self.presence.process
        self.tables = tables
        self._changes = db.total_changes
        return tables

    def _restore_side_files(self) -> None:
        """Another program has removed them. Other processes see from the pid that this one lives."""
        create_folder(self._notifier.folder, side_mode(self.path))
        self.presence.restore()
        self._notifier.restore()

    @property
    def presence(self) -> Presence:
        if self._presence is None:
            raise StoreUnavailable(f"{self.path} is not open")
        return self._presence

    def disconnect(self) -> None:
        """Before a fork: the connection is closed, the presence stays."""
        self._fsync.disconnect()
        if self.tables is not None:
            self.tables.db.close()
            self.tables = None

    def start(self) -> None:
        self._fsync.start()
        super().start()

    def _run(self) -> None:
        super()._run()
        self._fsync.end()

    async def stop(self) -> None:
        if self._presence is not None:
            with suppress(StoreError):  # then the other processes reap the sessions
                await self.ask(partial(_close_process, process=self.presence.process), at_commit=True)
                self._has_sessions = False
        await super().stop()

    def close(self) -> None:
        presence = self._presence
        self._presence = None
        self._leave_replaced_file()
        if presence is not None:
            presence.close(has_sessions=self._has_sessions)

    def _leave_replaced_file(self) -> None:
        """The presence stays: the new file may be an older copy that knows the sessions of this process."""
        self.disconnect()
        for process in self._peers:
            self._close_pidfd(process)
        self._peers.clear()
        self._notifier.clear()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def after_fork(self) -> None:
        super().after_fork()
        self._fsync.after_fork()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
        if self._presence is not None:
            self._presence.after_fork()
            for pidfd in self._peers.values():
                if pidfd is not None:
                    os.close(pidfd)

    @contextmanager
    def _write_lock(self) -> Generator[None]:
        path = f"{self.path}-write"
        while True:
            if self._lock_fd < 0:
                self._lock_fd = open_side_file(Path(path), side_mode(self.path))
                self._lock_inode = os.fstat(self._lock_fd).st_ino
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
            if inode(path) == self._lock_inode:
                break
            os.close(self._lock_fd)  # it was removed: other processes use another file
            self._lock_fd = -1
        try:
            yield
        finally:
            if self._lock_fd >= 0:
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def _checkpoint(self, db: sqlite3.Connection) -> None:
        """A WAL that was copied completely is overwritten from its start; it is truncated only if it is too long."""
        try:
            size = self._wal.stat().st_size
        except FileNotFoundError:
            return
        if size < self._checkpoint_at:
            return
        mode = "TRUNCATE" if size >= _TRUNCATE else "PASSIVE"
        busy = True
        db.execute("PRAGMA busy_timeout = 20")  # for a reader that blocks it
        # Nothing is lost if this fails; a full disk is reported by the next write.
        with suppress(sqlite3.Error), self._write_lock():
            busy, _, _ = db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        if busy:
            self._checkpoint_at = size + _STEP
        elif mode == "TRUNCATE":
            self._checkpoint_at = _CHECKPOINT
        else:
            self._checkpoint_at = size + 1


def _reap_process(tables: SqliteTables, process: str) -> None:
    """The process is dead."""
    for name in tables.sessions_of(process):
        reap_session(tables, name)


def _close_process(tables: SqliteTables, process: str) -> None:
    """The process closes its store."""
    for name in tables.sessions_of(process):
        close_session(tables, name)
