"""Clocks on the virtual time of the loop: each node has its own, and so has the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from onthedot.clock.protocol import Timer

EPOCH = 1_767_225_600_000.0  # 2026-01-01 in UTC


class SimClock:
    """A monotonic clock that differs from the true time by `skew` ms, and a wall clock that may jump."""

    is_system = False

    def __init__(self, loop: asyncio.AbstractEventLoop, skew: float = 0.0) -> None:
        self._loop = loop
        self.skew: float = skew
        self.jump: float = 0.0

    def now(self) -> float:
        return self.at(self._loop.time())

    def at(self, time: float) -> float:
        """This clock in ms, at a time of the loop in seconds."""
        return EPOCH + time * 1000 + self.skew

    def wall_clock_jump(self) -> float:
        return self.jump

    def call_later(self, ms: float, callback: Callable[[], object]) -> Timer:
        timer: Timer = self._loop.call_later(max(0.0, ms) / 1000, callback)
        return timer
