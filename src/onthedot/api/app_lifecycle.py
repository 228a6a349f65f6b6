"""The part of an app that connects it and runs its tasks."""

from __future__ import annotations

import atexit
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, Self

from onthedot.client.portal import Portal
from onthedot.clock.protocol import Clock
from onthedot.errors import SchedulerStateError
from onthedot.model.executor_names import PROCESS, THREAD
from onthedot.runtime.runtime import Runtime
from onthedot.runtime.settings import store_url
from onthedot.runtime.user_code import ImportState, extend_import_deadline, forbid_during_import


class AppLifecycle:
    name: str
    runtime: Runtime
    _portal: Portal

    async def __aenter__(self) -> Self:
        """Connects on this event loop, to add and read tasks; runs none."""
        await self._portal.connect()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._portal.disconnect()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Self, None]:
        """Runs tasks inside this event loop, until the block ends."""
        if not await self.runtime.host.start("loop"):
            raise SchedulerStateError(f"app {self.name!r} is already {self.runtime.host.status} on this event loop")
        try:
            yield self
        finally:
            await self.runtime.host.stop()

    @contextmanager
    def background(self, process: bool = False) -> Generator[Self, None, None]:
        """Runs tasks in the background until the block ends.

        Args:
            process: False: on a thread of this process. True: in a process of its own.
        """
        if not self.start(auto=True, threading=not process):
            raise SchedulerStateError(f"app {self.name!r} is already {self.runtime.host.status} in the background")
        try:
            yield self
        finally:
            self.shutdown()

    def run(self) -> None:
        """Runs tasks in the foreground until Ctrl+C or SIGTERM."""
        forbid_during_import()
        self.runtime.host.run()

    def start(self, auto: bool = False, threading: bool = True) -> bool:
        """Runs tasks. Returns True if this call started it.

        Args:
            auto: False: blocks like ``run()``. True: in the background, until ``shutdown()`` or the exit.
            threading: True: the background is a thread, and sync functions run in threads unless they name an executor.
                False: both are processes. A process imports the script and finds what is declared at module level.
        """
        if ImportState.marked and auto:  # this is an import by one of our own processes
            extend_import_deadline(started=True)
            return True
        if self.runtime.host.status == "stopped":
            self.runtime.registry.owner.sync_executor = THREAD if threading else PROCESS
        if not auto:
            self.run()
            return True
        if threading:
            started = self.runtime.host.start_thread()
        else:
            started = self.runtime.host.start_process(self.runtime.background.start_process)
        if started:
            atexit.register(self.shutdown)
        return started

    def shutdown(self, timeout: float | None = None) -> bool:
        """Ends ``start(auto=True)``. Returns True if this call did it.

        Args:
            timeout: Seconds that running tasks get; by default `stop_timeout` of the app.
        """
        atexit.unregister(self.shutdown)
        try:
            return self.runtime.background.stop(timeout)
        finally:
            self._portal.close()

    def status(self) -> dict[str, Any]:
        """Returns state, counts, running tasks of this process and the last error.

        The first call waits for the store, up to half a second; later ones never do: see `Scheduler.status()`.
        """
        return self.runtime.status()

    @contextmanager
    def override(self, *, store: str | None = None, clock: Clock | None = None) -> Generator[Self, None, None]:
        """Uses another store or clock until the block ends. For tests.

        Args:
            store: URL of the store.
            clock: Such as a ``ManualClock``.

        ::

            with app.override(store="memory://", clock=ManualClock()):
                ...
        """
        config = self.runtime.config
        url = config.url if store is None else store_url(store)
        with self.runtime.override(replace(config, url=url, clock=clock or config.clock)):
            yield self
