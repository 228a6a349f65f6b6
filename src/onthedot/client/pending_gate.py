"""``max_pending`` of a source or of the app: above it, an add is refused."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from onthedot.definitions.sources import Sources
from onthedot.errors import StoreFull
from onthedot.stores.contract import PENDING, NewTask, Store


@dataclass
class PendingLimits:
    """The limits of the sources and of the app. Where there are none, they cost an add one comparison.

    sources: the definitions of this process
    all: how many pending tasks the app may have
    other: how many each source may have that this process does not define
    """

    sources: Sources
    all: int | None = None
    other: int | None = None

    def __post_init__(self) -> None:
        self.by_source: dict[str, int] = self.sources.max_pending
        self.for_all: bool = self.all is not None or self.other is not None

    def of(self, source: str) -> int | None:
        return self.by_source.get(source) if source in self.sources.known else self.other


class PendingGate:
    """Reads the store's tally before an add, and counts the adds in progress of this client.

    Exact for adds one after the other. Concurrent adds of other loops or processes do not see each other: together they
    may exceed the limit by what they add at once.
    """

    def __init__(self, store: Store, bounds: PendingLimits) -> None:
        self.bounds = bounds
        self._store = store
        self._adding: Counter[str] = Counter()
        self._lock = threading.Lock()  # threads share the client of a synchronous store

    async def reserve(self, tasks: Sequence[NewTask]) -> Counter[str]:
        """Counts tasks as pending until `release`. Raises StoreFull if they exceed a limit; then none may be added."""
        coming = Counter(task.source for task in tasks)
        with self._lock:
            before = self._adding.copy()
            self._adding.update(coming)
        try:
            for (source, state), number in (await self._store.tally()).items():
                if state in PENDING:
                    before[source] += number
            for source, number in coming.items():
                _check(f"{source}: ", before[source], number, self.bounds.of(source))
            _check("", before.total(), coming.total(), self.bounds.all)
        except BaseException:
            self.release(coming)
            raise
        return coming

    def release(self, coming: Counter[str]) -> None:
        with self._lock:
            self._adding -= coming  # and drops zeros


def _check(prefix: str, pending: int, coming: int, most: int | None) -> None:
    if most is None or pending + coming <= most:
        return
    what = "nothing"
    if coming > 1:
        what = f"none of {coming:,}"
    raise StoreFull(
        f"{prefix}{pending:,} tasks wait already and max_pending is {most:,}: {what} was added; try again when some "
        "have started"
    )
