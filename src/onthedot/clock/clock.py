"""Time, handed in: the engine and the memory store ask a clock and never the system, so that tests can turn it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from heapq import heappop, heappush
from itertools import count
from math import ceil
from typing import Protocol

from onthedot.clock.precise_timer import PreciseTimer


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now(self) -> float:
        """Milliseconds since the epoch, UTC, with fractions."""
        ...

    def wall_clock_jump(self) -> float:
        """By how many ms the wall clock has jumped ahead of this one."""
        ...

    def call_later(self, ms: float, callback: Callable[[], object]) -> Timer:
        """Calls back on the running loop, never early by this clock."""
        ...


class SystemClock:
    """The monotonic clock, anchored to UTC when it is made: a jump of the wall clock moves nothing."""

    def __init__(self) -> None:
        # The most of a few: one that is interrupted between its two looks would be late for good.
        self._anchor = max(time.time_ns() - time.monotonic_ns() for _ in range(3))

    def now(self) -> float:
        return (self._anchor + time.monotonic_ns()) / 1e6

    def wall_clock_jump(self) -> float:
        jumped = time.time_ns() / 1e6 - self.now()
        return jumped if abs(jumped) >= _JUMP else 0.0

    def call_later(self, ms: float, callback: Callable[[], object]) -> Timer:
        return PreciseTimer(ms / 1000, callback)


class ManualClock:
    """A clock that stands still until it is turned.

    >>> clock = ManualClock()
    >>> before = clock.now()
    >>> clock.advance(1500)
    >>> clock.now() - before
    1500.0
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._now = (start or datetime(2026, 1, 1, tzinfo=UTC)).timestamp() * 1000
        self._order = count()
        self._timers: list[tuple[float, int, _ManualTimer]] = []

    def now(self) -> float:
        return self._now

    def wall_clock_jump(self) -> float:
        return 0.0

    def call_later(self, ms: float, callback: Callable[[], object]) -> Timer:
        timer = _ManualTimer(callback)
        if ms <= 0:
            asyncio.get_running_loop().call_soon(timer.fire)
        else:
            heappush(self._timers, (self._now + ms, next(self._order), timer))
        return timer

    def next_timer(self) -> float | None:
        """When the next timer is due, in milliseconds since the epoch."""
        while self._timers and self._timers[0][2].callback is None:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def advance(self, ms: float) -> None:
        """Turns the clock forward and fires what falls due, in order."""
        end = self._now + ms
        while (due := self.next_timer()) is not None and due <= end:
            self._now = max(self._now, due)
            heappop(self._timers)[2].fire()
        self._now = end

    def moment(self) -> datetime:
        return datetime.fromtimestamp(self._now / 1000, UTC)


class _ManualTimer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def fire(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


def to_ms(moment: datetime) -> int:
    """Milliseconds since the epoch, rounded up: what is due at a moment never starts before it.

    >>> to_ms(datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC))
    1001
    """
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise ValueError(
            f"{moment!r} has no time zone; pass an aware datetime, for example datetime.now(UTC) or .replace(tzinfo=…)"
        )
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + ceil(since.microseconds / 1000)


def from_ms(ms: float) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


_JUMP = 1000.0  # ms: less is the drift of two clocks, and of asking them one after the other
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
