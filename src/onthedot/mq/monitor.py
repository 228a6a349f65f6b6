"""Check the health of all workers of a store from time to time, and log each problem once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from onthedot.clock.wakeup import WakeUp
from onthedot.operations.health import Vitals, check_vitals, read_vitals
from onthedot.runtime.runtime import Runtime

QUIET = 600_000  # ms for which the same problem is logged once


class HealthMonitor:
    """Only the oldest worker logs problems, so no leader is elected."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._logged_at: dict[str, float] = {}
        self._before: Vitals | None = None

    @asynccontextmanager
    async def running(self, interval: float) -> AsyncGenerator[None, None]:
        """Check every `interval` seconds, until the block ends."""
        task = asyncio.create_task(self._run(interval))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self, interval: float) -> None:
        while True:
            try:
                await self.warn()
            except Exception as error:  # noqa: BLE001 - logged, and tried again
                self._runtime.logs.store_failed("system_monitor", error)
            await WakeUp(self._runtime.clock).wait(interval * 1000)

    async def warn(self) -> None:
        """Log the problems that there are, and the failures since the last call; the first call logs nothing."""
        before = self._before
        vitals = await read_vitals(self._runtime.store, self._runtime.clock.now())
        self._before = vitals
        oldest = min((worker.id for worker in vitals.workers), default=None)
        if before is None or self._runtime.worker is None or self._runtime.worker.session_id != oldest:
            return
        for problem in (check for check in check_vitals(vitals, before) if not check.ok):
            if vitals.now - self._logged_at.get(problem.what, -QUIET) >= QUIET:
                self._logged_at[problem.what] = vitals.now
                self._runtime.logs.scheduler.warning("[monitor] %s: %s", problem.what, problem.text)
