"""A background thread fsyncs the WAL. Calls that need durability are answered after the sync, workers at commit.

A commit survives the end of any process; only a power cut reverts what is not synced. A worker repeats its own steps,
so they need not wait, and no commit waits for the sync of the one before.
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
_MAX_DELAY = 0.05  # seconds until a commit is synced that no call waits for
_sync = getattr(os, "fdatasync", os.fsync)


class FsyncThread:
    """Syncs the WAL while a connection is open. One sync covers all commits before it.

    The file stays open as long as the connection: the kernel reports a failed write to the descriptors that were open
    then, and of later ones only to the first.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.failed: str = ""  # the reason; from then on a power cut may revert the whole WAL
        self._due: SimpleQueue[list[Request[Any]] | threading.Event] = SimpleQueue()
        self._wal = -1
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="onthedot-sqlite-fsync", daemon=True)

    def start(self) -> None:
        """With the store, not with a connection: an interpreter that ends can open files, but starts no threads."""
        self._thread.start()

    def open(self) -> None:
        self._wal = os.open(f"{self._path}-wal", os.O_RDWR | os.O_CLOEXEC)

    def sync(self, calls: list[Request[Any]]) -> None:
        """Sync now and answer these calls; without calls, sync within _MAX_DELAY."""
        self._due.put(calls)

    def disconnect(self) -> None:
        """Close the file, after all commits are synced and answered."""
        if self._wal >= 0:
            synced = threading.Event()
            self._due.put(synced)
            synced.wait()
            self.after_fork()

    def after_fork(self) -> None:
        if self._wal >= 0:
            os.close(self._wal)
            self._wal = -1

    def end(self) -> None:
        """End the thread; the file is closed before."""
        self._ending = True
        self._due.put([])
        self._thread.join()

    def _run(self) -> None:
        while True:
            calls, waiter = self._gather()
            failed = self.failed = self.failed or self._sync()
            for call in calls if failed else ():
                call.error = StoreUnavailable(
                    f"{self._path}: the disk has not taken it: {failed}; it may be kept or not, try again"
                )
            answer(calls)
            if waiter is not None:
                waiter.set()
            elif self._ending:
                return

    def _gather(self) -> tuple[list[Request[Any]], threading.Event | None]:
        """The calls of the next sync, and the event to set after it."""
        calls: list[Request[Any]] = []
        until = inf
        wait: float | None = None
        while True:
            try:
                some = self._due.get(timeout=wait)
            except Empty:
                return calls, None
            if isinstance(some, threading.Event):
                return calls, some
            calls += some
            until = min(until, time.monotonic() + _MAX_DELAY)
            wait = 0 if calls or self._ending else max(0.0, until - time.monotonic())

    def _sync(self) -> str:
        """The reason of a failure. It is logged too, since there may be no call that waits."""
        try:
            if self._wal >= 0:
                _sync(self._wal)
        except Exception as error:  # noqa: BLE001 - without this thread no add would be answered
            _log.error("%s: what was written is not on the disk, until it can be: %s", self._path, error)
            return str(error) or repr(error)
        return ""
