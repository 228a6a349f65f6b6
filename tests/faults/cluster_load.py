"""An app on a Redis cluster under a steady load of adds, and what must be true of it after a fault of the cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from onthedot import App, current_task
from onthedot.errors import StoreUnavailable
from tests.faults import scaled
from tests.faults.run_log import RunLog
from tests.support.fault_report import report_faults
from tests.support.waits import SOON, until

ROUNDS = scaled(1, 20)
PER_ROUND = 200  # tasks, half of them before the fault
MOST_IDLE = 10.0  # seconds from the end of a fault until a task ends that was added after it


class ClusterLoad:
    """Adds tasks and runs them. An add that is refused is repeated as another task."""

    def __init__(self, url: str, run_log: RunLog) -> None:
        self._run_log = run_log
        self._adding: asyncio.Task[None] | None = None
        self._stopping = False
        self.app = App("shop", store=url, stop_timeout=0)
        self.handles: list[Any] = []
        self.unknown: list[StoreUnavailable] = []  # no reply: they may have been stored
        self.recovery: list[float] = []

        @self.app.task
        async def work(number: int) -> int:
            context = current_task()
            self._run_log.write("begin", context.uuid, context.attempt, context.fence)
            await asyncio.sleep(0.01)
            self._run_log.write("end", context.uuid, context.attempt, context.fence)
            return number

        self._work = work

    def start(self) -> None:
        self._stopping = False
        self._adding = asyncio.create_task(self._add())

    async def _add(self) -> None:
        while not self._stopping:
            try:
                self.handles.append(await self._work.enqueue(len(self.handles)))
            except StoreUnavailable as error:
                if error.stored is not False:
                    self.unknown.append(error)
            await asyncio.sleep(0.01)

    async def grow(self) -> None:
        """Returns when half of the tasks of a round are acknowledged. Each of them shows that adds are possible."""
        least = len(self.handles) + PER_ROUND // 2
        await until(lambda: len(self.handles) >= least or self._has_failed())
        assert not self._has_failed(), "an add raised something else than StoreUnavailable"

    def _has_failed(self) -> bool:
        return self._adding is None or self._adding.done()

    async def recover(self) -> None:
        """Called when a fault has ended: measures how long it takes until a task ends that is added from now on."""
        began = time.monotonic()
        number = len(self.handles) + 1  # an add may be under way
        await until(lambda: len(self.handles) > number)
        assert await self.handles[number].result(timeout=SOON) == number
        self.recovery.append(time.monotonic() - began)

    async def stop(self) -> None:
        """Returns when every acknowledged task has ended."""
        self._stopping = True
        if self._adding is not None:
            await self._adding
        results = [await handle.result(timeout=SOON) for handle in self.handles]
        assert results == list(range(len(self.handles)))

    def check(self, run: str) -> None:
        """Prints the figures. No task runs twice: the worker lives, and its lease is longer than the fault."""
        uuids: Iterable[str] = (handle.uuid for handle in self.handles)
        report = report_faults(run, self.app, set(uuids), self._run_log.entries(), self.recovery)
        report.check(most_extra_runs=0)
        assert max(self.recovery) <= MOST_IDLE


@asynccontextmanager
async def cluster_load(url: str, run_log: RunLog) -> AsyncIterator[ClusterLoad]:
    """With a worker in this process; the load has not been started."""
    load = ClusterLoad(url, run_log)
    async with load.app.running():
        yield load
