"""Reports of running tasks: progress, and outcomes in the caller's transaction."""

from __future__ import annotations

import asyncio
import logging
import threading

import msgspec

from onthedot.clock.wakeup import WakeUp
from onthedot.engine.runner import Runner
from onthedot.errors import StoreError
from onthedot.observability.events import Observer
from onthedot.stores.capabilities import AsyncTransactions, SyncTransactions, capability, find_capability
from onthedot.stores.contract import Lease, Note, Outcome, Store, Verdict


class TaskReports:
    """Gathers notes between two turns. Implements `ReportSink`."""

    def __init__(self, store: Store, runner: Runner, wakeup: WakeUp, observer: Observer, log: logging.Logger) -> None:
        self._store = store
        self._observer = observer
        self._runner = runner
        self._wakeup = wakeup
        self.notes: dict[str, Note] = {}  # by uuid
        self._lock = threading.Lock()
        self.log: logging.Logger = log

    def progress(self, lease: Lease, done: float, total: float) -> None:
        """From any thread. Only the last report between two turns is written."""
        note = Note(lease, "progress", "", msgspec.json.encode((done, total)))
        with self._lock:
            self.notes[lease.uuid] = note
        self._wakeup.set_threadsafe()

    async def flush(self) -> None:
        """Writes the notes; runs whose lease is lost end.

        While the store cannot be reached, notes are kept. Those that it cannot store are dropped: they only inform.
        """
        with self._lock:
            notes = self.notes
            self.notes = {}
        try:
            lost = await self._store.note(list(notes.values()))
        except (StoreError, asyncio.CancelledError):
            with self._lock:
                self.notes = notes | self.notes
            raise
        except Exception as error:  # noqa: BLE001 - reported
            self._observer.store_failed("writing the progress of tasks", error)
            return
        for lease in lost:
            self._runner.cancel(lease.uuid, "lost")

    def has_event_loop(self) -> bool:
        return asyncio._get_running_loop() is not None

    def settle_in(self, connection: object, outcome: Outcome) -> Verdict:
        verb = f"complete() of task {outcome.lease.uuid}, which can return its result instead"
        return capability(self._store, SyncTransactions, verb).settle_in(connection, outcome)

    async def settle_awaited(self, connection: object, outcome: Outcome) -> Verdict:
        store = find_capability(self._store, AsyncTransactions)
        if store is None:
            return self.settle_in(connection, outcome)
        return await store.settle_awaited(connection, outcome)
