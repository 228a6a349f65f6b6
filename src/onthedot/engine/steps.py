"""Noticing that the store's clock was set."""

from __future__ import annotations

from onthedot.observe.logs import Logs

LEAST = 1_000.0  # ms; less is a network that stumbled, or a clock that is being slowed down


class Steps:
    """Compares the store's clock with our monotonic one, turn by turn.

    The store looked at its clock somewhere between our question and its answer, so the distance of the two clocks is
    known as a range; a step is what no two places in the ranges of two turns can explain.
    """

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._range: tuple[float, float] | None = None

    def look(self, asked: float, store: float, answered: float) -> None:
        low, high = store - answered, store - asked
        before, self._range = self._range or (low, high), (low, high)
        step = max(low - before[1], 0.0) or min(high - before[0], 0.0)
        if abs(step) >= LEAST:
            way = "ahead" if step > 0 else "back"
            self._logs.scheduler.warning(
                "[clock] the store's clock was set %s by %.1f s: due times go by it, and no window of a schedule "
                "fires twice", way, abs(step) / 1000,
            )  # fmt: skip
