"""The lag of an event loop: how late it runs its timers."""

from __future__ import annotations

import asyncio
from collections import deque
from math import ceil

INTERVAL = 0.5  # seconds between two timers
_WINDOW = 120  # timers: one minute


class LoopLag:
    """Sets a timer twice per second, and keeps the lags of the last minute.

    A timer that is late by several intervals counts once for each of them: a loop that is blocked for five seconds
    would have been late for ten timers.
    """

    def __init__(self) -> None:
        self._lags: deque[float] = deque(maxlen=_WINDOW)  # seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        """On the event loop that is measured."""
        self._loop = asyncio.get_running_loop()
        self._set_timer(self._loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def p99(self) -> float | None:
        """In ms; None: not measured yet."""
        if not self._lags:
            return None
        return sorted(self._lags)[ceil(0.99 * len(self._lags)) - 1] * 1000

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = loop.time() + INTERVAL
        self._timer = loop.call_at(self._due, self._note, loop)

    def _note(self, loop: asyncio.AbstractEventLoop) -> None:
        self.note(loop.time() - self._due)
        self._set_timer(loop)

    def note(self, lag: float) -> None:
        """A timer was late by so many seconds."""
        self._lags.append(max(0.0, lag))
        for missed in range(1, min(_WINDOW, int(lag / INTERVAL) + 1)):
            self._lags.append(lag - missed * INTERVAL)
