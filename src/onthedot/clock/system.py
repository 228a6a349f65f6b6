"""The clock of this machine, and its timer.

asyncio rounds its timers up to whole milliseconds, and due times are whole milliseconds already: the two roundings made
a task up to 2 ms late. The last part of a wait therefore uses Linux's ``timerfd``; other systems use asyncio's timer.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Protocol, cast

from onthedot.clock.protocol import Timer

_MIN_JUMP = 1000.0  # ms: smaller differences are drift, and the time between the two readings
_TIMERFD_RANGE = 0.02  # seconds: a wait no longer than this uses timerfd
_CLOCK_MONOTONIC = 1
_FLAGS = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


class _Kernel(Protocol):
    def timerfd_create(self, clock: int, flags: int) -> int: ...
    def timerfd_settime(self, fd: int, flags: int, new: bytes, old: None) -> int: ...


@cache
def timerfd_library() -> _Kernel | None:
    """The C library where it has timerfd, else None; Python itself has these calls only from 3.13 on."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    libc = ctypes.CDLL(None)
    if not hasattr(libc, "timerfd_create"):
        return None
    return cast("_Kernel", libc)


class PreciseTimer:
    """Calls back on the running loop, once, unless it is cancelled before.

    The loop's own time is not used: that of uvloop is in whole milliseconds and stands still during a callback.
    """

    def __init__(self, seconds: float, callback: Callable[[], object]) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._moment = time.monotonic() + seconds
        self._fd = -1
        self._timer: asyncio.Handle | None = None
        self._set()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _set(self) -> None:
        left = self._moment - time.monotonic()
        kernel = timerfd_library()
        if left > _TIMERFD_RANGE:
            # Half of the range is left: asyncio's timer may be late by a millisecond, or more on a busy loop.
            self._timer = self._loop.call_later(left - _TIMERFD_RANGE / 2, self._set)
            return
        if kernel is not None:
            self._fd = kernel.timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
        if kernel is None or self._fd < 0:  # no timerfd, or no descriptor left: as precise as asyncio
            self._timer = self._loop.call_later(left, self._fire)
            return
        wait = max(0, int(left * 1e9)) + 1  # never early; and 0 would disarm it
        kernel.timerfd_settime(self._fd, 0, struct.pack("@4q", 0, 0, *divmod(wait, 10**9)), None)
        self._loop.add_reader(self._fd, self._fire)

    def _fire(self) -> None:
        self.cancel()
        if time.monotonic() < self._moment:  # uvloop rounds its timers to the nearest millisecond
            self._set()
        else:
            self._callback()


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
