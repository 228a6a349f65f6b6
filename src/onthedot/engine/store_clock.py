"""The store's clock as this process sees it."""

from __future__ import annotations

from math import inf

from onthedot.observability.events import Observer

_MIN_STEP = 1_000.0  # ms; less is network latency, or a clock that is being slewed
_DRIFT = 1e-5  # of two clocks against each other


class StoreClock:
    """Compares the store's clock with the worker's monotonic clock, turn by turn.

    The store read its clock between our request and its answer, so the offset of the two clocks is known as a range.
    A step is a difference that no two values in the ranges of two turns explain.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._low: float | None = None  # range of the offset in the last turn
        self._high = 0.0
        self._offset = inf  # at most, by the fastest requests of late
        self._sent = 0.0

    @property
    def offset(self) -> float | None:
        """The ms by which the clock of this process is ahead of the store's; None: not known yet."""
        if self._low is None:
            return None
        return -self._offset

    def observe(self, sent: float, store: float, answered: float) -> float:
        """The time by our clock at which a request reads `store` on the store's clock.

        It assumes the latency of the fastest requests of late. So a claim for a task that is due at a moment of the
        store is sent neither too early, which would cost another turn, nor later than necessary.
        """
        low = store - answered
        high = store - sent
        if self._low is not None:
            step = max(low - self._high, 0.0) or min(high - self._low, 0.0)
            if abs(step) >= _MIN_STEP:
                self._observer.clock_stepped(step)
        self._low = low
        self._high = high
        self._offset += _DRIFT * (sent - self._sent)
        if not low <= self._offset < high:
            self._offset = high
        self._sent = sent
        return store - self._offset
