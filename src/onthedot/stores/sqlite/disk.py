"""The disk: what is committed is synced by a thread of its own, and only then do those hear of it who wait for that.

A commit survives the end of any process; only a power cut takes back what is not synced. So a worker's own steps, which
it would do again, do not wait for the disk, and no commit waits for the sync of the one before.
"""

from __future__ import annotations

import os
import threading
import time
from math import inf
from queue import Empty, SimpleQueue
from typing import Any

from onthedot.stores.sqlite.desk import Call, answer
from onthedot.stores.sqlite.faults import explained

_REST = 0.05  # seconds that what nobody waits for may be without
_sync = getattr(os, "fdatasync", os.fsync)


class Disk:
    """Syncs the WAL of one connection's file. One sync is for all that was committed before it began."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._wal = f"{path}-wal"
        self.failed: Exception | None = None  # from then on a power cut may take back the whole WAL
        self._due: SimpleQueue[list[Call[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="onthedot-sqlite-disk", daemon=True)
        self._thread.start()

    def sync(self, calls: list[Call[Any]]) -> None:
        """At once, and then these calls are answered; if there are none, within a moment."""
        self._due.put(calls)

    def end(self) -> None:
        """What was committed before is synced and answered first."""
        self._due.put(None)
        self._thread.join()

    def _run(self) -> None:
        last = False
        while not last:
            calls, last = self._gathered()
            self.failed = self.failed or self._synced()
            for call in calls:
                call.error = self.failed
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

    def _synced(self) -> Exception | None:
        try:
            wal = os.open(self._wal, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:  # whoever closed the file last has checkpointed it
            return None
        except OSError as error:
            return explained(error, self._path)
        try:
            _sync(wal)
        except OSError as error:
            return explained(error, self._path)
        finally:
            os.close(wal)
        return None
