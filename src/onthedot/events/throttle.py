"""The pause of an agent that is throttled: this process starts none of its tasks until it is over."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

_JITTER = 0.1


class Throttle:
    """The pause of one agent in this process. Tasks may run in threads, so `pause` comes from any thread.

    now: ms, by the clock of the process. on_pause: called with the ms of a new pause that is longer than the last.
    """

    def __init__(self, now: Callable[[], float], on_pause: Callable[[float], object]) -> None:
        self._now = now
        self._on_pause = on_pause
        self._until = 0.0  # 0: there was none
        self._random = Random()

    def pause(self, ms: float) -> None:
        """Starts nothing for so long, counted from now."""
        until = self._now() + ms
        if until > self._until:
            self._until = until
            self._on_pause(ms)

    def left(self) -> float:
        """Ms until the pause is over; 0: there is none."""
        return max(0.0, self._until - self._now()) if self._until else 0.0

    def wait(self) -> float:
        """Ms after which a task that was claimed during the pause is due: not all of them at once."""
        return self.left() * self._random.uniform(1, 1 + _JITTER)
