"""The thread that sends a session's heartbeats."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any


class HeartbeatThread:
    """Runs heartbeats in an event loop of its own, so a task that blocks the worker's loop does not delay them."""

    own_loop = True

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def start(self, heartbeats: Coroutine[Any, Any, None]) -> None:
        self._caller = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._caller.create_future()
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(heartbeats)
        self._thread = threading.Thread(target=self._run, name="onthedot-heartbeat", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._task)
        finally:
            self._loop.close()
            with suppress(RuntimeError):  # the caller's loop is closed
                self._caller.call_soon_threadsafe(self._ended.set_result, None)

    async def stop(self) -> None:
        if self._thread is None:
            return
        with suppress(RuntimeError):  # the heartbeats have ended by themselves
            self._loop.call_soon_threadsafe(self._task.cancel)
        await self._ended
        self._thread.join()
        self._thread = None
