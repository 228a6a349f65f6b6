"""Looking at the health of a fleet from time to time, and telling each trouble once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

from onthedot.clock.protocol import Clock
from onthedot.clock.wakeup import WakeUp
from onthedot.observability.logs import LogObserver
from onthedot.operations.health import Vitals, checks, look
from onthedot.stores.contract import Store

QUIET = 600_000  # ms for which the same trouble is told once


class Watched(Protocol):
    """A process of the fleet, as far as a monitor needs it."""

    logs: LogObserver
    clock: Clock

    @property
    def store(self) -> Store: ...
    @property
    def worker(self) -> MonitoredWorker | None: ...


class MonitoredWorker(Protocol):
    @property
    def session_id(self) -> str: ...


class HealthMonitor:
    """The oldest of the workers looks: nobody is elected, and when it goes the next one is the oldest."""

    def __init__(self, runtime: Watched) -> None:
        self._runtime = runtime
        self._told: dict[str, float] = {}
        self._before: Vitals | None = None

    @asynccontextmanager
    async def watching(self, interval: float) -> AsyncGenerator[None, None]:
        """Every `interval` seconds, until the block ends."""
        watch = asyncio.create_task(self._watch(interval))
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.wait([watch])

    async def _watch(self, interval: float) -> None:
        while True:
            try:
                await self.warn()
            except Exception as error:  # noqa: BLE001 - told, and tried again the next time
                self._runtime.logs.store_failed("system_monitor", error)
            await WakeUp(self._runtime.clock).wait(interval * 1000)

    async def warn(self) -> None:
        """Of what has gone wrong since the last look, and of what is wrong now; the first look only begins."""
        before, vitals = self._before, await look(self._runtime.store, self._runtime.clock.now())
        self._before = vitals
        oldest = min((worker.id for worker in vitals.workers), default=None)
        if before is None or self._runtime.worker is None or self._runtime.worker.session_id != oldest:
            return
        for trouble in (check for check in checks(vitals, before) if not check.ok):
            if vitals.now - self._told.get(trouble.what, -QUIET) >= QUIET:
                self._told[trouble.what] = vitals.now
                self._runtime.logs.scheduler.warning("[monitor] %s: %s", trouble.what, trouble.text)
