"""The clock that the engine and the memory store use instead of the system's, so that tests can drive time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A callback that is due; `cancel` before its time prevents the call."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The current time and timers."""

    is_system: bool  # the machine's time: a server's own clock agrees with it, and threads may wait by it

    def now(self) -> float:
        """Milliseconds since the epoch, UTC, with fractions."""
        ...

    def wall_clock_jump(self) -> float:
        """Milliseconds by which the wall clock has jumped ahead of this clock."""
        ...

    def call_later(self, ms: float, callback: Callable[[], object]) -> Timer:
        """Calls back on the running loop, never early by this clock."""
        ...
