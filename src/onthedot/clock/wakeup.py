"""Sleep until something happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from onthedot.clock.protocol import Clock


class WakeUp:
    """An event that ends a sleep. Clear it, then look for work, then wait: a wake-up in between is not lost."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._set = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_set(self) -> bool:
        """The next `wait` returns at once."""
        return self._set

    @property
    def is_waiting(self) -> bool:
        """A coroutine is in `wait`, and nothing has woken it."""
        return self._waiter is not None and not self._waiter.done()

    def clear(self) -> None:
        self._set = False

    def set(self) -> None:
        """Wakes the waiter; on the loop only."""
        if not self._set:
            self._set = True
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)

    def set_threadsafe(self) -> None:
        """`set`, from any thread."""
        if not self._set:
            self.call_soon(self.set)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Calls back on the loop, from any thread. After the loop is closed nothing waits, so nothing happens."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    async def wait(self, ms: float | None) -> None:
        """Returns when it is set, or after so many milliseconds."""
        if self._set:
            return
        self._waiter = self._loop.create_future()
        timer = None if ms is None else self._clock.call_later(ms, self.set)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
