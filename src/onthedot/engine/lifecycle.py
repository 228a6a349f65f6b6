"""stopped → starting → running → stopping → stopped, for every way to run a worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from onthedot.errors import SchedulerStateError

Status = Literal["stopped", "starting", "running", "stopping"]


class Lifecycle:
    """The first caller of a transition performs it; later callers wait, or get an error.

    A cancelled `stop` does not interrupt the stop itself. begin: starts the worker. halt: ends claims at once. finish:
    stops the worker within a timeout in seconds.
    """

    def __init__(
        self,
        begin: Callable[[], Awaitable[None]],
        halt: Callable[[], None],
        finish: Callable[[float | None], Awaitable[None]],
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self._begin = begin
        self._halt = halt
        self._finish = finish
        self._log = log
        self._stop_task: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] | None = None
        self.status: Status = "stopped"

    def may_start(self) -> bool:
        """True: the state is `starting`, and `start` must follow."""
        if self.status in ("starting", "running"):
            self._log.warning("start() has no effect: already %s", self.status)
            return False
        if self.status == "stopping":
            raise SchedulerStateError("start() while stopping: await stop() first")
        self.status = "starting"
        self._started = asyncio.get_running_loop().create_future()
        return True

    async def start(self) -> bool:
        """After a failed start the state is `stopped`, and a start can be tried again."""
        assert self._started is not None
        try:
            await self._begin()
        except BaseException:
            self.status = "stopped"
            raise
        else:
            self.status = "running"
            self._log.info("Scheduler started")
            return True
        finally:
            self._started.set_result(None)

    async def stop(self, timeout: float | None) -> bool:
        """True: this call has stopped it. All callers wait for the same stop."""
        if self.status == "starting" and self._started is not None:
            await asyncio.shield(self._started)
        if self.status == "stopped":
            return False
        first = self._stop_task is None
        if self._stop_task is None:
            self.status = "stopping"
            self._halt()
            self._stop_task = asyncio.ensure_future(self._end(timeout))
        await asyncio.shield(self._stop_task)
        return first

    def on_failed(self, reason: BaseException) -> None:
        """The loop has ended by an error that a retry would not fix."""
        self._log.error("Scheduler stopped: %s: %s", type(reason).__name__, reason)
        if self._stop_task is None:
            self.status = "stopping"
            self._stop_task = asyncio.ensure_future(self._end(0))

    async def _end(self, timeout: float | None) -> None:
        try:
            await self._finish(timeout)
        finally:
            self.status = "stopped"
            self._stop_task = None
            self._log.info("Scheduler stopped")
