"""How fast it goes: the change log, folded into what happened in each of the last seconds."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from onthedot.stores.contract import ChangeEntry

Step: TypeAlias = Literal["started", "succeeded", "failed", "cancelled", "retried"]
"""retried: back from a run that did not end it, whatever the reason: retry, snooze, its worker went."""

ENDS: tuple[Step, ...] = ("succeeded", "failed", "cancelled")
_STEPS: dict[str, Step] = {
    "running": "started", "succeeded": "succeeded", "failed": "failed", "cancelled": "cancelled",
}  # fmt: skip
_MOST_RUNNING = 100_000  # of those whose end was never seen, since they were purged before somebody looked
_NOTHING: Counter[tuple[str, Step]] = Counter()


class Throughput:
    """Knows neither a store nor a clock: it is told rows of the log, and what time it is by any clock in ms.

    Rows carry the store's time. How far that is ahead of the clock is seen from the newest row, so that two machines
    need not agree on the time, and rows that come late are counted where they belong.
    """

    def __init__(self, clock: float, seconds: int = 60) -> None:
        self._seconds = seconds
        self._began = self._clock = clock
        self._ahead: float | None = None
        self._by_second: dict[int, Counter[tuple[str, Step]]] = {}
        self._running: dict[str, None] = {}  # a set that knows its oldest
        self.failures: deque[tuple[int, str]] = deque(maxlen=20)  # when, uuid; the newest last

    def fold(self, entries: Iterable[ChangeEntry], clock: float) -> int:
        """Return the number of transitions."""
        self._clock = clock
        transitions = [transition for entry in entries for transition in entry.transitions]
        if transitions:
            self._set_time(max(transition.at for transition in transitions))
        for transition in transitions:
            step = self._step(transition.uuid, transition.state)
            if step is not None:
                self._by_second.setdefault(transition.at // 1000, Counter())[transition.source, step] += 1
            if step == "failed":
                self.failures.append((transition.at, transition.uuid))
        first = self._now() // 1000 - self._seconds
        self._by_second = {second: steps for second, steps in self._by_second.items() if second > first}
        return len(transitions)

    def _set_time(self, newest: int) -> None:
        ahead = newest - self._clock
        stepped_back = self._ahead is not None and ahead < self._ahead - self._seconds * 1000
        self._ahead = ahead if self._ahead is None or stepped_back else max(ahead, self._ahead)

    def _step(self, uuid: str, state: str) -> Step | None:
        ran = self._running.pop(uuid, self) is None
        if state == "running":
            self._running[uuid] = None
            if len(self._running) > _MOST_RUNNING:
                del self._running[next(iter(self._running))]
        return _STEPS.get(state) or ("retried" if ran else None)

    def _now(self) -> int:
        """By the store; 0: nothing was ever heard of it, and so there is nothing to count."""
        return 0 if self._ahead is None else int(self._clock + self._ahead)

    def rates(self, over: int = 10) -> Mapping[tuple[str, Step], float]:
        """By source and step, a second: over the last so many of them, or over all, if it has not been so many yet."""
        now, began = self._now(), self._began + (self._ahead or 0)
        first = now // 1000 - over + 1
        many: Counter[tuple[str, Step]] = Counter()
        for second, counts in self._by_second.items():
            if first <= second <= now // 1000:
                many.update(counts)
        span = max(1.0, (now - max(began, first * 1000)) / 1000)
        return {which: number / span for which, number in many.items()}

    def history(self, *steps: Step) -> list[int]:
        """How many in each of the seconds, the oldest first; the one that is not over yet is left out."""
        last = self._now() // 1000
        return [
            sum(number for (_, step), number in self._by_second.get(second, _NOTHING).items() if step in steps)
            for second in range(last - self._seconds + 1, last)
        ]
