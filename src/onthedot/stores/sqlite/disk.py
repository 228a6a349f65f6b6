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
from onthedot.stores.sqlite.desk import Call, answer

_log = logging.getLogger("onthedot.store")
_REST = 0.05  # seconds that what nobody waits for may be without
_sync = getattr(os, "fdatasync", os.fsync)


class Disk:
    """Syncs the WAL of one open connection. One sync is for all that was committed before it began.

    The file is held open, as long as the connection: the kernel tells of a write that failed to those who had it open
    then, and only to the first of those who come later.
    """

    def __init__(self, path: str, failed: str = "") -> None:
        self._path = path
        self.failed: str = failed  # why; from then on a power cut may take back the whole WAL
        self._due: SimpleQueue[list[Call[Any]] | None] = SimpleQueue()
        self._wal = os.open(f"{path}-wal", os.O_RDWR | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="onthedot-sqlite-disk", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            os.close(self._wal)
            raise

    def sync(self, calls: list[Call[Any]]) -> None:
        """At once, and then these calls are answered; if there are none, within a moment."""
        self._due.put(calls)

    def end(self) -> None:
        """What was committed before is synced and answered first."""
        self._due.put(None)
        self._thread.join()
        os.close(self._wal)

    def _run(self) -> None:
        last = False
        while not last:
            calls, last = self._gathered()
            failed = self.failed = self.failed or self._synced()
            for call in calls if failed else ():
                call.error = StoreUnavailable(
                    f"{self._path}: the disk has not taken it: {failed}; it may be kept or not, try again"
                )
            answer(calls)

    def _gathered(self) -> tuple[list[Call[Any]], bool]:
        """Those that wait for the next sync, and whether it is the last one."""
        calls: list[Call[Any]] = []
        until, wait = inf, None
        while True:
            try:
                some = self._due.get(timeout=wait)
            except Empty:
                return calls, False
            if some is None:
                return calls, True
            calls += some
            until = min(until, time.monotonic() + _REST)
            wait = 0 if calls else max(0.0, until - time.monotonic())

    def _synced(self) -> str:
        """Why not, if not. Told to the log too: it may be that nobody waits."""
        try:
            _sync(self._wal)
        except Exception as error:  # noqa: BLE001 - a thread that ends would leave all who add without an answer
            _log.error("%s: what was written is not on the disk, until it can be: %s", self._path, error)
            return str(error) or repr(error)
        return ""
