"""stopped → starting → running → stopping → stopped, the same for every door."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from onthedot.errors import SchedulerStateError

Status = Literal["stopped", "starting", "running", "stopping"]


class Lifecycle:
    """Who calls first, acts; who comes second is told so. A cancelled stop() leaves the stopping under way."""

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
        self._ending: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] | None = None
        self.status: Status = "stopped"

    def may_start(self) -> bool:
        """True: it is starting from here on, and `start` must follow. Whoever asks next is told so."""
        if self.status in ("starting", "running"):
            self._log.warning("start() has no effect: already %s", self.status)
            return False
        if self.status == "stopping":
            raise SchedulerStateError("start() while stopping: await stop() first")
        self.status = "starting"
        self._started = asyncio.get_running_loop().create_future()
        return True

    async def start(self) -> bool:
        """A start that fails leaves `stopped` and can be tried again."""
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
        """True: this call did it. All who stop wait for the same end."""
        if self.status == "starting" and self._started is not None:
            await asyncio.shield(self._started)
        if self.status == "stopped":
            return False
        first = self._ending is None
        if self._ending is None:
            self.status = "stopping"
            self._halt()
            self._ending = asyncio.ensure_future(self._end(timeout))
        await asyncio.shield(self._ending)
        return first

    def failed(self, reason: BaseException) -> None:
        """The engine ended by itself: no retry mends it."""
        self._log.error("Scheduler stopped: %s: %s", type(reason).__name__, reason)
        if self._ending is None:
            self.status = "stopping"
            self._ending = asyncio.ensure_future(self._end(0))

    async def _end(self, timeout: float | None) -> None:
        try:
            await self._finish(timeout)
        finally:
            self.status = "stopped"
            self._ending = None
            self._log.info("Scheduler stopped")
