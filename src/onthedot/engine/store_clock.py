"""The store's clock, seen from here: when to ask it, and that it was set."""

from __future__ import annotations

from math import inf

from onthedot.observability.logs import LogObserver

LEAST = 1_000.0  # ms; less is a network that stumbled, or a clock that is being slowed down
_DRIFT = 1e-5  # by which two clocks may go apart


class StoreClock:
    """Compares the store's clock with our monotonic one, turn by turn.

    The store looked at its clock somewhere between our question and its answer, so the distance of the two clocks is
    known as a range. A step is what no two places in the ranges of two turns can explain.
    """

    def __init__(self, logs: LogObserver) -> None:
        self._logs = logs
        self._range: tuple[float, float] | None = None
        self._ahead = inf  # at most, by what the quickest questions of late have told
        self._asked = 0.0

    def observe(self, asked: float, store: float, answered: float) -> float:
        """When to have asked, by our clock, for the store to look at just this moment.

        If the question went as quickly as the quickest of late. So what is due at a moment of the store's is asked for
        neither too early, which would cost another turn, nor later than it must be.
        """
        low, high = store - answered, store - asked
        self._tell_of_a_step(low, high)
        self._range = low, high
        ahead = self._ahead + _DRIFT * (asked - self._asked)
        self._ahead = ahead if low <= ahead < high else high
        self._asked = asked
        return store - self._ahead

    def _tell_of_a_step(self, low: float, high: float) -> None:
        before = self._range or (low, high)
        step = max(low - before[1], 0.0) or min(high - before[0], 0.0)
        if abs(step) >= LEAST:
            way = "ahead" if step > 0 else "back"
            self._logs.scheduler.warning(
                "[clock] the store's clock was set %s by %.1f s: due times go by it, and no window of a schedule "
                "fires twice", way, abs(step) / 1000,
            )  # fmt: skip
