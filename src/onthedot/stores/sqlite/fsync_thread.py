"""The disk: what is committed is synced by a thread of its own, and only then do those hear of it who wait for that.

A commit survives the end of any process; only a power cut takes back what is not synced. So a worker's own steps, which
it would do again, do not wait for the disk, and no commit waits for the sync of the one before.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from math import inf
from queue import Empty, SimpleQueue
from typing import Any

from onthedot.errors import StoreUnavailable
from onthedot.stores.sqlite.request_thread import Request, answer

_log = logging.getLogger("onthedot.store")
_REST = 0.05  # seconds that what nobody waits for may be without
_sync = getattr(os, "fdatasync", os.fsync)


class FsyncThread:
    """Syncs the WAL while a connection is open. One sync is for all that was committed before it began.

    The file is held open as long as the connection: the kernel tells of a write that failed to those who had it open
    then, and only to the first of those who come later.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.failed: str = ""  # why; from then on a power cut may take back the whole WAL
        self._due: SimpleQueue[list[Request[Any]] | threading.Event] = SimpleQueue()
        self._wal = -1
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="onthedot-sqlite-disk", daemon=True)

    def start(self) -> None:
        """With the store, not with a connection: an interpreter that ends opens files, but starts no threads."""
        self._thread.start()

    def open(self) -> None:
        self._wal = os.open(f"{self._path}-wal", os.O_RDWR | os.O_CLOEXEC)

    def sync(self, calls: list[Request[Any]]) -> None:
        """At once, and then these calls are answered; if there are none, within a moment."""
        self._due.put(calls)

    def disconnect(self) -> None:
        """Of the file. What was committed before is synced and answered first."""
        if self._wal >= 0:
            at_rest = threading.Event()
            self._due.put(at_rest)
            at_rest.wait()
            self.after_fork()

    def after_fork(self) -> None:
        if self._wal >= 0:
            os.close(self._wal)
            self._wal = -1

    def end(self) -> None:
        """For good; it has let go."""
        self._ending = True
        self._due.put([])
        self._thread.join()

    def _run(self) -> None:
        while True:
            calls, at_rest = self._gathered()
            failed = self.failed = self.failed or self._synced()
            for call in calls if failed else ():
                call.error = StoreUnavailable(
                    f"{self._path}: the disk has not taken it: {failed}; it may be kept or not, try again"
                )
            answer(calls)
            if at_rest is not None:
                at_rest.set()
            elif self._ending:
                return

    def _gathered(self) -> tuple[list[Request[Any]], threading.Event | None]:
        """Those that wait for the next sync, and who wants to know when it is over."""
        calls: list[Request[Any]] = []
        until, wait = inf, None
        while True:
            try:
                some = self._due.get(timeout=wait)
            except Empty:
                return calls, None
            if isinstance(some, threading.Event):
                return calls, some
            calls += some
            until = min(until, time.monotonic() + _REST)
            wait = 0 if calls or self._ending else max(0.0, until - time.monotonic())

    def _synced(self) -> str:
        """Why not, if not. Told to the log too: it may be that nobody waits."""
        try:
            if self._wal >= 0:
                _sync(self._wal)
        except Exception as error:  # noqa: BLE001 - a thread that ends would leave all who add without an answer
            _log.error("%s: what was written is not on the disk, until it can be: %s", self._path, error)
            return str(error) or repr(error)
        return ""
