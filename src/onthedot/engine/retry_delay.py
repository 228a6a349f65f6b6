"""Delays between attempts at an operation that fails."""

from __future__ import annotations

_FIRST = 100.0  # ms
_MAX = 5_000.0


class RetryDelay:
    """Doubles from attempt to attempt until `reset`."""

    def __init__(self) -> None:
        self._next = _FIRST

    def next(self) -> float:
        """ms to wait before the next attempt."""
        delay = self._next
        self._next = min(delay * 2, _MAX)
        return delay

    def reset(self) -> None:
        self._next = _FIRST
