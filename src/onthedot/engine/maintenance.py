"""Work of a worker that is due now and then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from random import Random

from onthedot.clock.protocol import Clock
from onthedot.engine.config import WorkerConfig
from onthedot.engine.figure_writer import FigureWriter
from onthedot.engine.release_entry import note_release
from onthedot.engine.retry_delay import RetryDelay
from onthedot.engine.session import WorkerSession
from onthedot.engine.slots import Slots
from onthedot.engine.turns import Turns
from onthedot.engine.worker_state import WorkerEntries, WorkerState
from onthedot.errors import StoreRefused
from onthedot.observability.events import Observer
from onthedot.observability.meter import Meter
from onthedot.stores.contract import Store

_PURGE_INTERVAL = 60_000.0  # ms
_PURGE_BATCH = 200


@dataclass(eq=False)
class Maintenance:
    """Updates limits and schedules in the store when code declares new ones, purges ended tasks, and writes figures."""

    config: WorkerConfig
    store: Store
    session: WorkerSession
    slots: Slots
    clock: Clock
    random: Random
    observer: Observer
    declare: Callable[[], Awaitable[None]]
    meter: Meter | None
    turns: Turns | None = None  # None: nothing is written about the worker itself

    def __post_init__(self) -> None:
        self._definitions_changed = False
        self._retry_delay = RetryDelay()
        self.retry_at: float | None = None  # set while a declaration has failed
        self._purged_at = self.clock.now()
        self.figures: FigureWriter | None = None
        self.state: WorkerState | None = None
        if self.meter is not None:
            session = self.session
            workers: WorkerEntries | None = None
            if self.turns is not None:
                self.state = WorkerState(self.config, self.turns)
                workers = WorkerEntries(self.state.describe)
            self.figures = FigureWriter(
                self.store, self.meter, self.clock, self.random, self.observer, lambda: session.id, workers
            )

    def mark_definitions_changed(self) -> None:
        self._definitions_changed = True

    async def update_definitions(self) -> bool:
        """Whether the store has what code declares. Otherwise a claim could exceed a limit."""
        if not self._definitions_changed or self.slots.closed:
            return True
        if self.retry_at is not None and self.clock.now() < self.retry_at:
            return False
        self._definitions_changed = False  # before the call: a change during the call sets it again
        try:
            await self.declare()
            await self.session.update_info()
        except BaseException as error:
            self._definitions_changed = True
            if isinstance(error, StoreRefused) or not isinstance(error, Exception):
                raise
            self.observer.store_failed("declaring limits and schedules", error)
            self.retry_at = self.clock.now() + self._retry_delay.next()
            return False
        if self.retry_at is not None:
            self.observer.store_recovered("declaring limits and schedules")
        self.retry_at = None
        self._retry_delay.reset()
        return not self._definitions_changed

    async def start(self) -> None:
        """The worker starts: its code release is noted."""
        await note_release(self.store, self.config.release, self.observer)
        if self.state is not None:
            self.state.loop_lag.start()

    def stop(self) -> None:
        """The loop of the worker has ended."""
        if self.state is not None:
            self.state.loop_lag.stop()

    async def write_figures(self) -> None:
        """Writes what the worker has counted, if it is time for that."""
        if self.figures is not None:
            await self.figures.write_if_due()

    async def write_last_figures(self) -> None:
        """The worker ends."""
        if self.figures is not None:
            await self.figures.write(is_last=True)

    async def purge_if_due(self) -> bool:
        """Deletes ended tasks whose retention is over, few per turn because other callers wait for the store.

        True: there are more. A limit per minute would limit how many tasks can run.
        """
        now = self.clock.now()
        if self.slots.closed or now - self._purged_at < _PURGE_INTERVAL:
            return False
        if await self.store.purge(_PURGE_BATCH, self.config.max_retained) == _PURGE_BATCH:
            return True
        self._purged_at = now
        return False

    def stop_purging(self) -> None:
        self._purged_at = inf
