"""How many tasks may wait: ``max_pending`` of a source, or of the app. Past it, adding is refused."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from onthedot.definitions.sources import Sources
from onthedot.errors import StoreFull
from onthedot.stores.contract import NewTask, State, Store

_WAITING: tuple[State, ...] = ("scheduled", "ready", "parked")


@dataclass
class PendingLimits:
    """What was said. It costs an addition one look at these where nothing was."""

    sources: Sources
    all: int | None = None  # of the app
    other: int | None = None  # of each source that this process does not know
    _seen: frozenset[str] | None = None
    _by_source: dict[str, int] | None = None

    def apply(self) -> bool:
        if self.sources.known is not self._seen:  # another object whenever a source comes or goes
            said = {name: source.options.max_pending for name, source in self.sources.items()}
            self._by_source = {name: most for name, most in said.items() if most is not None}
            self._seen = self.sources.known
        return bool(self._by_source) or self.all is not None or self.other is not None

    def of(self, source: str) -> int | None:
        return (self._by_source or {}).get(source) if source in self.sources.known else self.other


class PendingGate:
    """Looks at the store's tally before it adds, and counts what it is adding itself.

    Exact for those who add one after the other. Those who add at the same moment on other loops or in other processes
    do not see each other: together they may go past the bound by what they add at once.
    """

    def __init__(self, store: Store, bounds: PendingLimits) -> None:
        self.bounds = bounds
        self._store = store
        self._adding: Counter[str] = Counter()
        self._lock = threading.Lock()  # to a store that never suspends, threads add through one of these

    async def reserve(self, tasks: Sequence[NewTask]) -> Counter[str]:
        """StoreFull: nothing may be added. Else they count until `leave`."""
        coming = Counter(task.source for task in tasks)
        with self._lock:
            before = self._adding.copy()
            self._adding.update(coming)
        try:
            for (source, state), number in (await self._store.tally()).items():
                before[source] += number if state in _WAITING else 0
            for source, number in coming.items():
                _check(f"{source}: ", before[source], number, self.bounds.of(source))
            _check("", before.total(), coming.total(), self.bounds.all)
        except BaseException:
            self.release(coming)
            raise
        return coming

    def release(self, coming: Counter[str]) -> None:
        with self._lock:
            self._adding -= coming  # drops what is zero


def _check(whose: str, waiting: int, coming: int, most: int | None) -> None:
    if most is not None and waiting + coming > most:
        raise StoreFull(
            f"{whose}{waiting:,} tasks wait already and max_pending is {most:,}: "
            f"{'nothing' if coming == 1 else f'none of {coming:,}'} was added; try again when some have started"
        )
