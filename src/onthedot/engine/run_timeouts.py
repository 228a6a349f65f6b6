"""The timeouts of runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from onthedot.clock.protocol import Clock, Timer
from onthedot.engine.run import Run


class RunTimeouts:
    """Calls back for each run that takes too long.

    Runs with the same timeout are due in the order in which they began, so they share one timer: most runs end long
    before, and a timer for each would cost more than the rest of a short run. It may fire for a run that has ended,
    until `release`.
    """

    def __init__(self, clock: Clock, on_timeout: Callable[[Run], object]) -> None:
        self._clock = clock
        self._on_timeout = on_timeout
        self._queues: dict[int, dict[Run, None]] = {}  # by timeout, in ms: the runs, in the order of their deadlines
        self._timers: dict[int, Timer] = {}

    def start(self, run: Run, timeout: int) -> None:
        """The timeout of a run begins, in ms."""
        run.deadline_ms = self._clock.now() + timeout
        run.timeout_queue = self._queues.setdefault(timeout, {})
        run.timeout_queue[run] = None
        if timeout not in self._timers:
            self._timers[timeout] = self._clock.call_later(timeout, partial(self._fire, timeout))

    def end(self, run: Run) -> None:
        """A run has ended."""
        if run.timeout_queue is not None:
            run.timeout_queue.pop(run, None)

    def release(self) -> None:
        """No run is left: no timer remains."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._queues.clear()

    def _fire(self, timeout: int) -> None:
        del self._timers[timeout]
        queue = self._queues[timeout]
        now = self._clock.now()
        while queue:
            run = next(iter(queue))
            assert run.deadline_ms is not None
            left = run.deadline_ms - now
            if left > 0:
                self._timers[timeout] = self._clock.call_later(left, partial(self._fire, timeout))
                return
            del queue[run]
            self._on_timeout(run)
