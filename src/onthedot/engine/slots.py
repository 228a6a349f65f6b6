"""How many more tasks this process can take, of which sources, shared fairly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from onthedot.definitions.sources import Source, Sources
from onthedot.stores.contract import SlotPool

_FEW = 20  # to ask so many in vain costs no more than another turn


class Slots:
    """Slots by pool (an executor's, or one for all). A source that had nothing rests until a hint or its time."""

    def __init__(
        self, sources: Sources, totals: Mapping[str, int], *, one_pool: bool = False, batch: int | None = None
    ) -> None:
        self._sources = sources
        self._batch = batch  # the most of a pool that one claim takes; None: as many as are free
        self._totals = {"": totals["async"]} if one_pool else dict(totals)
        self._one_pool = one_pool
        self._busy: defaultdict[str, int] = defaultdict(int)  # by pool
        self._running: defaultdict[str, int] = defaultdict(int)  # by source
        self._pools: dict[str, str] = {}  # by source
        self._active: dict[str, Source] = {}
        self._timed: dict[str, float] = {}
        self._hinted: set[str] = set()  # since the last ask: its answer may be older than the hint
        self._turns = 0
        self.refresh()

    def refresh(self) -> None:
        """The sources have changed: all are worth asking."""
        self._hinted.update(self._sources.known)
        self._active = dict(self._sources.items())
        self._pools |= {name: self._pool_of(source) for name, source in self._active.items()}
        self._timed.clear()

    def _pool_of(self, source: Source) -> str:
        return "" if self._one_pool else source.executor

    @property
    def running(self) -> int:
        return sum(self._busy.values())

    def pools(self, now: float, *, rang: bool = False, polls: bool = False) -> Sequence[SlotPool]:
        """Max-min: no source gets more than its share of a pool while others may have work.

        rang: an alarm has come, and it may be anybody's. A few who rest are asked as well, if slots are left for all of
        them: it spares a turn, and must not cost many, nor the slots of those who do have work.

        polls: a hint may have been lost. All who rest are asked in one question, and by age get what there is.
        """
        self._hinted.clear()
        self.wake([name for name, until in self._timed.items() if until <= now])
        active: defaultdict[str, list[tuple[str, Source]]] = defaultdict(list)
        resting: defaultdict[str, list[tuple[str, Source]]] = defaultdict(list)
        for name, source in self._active.items():
            active[self._pools[name]].append((name, source))
        for name, source in self._sources.items() if rang or polls else ():
            if name not in self._active:
                resting[self._pool_of(source)].append((name, source))
        pools = [pool for pool in self._totals if active[pool] or resting[pool]]
        return [self._pool(pool, active[pool], resting[pool], polls=polls) for pool in pools]

    def offer(self) -> dict[str, int]:
        """How many could be taken, of one source or another."""
        free = {pool: total - self._busy[pool] for pool, total in self._totals.items()}
        if self._batch is not None:
            free = {pool: min(most, self._batch) for pool, most in free.items()}
        return {name: self._room(name, source, free[self._pool_of(source)]) for name, source in self._sources.items()}

    def _pool(
        self, pool: str, active: list[tuple[str, Source]], resting: list[tuple[str, Source]], *, polls: bool
    ) -> SlotPool:
        free = self._totals[pool] - self._busy[pool]
        if free <= 0:
            self.wake([name for name, _ in resting if polls])  # asked when a slot is free
            return SlotPool(0, {})
        free = free if self._batch is None else min(free, self._batch)
        room = self._shared(pool, active, free)
        left = free - sum(room.values())
        if 0 < len(resting) <= min(left, _FEW):
            room |= self._shared(pool, resting, left)
        elif polls:
            room |= {name: self._room(name, source, 1) for name, source in resting}
        room = {name: most for name, most in room.items() if most > 0}
        self.wake(room)
        return SlotPool(free, room)

    def _shared(self, pool: str, sources: list[tuple[str, Source]], free: int) -> dict[str, int]:
        room = {name: self._room(name, source, free) for name, source in sources}
        if self._totals[pool] > 1 and len(room) > 1:  # a single slot goes by age alone
            self._turns += 1
            room = share(free, {name: self._running[name] for name in room}, room, self._turns)
        return room

    def _room(self, name: str, source: Source, free: int) -> int:
        own = source.max_running()
        return free if own is None else max(0, min(free, own - self._running[name]))

    def has_work(self) -> bool:
        """Is there a free slot, and somebody who may have work for it?"""
        for name, source in self._active.items():
            pool = self._pools[name]
            if self._totals[pool] > self._busy[pool] and self._room(name, source, 1) > 0:
                return True
        return False

    def next_in(self, now: float) -> float | None:
        """ms until a resting source is worth asking again."""
        return min((max(0.0, until - now) for until in self._timed.values()), default=None)

    def count(self, names: Sequence[str], by: int) -> None:
        """by=+1: these have begun; by=-1: these have ended."""
        for name in set(names):  # few names, many times each: counting is quicker than a Counter
            number = by * names.count(name)
            self._busy[self._pools[name]] += number
            self._running[name] += number

    def mark_idle(self, sources: Mapping[str, float | None], now: float) -> None:
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
                self._pools[name] = self._pool_of(source)
                woken = True
            self._timed.pop(name, None)
        return woken


def share(free: int, running: Mapping[str, int], most: Mapping[str, int], turn: int) -> dict[str, int]:
    """Max-min: the free slots go to those who run least, up to what each may take.

    What cannot be divided goes to a few, to others in the next turn.

    >>> share(4, {"a": 3, "b": 0}, {"a": 4, "b": 4}, 0)
    {'a': 1, 'b': 3}
    >>> share(4, {"a": 0, "b": 0, "c": 0}, {"a": 4, "b": 4, "c": 4}, 0)
    {'a': 2, 'b': 1, 'c': 1}
    """
    low, high = 0, free + max(running.values())
    while low < high:  # the highest level to which all can be filled
        level = (low + high + 1) // 2
        if sum(_filled(running, most, level).values()) <= free:
            low = level
        else:
            high = level - 1
    room = _filled(running, most, low)
    left = free - sum(room.values())
    names = list(room)
    for name in names[turn % len(names) :] + names[: turn % len(names)]:
        if left > 0 and room[name] < most[name] and running[name] + room[name] <= low:
            room[name] += 1
            left -= 1
    return room


def _filled(running: Mapping[str, int], most: Mapping[str, int], level: int) -> dict[str, int]:
    return {name: max(0, min(most[name], level - running[name])) for name in running}
