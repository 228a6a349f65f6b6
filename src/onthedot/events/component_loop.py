"""The lifecycle that components share: a loop that survives failures of store and bus, and a bounded stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from onthedot.clock.protocol import Clock
from onthedot.clock.wakeup import WakeUp
from onthedot.engine.retry_delay import RetryDelay
from onthedot.errors import StoreRefused
from onthedot.events.bus import BusError
from onthedot.observability.events import Observer

_REFUSED_PAUSE = 60_000.0  # ms until the next attempt when a person must change something
_STOP = 1.0  # seconds that a step has to end; then it is cancelled


class ComponentLoop:
    """Repeats `_step`; a step looks, acts and sleeps. It is created and started on its event loop.

    feeds_worker: it adds tasks or ends their waits, so it stops before the worker does
    """

    name: str = ""
    feeds_worker: bool = False

    def __init__(self, clock: Clock, observer: Observer) -> None:
        self._clock = clock
        self._observer = observer
        self._wakeup = WakeUp(clock)
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self.idle: asyncio.Event = asyncio.Event()  # nothing to do before the next hint or timer
        self.event_count: int = 0  # events so far; a test looks again while it grows

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Within a bounded time, whether or not store and bus answer."""
        self._stopping = True
        self._wakeup.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_STOP)
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        await self._finish()

    def recheck(self) -> None:
        """Look again now; `idle` is set after that."""
        self.idle.clear()
        self._wakeup.set()

    def _count_events(self, events: int) -> None:
        self.event_count += events

    # -- what a component does

    async def _begin(self) -> None:
        """Before the first step, and again if it fails. It may wait for the bus."""

    async def _step(self) -> None:
        raise NotImplementedError

    async def _finish(self) -> None:
        """After the last step, which may have been cancelled."""

    # -- the loop

    async def _run(self) -> None:
        delay = RetryDelay()
        has_begun = False
        recovery_reports: dict[Callable[[str], None], None] = {}  # of the failures before; an ordered set
        while not self._stopping:
            try:
                self._wakeup.clear()  # clear, then look: no hint is lost
                if not has_begun:
                    await self._begin()
                    has_begun = True
                await self._step()
            except BaseException as error:
                if not self._may_continue_after(error):
                    raise
                recovery_reports[self._report_failed(f"the {self.name}", error)] = None
                pause = delay.next()
                if isinstance(error, StoreRefused):
                    pause = _REFUSED_PAUSE
                self._wakeup.clear()
                if not self._stopping:
                    await self._wakeup.wait(pause)
            else:
                for report in recovery_reports:
                    report(f"the {self.name}")
                recovery_reports.clear()
                delay.reset()

    def _report_failed(self, operation: str, error: BaseException) -> Callable[[str], None]:
        """Returns the report for the time when the operation has succeeded again."""
        if isinstance(error, BusError):
            self._observer.bus_failed(operation, error)
            return self._observer.bus_recovered
        self._observer.store_failed(operation, error)
        return self._observer.store_recovered

    def _may_continue_after(self, error: BaseException) -> bool:
        """A cancel that this task did not get comes from inside a store, and must not end the component."""
        if isinstance(error, asyncio.CancelledError):
            return self._task is not None and not self._task.cancelling()
        return isinstance(error, Exception)

    async def _sleep(self, ms: float | None, *, idle: bool) -> None:
        """Until a hint, `recheck` or so many milliseconds. idle: there is nothing to do meanwhile."""
        if self._stopping:
            return
        if idle and not self._wakeup.is_set:
            self.idle.set()
        await self._wakeup.wait(ms)
        self.idle.clear()
