"""The writer: whatever is queued goes into one transaction, and then into one sync (see disk.py).

Before SQLite's own lock stands an OS lock on ``<db>-write``: the kernel wakes the next one at once, where SQLite's busy
handler sleeps blindly. The WAL is checkpointed under it only, since SQLite before 3.51.3 can lose a WAL that is reset
while another connection checkpoints.
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
from onthedot.stores.sqlite.errors import inode, is_busy, translate
from onthedot.stores.sqlite.fsync_thread import FsyncThread
from onthedot.stores.sqlite.notifications import Notifications
from onthedot.stores.sqlite.notifier import DatagramNotifier
from onthedot.stores.sqlite.presence import Presence
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.request_thread import Request, RequestThread, answer
from onthedot.stores.sqlite.schema import BUSY_MS, app_of, connect, prepare
from onthedot.stores.sqlite.sessions import bury_owner, close_owner
from onthedot.stores.sqlite.tables import SqliteTables

_JOINED = 60.0  # seconds that somebody's transaction may take before its tasks are left to the poll interval
_CHECKPOINT, _TRUNCATE, _STEP = 4 << 20, 8 << 20, 1 << 20  # bytes of WAL


class WriterThread(RequestThread[SqliteTables]):
    def __init__(
        self, path: str, name: str, now: Callable[[], float], ears: DatagramNotifier, *, auto_schema: bool
    ) -> None:
        super().__init__("onthedot-sqlite-writer", path)
        self._ears = ears
        self._presence: Presence | None = None
        self._workers: list[str] = []
        self._eyes: dict[str, int | None] = {}  # other processes → what tells of their end
        self._known = -1
        self._looked = 0.0
        self._joined: list[
            tuple[int, Notifications, float]
        ] = []  # the number in the change log, what to tell, until when
        self._name = name
        self._now = now
        self._auto_schema = auto_schema
        self._gate = -1
        self._tables: SqliteTables | None = None
        self._disk = FsyncThread(path)
        self._changes = 0
        self._inode = 0
        self._wal = Path(f"{path}-wal")
        self._checkpoint_at = _CHECKPOINT

    # -- one transaction

    def work(self, calls: list[Request[SqliteTables]]) -> None:
        told: list[Notifications] = []
        taken: list[Request[SqliteTables]] = []
        try:
            with self._write_lock():
                burials = self._reap_dead_peers()  # what the dead held can be claimed by the calls that follow
                tables = self._begin(calls)
                taken = [call for call in (*burials, *calls) if call.take()]
                told = self._commit(tables, taken)
                self._look_at_peers(tables)
        except Exception as error:  # noqa: BLE001 - told to whoever asked
            if not taken:
                taken = [call for call in calls if call.take()]
                self._fail(taken, error)
        answer(self._synced(taken))
        self._ears.publish(told, self._workers)
        if self._tables is not None:
            self._checkpoint(self._tables.db)

    def _synced(self, calls: list[Request[SqliteTables]]) -> list[Request[SqliteTables]]:
        """Those that need not wait for the disk; the others are answered when it has what was written.

        By whomever: who adds again what is there already is told so, and it may not be on the disk yet.
        """
        if self._tables is None:
            return calls
        now: list[Request[SqliteTables]] = []
        later: list[Request[SqliteTables]] = []
        for call in calls:
            (now if call.at_commit or call.error is not None else later).append(call)
        changes, self._changes = self._changes, self._tables.db.total_changes
        if later or changes != self._changes:
            if self._disk.failed:
                self._recover_after_failed_sync(self._tables.db)
            self._disk.sync(later)
        return now

    def _recover_after_failed_sync(self, db: sqlite3.Connection) -> None:
        """After a sync that failed, what the WAL lacks nobody knows: it is safe when the database itself has it all."""
        with suppress(sqlite3.Error), self._write_lock():
            busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._disk.failed = self._disk.failed if busy else ""

    def _fail(self, calls: list[Request[SqliteTables]], error: Exception) -> None:
        for call in calls:
            call.error = translate(error, self.path)

    def _begin(self, calls: list[Request[SqliteTables]]) -> SqliteTables:
        """Waits for another program's lock as long as somebody waits for us."""
        while True:
            try:
                tables = self._opened()
                tables.db.execute("BEGIN IMMEDIATE")
                return tables
            except sqlite3.OperationalError as error:
                if not is_busy(error) or not any(call.waits for call in calls):
                    raise

    def _commit(self, tables: SqliteTables, calls: list[Request[SqliteTables]]) -> list[Notifications]:
        """All in one; if one of them fails, nothing has happened yet, and each has a transaction of its own."""
        try:
            return self._do(tables, calls)
        except Exception as error:  # noqa: BLE001 - told to whoever asked
            if len(calls) == 1:
                self._fail(calls, error)
                return []
            told: list[Notifications] = []
            for call in calls:
                try:
                    tables.db.execute("BEGIN IMMEDIATE")
                    told += self._do(tables, [call])
                except Exception as its_error:  # noqa: BLE001 - likewise
                    self._fail([call], its_error)
        return told

    def _do(self, tables: SqliteTables, calls: list[Request[SqliteTables]]) -> list[Notifications]:
        told: list[Notifications] = []
        try:
            tables.begin()
            for call in calls:
                tables.start_call(self._now())
                call.answer = call.work(tables)
                told.append(tables.end_call())
            tables.flush()
            tables.db.execute("COMMIT")
        except BaseException:
            if tables.db.in_transaction:
                tables.db.execute("ROLLBACK")
            tables.forget()
            self._known = -1  # what it had read of the others is not so
            raise
        tables.done()
        return told

    # -- what is written in the transactions of others

    def await_commit(self, number: int, told: Notifications) -> None:
        """From any thread: whoever joined another's transaction cannot tell of it before that is committed."""
        self._joined.append((number, told, time.monotonic() + _JOINED))
        self.wake()

    def _look_for_joined(self, tables: SqliteTables) -> None:
        seen = [
            each for each in self._joined if tables.db.execute(SQL["change_exists"], each[:1]).fetchone() is not None
        ]
        for each in [each for each in self._joined if each in seen or each[2] < time.monotonic()]:
            self._joined.remove(each)  # others append meanwhile
        if seen:
            self._look_at_peers(tables)  # it may not have written anything itself yet
        self._ears.publish([told for _, told, _ in seen], self._workers)

    # -- the others

    def _look_at_peers(self, tables: SqliteTables) -> None:
        """Who is here has changed since the last look: whom to tell, and whose death to watch for."""
        if tables.control == self._known:
            return
        self._known = tables.control
        rows = tables.db.execute(SQL["sessions"], (tables.app,)).fetchall()
        self._workers = [name for name, _, info in rows if info is not None]
        owners = {owner for _, owner, _ in rows} - {self.presence.owner}
        for owner in self._eyes.keys() - owners:
            self._shut_eye(owner)
        for owner in owners - self._eyes.keys():
            eye = self._eyes[owner] = self.presence.pidfd(owner)
            if eye is not None:
                self.watch(eye)
        self._looked = 0.0

    def _reap_dead_peers(self) -> list[Request[SqliteTables]]:
        """Of peers that are dead: looked for when somebody said so, and once a second anyway."""
        now = time.monotonic()
        if not self._eyes or now - self._looked < 1:
            return []
        self._looked = now
        dead = [owner for owner in self._eyes if self.presence.is_dead(owner)]
        return [Request(partial(bury_owner, owner=owner)) for owner in dead]

    def _shut_eye(self, owner: str) -> None:
        if (eye := self._eyes.pop(owner)) is not None:
            self.unwatch(eye)
            os.close(eye)

    def on_readable(self, fd: int) -> None:
        dead = [owner for owner, eye in self._eyes.items() if eye == fd]
        for owner in dead:
            self._shut_eye(owner)
            self._eyes[owner] = None  # looked at again and again, until it is buried
        if not dead and not self._ears.receive(fd):
            return
        self._looked = 0.0
        self._calls.append(Request(lambda _: None))

    def patience(self) -> float | None:
        if self._joined:
            with suppress(sqlite3.Error):  # it may be the first look, and somebody in the way: there is another
                self._look_for_joined(self._opened())
        if self._ears.send() or self._joined:
            return 20
        if None not in self._eyes.values():
            return None
        if time.monotonic() - self._looked >= 0.1:
            self._looked = 0.0
            self._calls.append(Request(lambda _: None))
        return 100

    # -- the files

    @property
    def app(self) -> int:
        if self._tables is None:
            raise StoreUnavailable(f"{self.path} is not open")
        return self._tables.app

    def _opened(self) -> SqliteTables:
        if self._tables is not None:
            if inode(self.path) == self._inode:
                return self._tables
            self.close()
            raise StoreUnavailable(
                f"{self.path} was deleted or replaced while it was open; tasks in it are gone, a new one is made next"
            )
        db = connect(self.path)
        try:
            prepare(db, self.path, auto=self._auto_schema)
            db.execute("PRAGMA synchronous = NORMAL")  # a commit does not wait for the disk: those who asked do
            tables = SqliteTables(db, app_of(db, self._name))
            if self._presence is None:
                self._ears.folder.mkdir(exist_ok=True)
                self._presence = Presence(self._ears.folder)
            self._disk.open()
        except BaseException:
            db.close()
            raise
        self._inode = inode(self.path)
        self._ears.sweep()
        self._known = -1
        self._tables, self._changes = tables, db.total_changes
        return tables

    @property
    def presence(self) -> Presence:
        if self._presence is None:
            raise StoreUnavailable(f"{self.path} is not open")
        return self._presence

    def let_go(self) -> None:
        """Before a fork: the connection goes, the presence stays."""
        self._disk.let_go()
        if self._tables is not None:
            self._tables.db.close()
            self._tables = None

    def start(self) -> None:
        self._disk.start()
        super().start()

    def _run(self) -> None:
        super()._run()
        self._disk.end()

    async def stop(self) -> None:
        if self._presence is not None:
            with suppress(StoreError):  # then others find out by themselves
                await self.ask(partial(close_owner, owner=self.presence.owner), early=True)
        await super().stop()

    def close(self) -> None:
        self.let_go()
        if self._presence is not None:
            self._presence.close()
            self._presence = None
            for owner in list(self._eyes):
                self._shut_eye(owner)
            self._ears.clear()
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1

    def after_fork(self) -> None:
        super().after_fork()
        self._disk.after_fork()
        if self._gate >= 0:
            os.close(self._gate)
        if self._presence is not None:
            self._presence.after_fork()
            for eye in self._eyes.values():
                if eye is not None:
                    os.close(eye)

    @contextmanager
    def _write_lock(self) -> Generator[None]:
        if self._gate < 0:
            self._gate = os.open(f"{self.path}-write", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if self._gate >= 0:
                fcntl.flock(self._gate, fcntl.LOCK_UN)

    def _checkpoint(self, db: sqlite3.Connection) -> None:
        """A WAL that is copied whole is written from its start again, in place: it grows only if it is too long."""
        try:
            size = self._wal.stat().st_size
        except FileNotFoundError:
            return
        if size < self._checkpoint_at:
            return
        mode = "TRUNCATE" if size >= _TRUNCATE else "PASSIVE"
        busy = True
        db.execute("PRAGMA busy_timeout = 20")  # for a reader that is in the way
        # What was written is written; a disk that is full says so at the next write.
        with suppress(sqlite3.Error), self._write_lock():
            busy, _, _ = db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        self._checkpoint_at = _CHECKPOINT if mode == "TRUNCATE" and not busy else size + (_STEP if busy else 1)
