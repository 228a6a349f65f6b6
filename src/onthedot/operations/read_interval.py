"""When a repeated read of the store is due again."""

from __future__ import annotations

from math import inf

from onthedot.clock.protocol import Clock

_LOAD = 50  # an interval lasts at least this many times as long as the read before it


class ReadInterval:
    """A read is due after its interval, or after 50 times its duration."""

    def __init__(self, clock: Clock, ms: float) -> None:
        self._clock = clock
        self._ms = ms
        self._began = 0.0
        self._next = -inf

    @property
    def is_over(self) -> bool:
        return self._clock.now() >= self._next

    def begin(self) -> None:
        self._began = self._clock.now()

    def end(self) -> None:
        now = self._clock.now()
        self._next = max(self._began + self._ms, now + _LOAD * (now - self._began))

    def expire(self) -> None:
        self._next = -inf
