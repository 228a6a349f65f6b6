"""The clock of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable

from onthedot.clock.precise_timer import PreciseTimer
from onthedot.clock.protocol import Timer

_MIN_JUMP = 1000.0  # ms: smaller differences are drift, and the time between the two readings


class SystemClock:
    """The monotonic clock, anchored to UTC when it is created: a jump of the wall clock moves no task."""

    is_system = True

    def __init__(self) -> None:
        # The maximum of a few readings: an interruption between the two calls would make the anchor late for good.
        self._anchor = max(time.time_ns() - time.monotonic_ns() for _ in range(3))

    def now(self) -> float:
        return (self._anchor + time.monotonic_ns()) / 1e6

    def wall_clock_jump(self) -> float:
        jump = time.time_ns() / 1e6 - self.now()
        return jump if abs(jump) >= _MIN_JUMP else 0.0

    def call_later(self, ms: float, callback: Callable[[], object]) -> Timer:
        return PreciseTimer(ms / 1000, callback)
