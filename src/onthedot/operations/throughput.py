"""Throughput: the change feed, folded into counts per second."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from onthedot.stores.contract import ChangeEntry, Transition

Step: TypeAlias = Literal["started", "succeeded", "failed", "cancelled", "retried"]
"""retried: requeued after a run, for any reason: retry, snooze, a dead worker."""

ENDS: tuple[Step, ...] = ("succeeded", "failed", "cancelled")
_STEPS: dict[str, Step] = {
    "running": "started", "succeeded": "succeeded", "failed": "failed", "cancelled": "cancelled",
}  # fmt: skip
MAX_RUNNING = 100_000  # tasks whose end was not seen, because their entries were purged before they were read
_MAX_DURATIONS = 500  # per source
_NOTHING: Counter[tuple[str, Step]] = Counter()


class Throughput:
    """Folds entries of the change feed. It has no store and no clock: the caller passes its time in ms, by any clock.

    Entries carry the store's time. The newest entry gives the difference between both clocks, so that two machines need
    not agree on the time, and late entries are counted in their second.
    """

    def __init__(self, now: float, seconds: int = 60) -> None:
        self._seconds = seconds
        self._began = now
        self._now = now
        self._ahead: float | None = None  # ms by which the clock of the store is ahead
        self._by_second: dict[int, Counter[tuple[str, Step]]] = {}
        self.transition_count: int = 0  # all that were folded
        self.running: dict[str, int] = {}  # when each began, by the store's clock; in order
        self.durations: dict[str, deque[int]] = {}  # ms of the newest runs that succeeded or failed, by source
        self.failures: deque[tuple[int, str]] = deque(maxlen=20)  # when, uuid; the newest last

    def fold(self, entries: Iterable[ChangeEntry], now: float) -> int:
        """Return the number of transitions.

        Starts and ends are counted in full. Retries, durations and failures are those of the transitions that carry
        the uuid of their task.
        """
        self._now = now
        number = 0
        for entry in entries:
            self._set_time(entry.at)
            steps = self._by_second.setdefault(entry.at // 1000, Counter())
            for source, by_state in entry.counts.items():
                number += sum(by_state.values())
                steps.update({(source, _STEPS[state]): by_state[state] for state in by_state if state in _STEPS})
            for transition in entry.transitions:
                if self._is_retried(transition):
                    steps[transition.source, "retried"] += 1
        first = self._store_now() // 1000 - self._seconds
        self._by_second = {second: steps for second, steps in self._by_second.items() if second > first}
        self.transition_count += number
        return number

    def _set_time(self, newest: int) -> None:
        ahead = newest - self._now
        stepped_back = self._ahead is not None and ahead < self._ahead - self._seconds * 1000
        if self._ahead is None or stepped_back:
            self._ahead = ahead
        self._ahead = max(ahead, self._ahead)

    def _is_retried(self, transition: Transition) -> bool:
        """Also notes its start, its duration or its failure."""
        state = transition.state
        began = self.running.pop(transition.uuid, None)
        if state == "running":
            self.running[transition.uuid] = transition.at
            if len(self.running) > MAX_RUNNING:
                del self.running[next(iter(self.running))]
        if state == "failed":
            self.failures.append((transition.at, transition.uuid))
        if began is not None and state in ("succeeded", "failed"):
            durations = self.durations.setdefault(transition.source, deque(maxlen=_MAX_DURATIONS))
            durations.append(transition.at - began)
        return began is not None and state not in _STEPS

    def _store_now(self) -> int:
        """The store's time; 0 if no entry was read yet."""
        if self._ahead is None:
            return 0
        return int(self._now + self._ahead)

    def rates(self, seconds: int = 10) -> Mapping[tuple[str, Step], float]:
        """Return steps per second by source, over the last seconds, or over all since the start if these are fewer."""
        now = self._store_now()
        began = self._began + (self._ahead or 0)
        first = now // 1000 - seconds + 1
        total: Counter[tuple[str, Step]] = Counter()
        for second, counts in self._by_second.items():
            if first <= second <= now // 1000:
                total.update(counts)
        span = max(1.0, (now - max(began, first * 1000)) / 1000)
        return {which: number / span for which, number in total.items()}

    def history(self, *steps: Step, source: str | None = None) -> list[int]:
        """Return the number of these steps per second, the oldest first, without the current second.

        source: only of this one.
        """
        last = self._store_now() // 1000
        return [
            sum(
                number
                for (each, step), number in self._by_second.get(second, _NOTHING).items()
                if step in steps and source in (None, each)
            )
            for second in range(last - self._seconds + 1, last)
        ]
