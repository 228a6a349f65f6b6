"""How many more tasks this process can take, of which sources, shared fairly."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from onthedot.engine.source import Source, Sources
from onthedot.stores.contract import Pool


class Slots:
    """Slots by pool (an executor's, or one for all). A source that had nothing rests until a hint, its time, or `woke`."""

    def __init__(self, sources: Sources, totals: Mapping[str, int], *, one_pool: bool = False) -> None:
        self._sources = sources
        self._totals = {"": totals["async"]} if one_pool else dict(totals)
        self._one_pool = one_pool
        self._busy: defaultdict[str, int] = defaultdict(int)  # by pool
        self._running: defaultdict[str, int] = defaultdict(int)  # by source
        self._pools: dict[str, str] = {}  # by source
        self._active: dict[str, Source] = {}
        self._timed: dict[str, float] = {}
        self._hinted: set[str] = set()  # since the last ask: its answer may be older than the hint
        self.refresh()

    def refresh(self) -> None:
        """The sources have changed: all are worth asking."""
        self._hinted.update(self._sources.known)
        self._active = dict(self._sources.items())
        self._pools |= {name: "" if self._one_pool else source.executor for name, source in self._active.items()}
        self._timed.clear()

    @property
    def running(self) -> int:
        return sum(self._busy.values())

    def ask(self, now: float) -> Sequence[Pool]:
        """Max-min: no source gets more than its share of a pool while others may have work."""
        self._hinted.clear()
        self.wake([name for name, until in self._timed.items() if until <= now])
        active: defaultdict[str, list[tuple[str, Source]]] = defaultdict(list)
        for name, source in self._active.items():
            active[self._pools[name]].append((name, source))
        return [self._pool(pool, sources) for pool, sources in active.items()]

    def _pool(self, pool: str, sources: list[tuple[str, Source]]) -> Pool:
        total = self._totals[pool]
        free = total - self._busy[pool]
        if free <= 0:
            return Pool(0, {})
        share = total if total == 1 else -(-total // len(sources))
        room = {}
        for name, source in sources:
            running = self._running[name]
            own = source.room()
            most = share - running if own is None else min(share, own) - running
            if most > 0:
                room[name] = min(free, most)
        return Pool(free, room)

    def count(self, names: Iterable[str], by: int) -> None:
        """by=+1: these have begun; by=-1: these have ended."""
        for name, number in Counter(names).items():
            self._busy[self._pools[name]] += by * number
            self._running[name] += by * number

    def rest(self, sources: Mapping[str, float | None], now: float) -> None:
        for name, wait in sources.items():
            if name in self._hinted:
                continue
            self._active.pop(name, None)
            if wait is not None:
                self._timed[name] = now + wait

    def hint(self, names: Iterable[str]) -> None:
        self._hinted.update(names)
        self.wake(names)

    def wake(self, names: Iterable[str]) -> bool:
        """True: there is one among them that rested."""
        woken = False
        for name in names:
            source = self._sources.get(name)
            if source is not None and name not in self._active:
                self._active[name] = source
                woken = True
            self._timed.pop(name, None)
        return woken
