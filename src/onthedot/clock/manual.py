"""A clock that a test drives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from onthedot.clock.protocol import Timer

_DEFAULT_START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """A clock that stands still until it is advanced.

    Args:
        start: its first moment, an aware datetime; 2026-01-01 in UTC by default.

    >>> clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    >>> clock.advance(1500)
    >>> clock.moment().isoformat()
    '2026-03-01T00:00:01.500000+00:00'
    """

    is_system = False

    def __init__(self, start: datetime | None = None) -> None:
        self._now = (start or _DEFAULT_START).timestamp() * 1000
        self._order = count()
        self._timers: list[_Entry] = []

    def now(self) -> float:
        """Milliseconds since the epoch."""
        return self._now

    def wall_clock_jump(self) -> float:
        return 0.0

    def call_later(self, ms: float, callback: Callable[[], object]) -> Timer:
        timer = _ManualTimer(callback)
        if ms <= 0:
            asyncio.get_running_loop().call_soon(timer.fire)
        else:
            heappush(self._timers, _Entry(self._now + ms, next(self._order), timer))
        return timer

    def next_timer(self) -> float | None:
        """When the next timer is due, in milliseconds since the epoch."""
        while self._timers and self._timers[0].timer.callback is None:
            heappop(self._timers)
        return self._timers[0].due if self._timers else None

    def due_times(self) -> list[float]:
        """When the timers are due, in milliseconds since the epoch, in no order."""
        return [entry.due for entry in self._timers if entry.timer.callback is not None]

    def advance(self, ms: float) -> None:
        """Moves the clock forward and fires the timers that fall due, in order.

        Args:
            ms: Milliseconds.
        """
        end = self._now + ms
        while (due := self.next_timer()) is not None and due <= end:
            self._now = max(self._now, due)
            heappop(self._timers).timer.fire()
        self._now = end

    def moment(self) -> datetime:
        """Now, as an aware datetime in UTC."""
        return datetime.fromtimestamp(self._now / 1000, UTC)


class _ManualTimer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def fire(self) -> None:
        callback = self.callback
        self.callback = None
        if callback is not None:
            callback()


class _Entry(NamedTuple):
    due: float
    order: int  # timers of one moment fire as they were set; it is unique, so timers are never compared
    timer: _ManualTimer
