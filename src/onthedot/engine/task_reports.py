"""Reports of running tasks: progress, and outcomes in the caller's transaction."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from onthedot.clock.wakeup import WakeUp
from onthedot.engine.config import WorkerConfig
from onthedot.engine.runner import Runner
from onthedot.errors import StoreError
from onthedot.model.context import RunState
from onthedot.model.durable_context import DurableRunProtocol
from onthedot.model.failures import encode_crash
from onthedot.model.streams import StreamRunProtocol
from onthedot.observability.events import Observer
from onthedot.stores.capabilities import AsyncTransactions, Outbox, SyncTransactions, capability, find_capability
from onthedot.stores.contract import Lease, NewEvent, Note, Outcome, Record, Store, Verdict


class TaskReports:
    """Gathers notes between two turns. Implements `ReportSink`."""

    def __init__(
        self,
        config: WorkerConfig,
        store: Store,
        runner: Runner,
        wakeup: WakeUp,
        observer: Observer,
        log: logging.Logger,
        new_durable_run: Callable[[RunState], DurableRunProtocol] | None = None,
        new_stream_run: Callable[[RunState], StreamRunProtocol] | None = None,
    ) -> None:
        self._store = store
        self._linked = runner.linked
        self._loop = asyncio.get_running_loop()
        self._observer = observer
        self._runner = runner
        runner.note_crash = self.note_crash
        self._wakeup = wakeup
        self.notes: dict[str, Note] = {}  # by uuid
        self._lock = threading.Lock()
        self._new_durable_run = new_durable_run
        self._new_stream_run = new_stream_run
        self._encode_events = config.encode_events
        self.log: logging.Logger = log

    def progress(self, lease: Lease, done: float, total: float) -> None:
        """From any thread. Only the last report between two turns is written."""
        note = Note(lease, "progress", "", msgspec.json.encode((done, total)))
        with self._lock:
            self.notes[lease.uuid] = note
        self._wakeup.set_threadsafe()

    async def note_crash(self, run: RunState) -> None:
        """Keep in the journal that an earlier run has ended with its worker: nothing else would.

        It only informs, so the task runs also if the note cannot be written.
        """
        history = run.record.history
        if history.started is None:
            return
        attempt = run.record.attempt - 1 if history.crashes else run.record.attempt  # not all crashes are counted
        crash = encode_crash(attempt, run.record.due, history.started)
        note = Note(run.lease, "error", f"crash:{history.started}", crash)
        try:
            await self._store.note((note,))
        except Exception as error:  # noqa: BLE001 - reported
            self._observer.store_failed("writing that the worker of a task died", error)

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

    async def results(self, record: Record, page: int) -> Sequence[object]:
        if self._linked is None:
            return ()
        return await self._linked.results(record, page)

    def results_in_thread(self, record: Record, page: int) -> Sequence[object]:
        return asyncio.run_coroutine_threadsafe(self.results(record, page), self._loop).result()

    def encode_events(self, events: Sequence[Any], verb: str) -> Sequence[NewEvent]:
        if self._encode_events is None:
            raise TypeError(f"{verb}: this worker publishes no events")
        encoded = self._encode_events(events, verb)  # first: where an outbox is set, its error names the reason
        capability(self._store, Outbox, verb)
        return encoded

    def settle_in(self, connection: object, outcome: Outcome) -> Verdict:
        verb = f"complete() of task {outcome.lease.uuid}, which can return its result instead"
        return capability(self._store, SyncTransactions, verb).settle_in(connection, outcome)

    async def settle_awaited(self, connection: object, outcome: Outcome) -> Verdict:
        store = find_capability(self._store, AsyncTransactions)
        if store is None:
            return self.settle_in(connection, outcome)
        return await store.settle_awaited(connection, outcome)

    def durable_run(self, run: RunState, verb: str) -> DurableRunProtocol:
        if self._new_durable_run is None:
            raise TypeError(f"{verb} in {run.record.source!r}: this worker runs no durable tasks")
        return self._new_durable_run(run)

    def stream_run(self, run: RunState) -> StreamRunProtocol:
        if self._new_stream_run is None:
            raise TypeError(f"{run.record.source!r} is a stream, and this worker runs no streams")
        return self._new_stream_run(run)
