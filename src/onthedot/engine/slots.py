"""The free slots of a worker: how many more tasks it can take, of which sources."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from onthedot.definitions.sources import Source, Sources
from onthedot.engine.claim_size import ClaimSize
from onthedot.model.executor_names import ASYNC
from onthedot.stores.contract import SlotPool

_MAX_EXTRA_SOURCES = 20  # a claim for so many idle sources costs no more than another turn


class PoolUsage(NamedTuple):
    """How many slots a pool has, and how many of them are taken."""

    total: int
    busy: int


class Slots:
    """Slots by pool: one pool per executor, or one for all; a built-in source may have a pool of its own.

    A source without ready tasks is idle: claims leave it out until a hint, or until the time that the store has named.
    Async tasks that end at once are claimed ahead: more of them than there are slots. They start when a slot is free.
    """

    def __init__(
        self, sources: Sources, totals: Mapping[str, int], *, one_pool: bool = False, claim_batch: int | None = None
    ) -> None:
        self._sources = sources
        self._claim_batch = claim_batch  # most tasks of a pool per claim; None: as many as there are free slots
        self._totals = {"": totals[ASYNC]} if one_pool else dict(totals)
        self._one_pool = one_pool
        self._async_size: ClaimSize | None = None  # None: no task is claimed ahead
        if not one_pool and claim_batch is None and ASYNC in self._totals:
            self._async_size = ClaimSize(self._totals[ASYNC])
        self._busy: defaultdict[str, int] = defaultdict(int)  # by pool
        self._running: defaultdict[str, int] = defaultdict(int)  # by source
        self._freed: list[str] = []  # sources of runs that have ended since the last claim
        self.release: Callable[[str], None] = self._freed.append  # a run of this source has ended
        self._pools: dict[str, str] = {}  # by source
        self._active: dict[str, Source] = {}
        self._idle_until: dict[str, float] = {}
        self._hinted: set[str] = set()  # since the last claim was built: its answer may be older than the hint
        self._shares = 0
        self._wait_over = False  # a task of any source may be ready in the next claim
        self.closed: bool = False  # the worker stops: no claim and no start
        self.refresh()

    def close(self) -> None:
        self.closed = True

    def refresh(self) -> None:
        """The sources have changed, or hints may have been lost: every source is active."""
        self._hinted.update(self._sources.known)
        self._totals |= self._sources.own_slots
        self._active = dict(self._sources.items())
        self._pools |= {name: self._pool_of(source) for name, source in self._active.items()}
        self._idle_until.clear()

    def _pool_of(self, source: Source) -> str:
        if source.name in self._sources.own_slots:
            return source.name
        return "" if self._one_pool else source.executor

    def pools(self, now: float, *, alarm_due: bool = False, is_poll: bool = False) -> Sequence[SlotPool]:
        """The capacity for the next claim, shared max-min fairly between the active sources of a pool.

        alarm_due: an alarm of any source has come. A few idle sources are included if slots are left for all of them:
        it saves a turn, and takes no slot from a source that has work. Not those with slots of their own: a pool
        costs a query.

        is_poll: a hint may have been lost. All idle sources are included; the oldest tasks get the slots.
        """
        self._count(self._freed, -1)
        self._freed.clear()
        self._hinted.clear()
        self.wake([name for name, until in self._idle_until.items() if until <= now])
        active: defaultdict[str, list[tuple[str, Source]]] = defaultdict(list)
        idle: defaultdict[str, list[tuple[str, Source]]] = defaultdict(list)
        for name, source in self._active.items():
            active[self._pools[name]].append((name, source))
        if alarm_due or is_poll or self._wait_over:
            for name, source in self._sources.items():
                if name not in self._active and (is_poll or name not in self._sources.own_slots):
                    idle[self._pool_of(source)].append((name, source))
        self._wait_over = False
        pools = [pool for pool in self._totals if active[pool] or idle[pool]]
        return [self._pool(pool, self._free(pool, now), active[pool], idle[pool], is_poll=is_poll) for pool in pools]

    def usage(self) -> dict[str, PoolUsage]:
        """By pool; "" is the one for all executors."""
        busy = Counter(self._busy)
        busy.subtract(self._pools[name] for name in self._freed)
        return {pool: PoolUsage(total, min(busy[pool], total)) for pool, total in self._totals.items()}

    def offer(self) -> dict[str, int]:
        """Capacity of each source, if all tasks came from it."""
        free = {pool: total - self._busy[pool] for pool, total in self._totals.items()}
        if self._claim_batch is not None:
            free = {pool: min(most, self._claim_batch) for pool, most in free.items()}
        return {
            name: self._capacity(name, source, free[self._pool_of(source)]) for name, source in self._sources.items()
        }

    def _free(self, pool: str, now: float) -> int:
        """How many tasks of a pool are claimed now."""
        if pool == ASYNC and self._async_size is not None:
            return self._async_size.next(self._busy[pool], now)
        return self._totals[pool] - self._busy[pool]

    def _pool(
        self, pool: str, free: int, active: list[tuple[str, Source]], idle: list[tuple[str, Source]], *, is_poll: bool
    ) -> SlotPool:
        if free <= 0:
            self.wake([name for name, _ in idle if is_poll])  # included when a slot is free
            return SlotPool(0, {})
        if self._claim_batch is not None:
            free = min(free, self._claim_batch)
        capacity = self._shared(pool, active, free)
        left = free - sum(capacity.values())
        if 0 < len(idle) <= min(left, _MAX_EXTRA_SOURCES):
            capacity |= self._shared(pool, idle, left)
        elif is_poll:
            capacity |= {name: self._capacity(name, source, 1) for name, source in idle}
        capacity = {name: most for name, most in capacity.items() if most > 0}
        self.wake(capacity)
        return SlotPool(free, capacity)

    def _shared(self, pool: str, sources: list[tuple[str, Source]], free: int) -> dict[str, int]:
        capacity = {name: self._capacity(name, source, free) for name, source in sources}
        if self._totals[pool] > 1 and len(capacity) > 1:  # a single slot goes to the oldest task
            self._shares += 1
            capacity = share(free, {name: self._running[name] for name in capacity}, capacity, self._shares)
        return capacity

    def _capacity(self, name: str, source: Source, free: int) -> int:
        own = source.max_running()
        if own is None:
            return free
        return max(0, min(free, own - self._running[name]))

    def has_work(self) -> bool:
        """A slot is free, and an active source could use it."""
        for name, source in self._active.items():
            pool = self._pools[name]
            if self._totals[pool] > self._busy[pool] and self._capacity(name, source, 1) > 0:
                return True
        return False

    def next_in(self, now: float) -> float | None:
        """ms until an idle source becomes active by time."""
        return min((max(0.0, until - now) for until in self._idle_until.values()), default=None)

    def take(self, names: Sequence[str]) -> int:
        """Runs of these sources have been claimed; a source occurs once per run.

        Returns how many of the pool of async functions have no slot yet.
        """
        self._count(names, +1)
        if self._async_size is None:
            return 0
        self._async_size.add_taken(len([name for name in names if self._pools[name] == ASYNC]))
        freed = len([name for name in self._freed if self._pools[name] == ASYNC])
        return max(0, self._busy[ASYNC] - freed - self._totals[ASYNC])

    def is_async(self, name: str) -> bool:
        """Whether the tasks of a source take slots of the pool of async functions."""
        return self._pools[name] == ASYNC

    def _count(self, names: Sequence[str], by: int) -> None:
        for name in set(names):  # few names, many times each: `count` is faster than a Counter
            number = by * names.count(name)
            self._busy[self._pools[name]] += number
            self._running[name] += number

    def mark_idle(self, sources: Mapping[str, float | None], now: float) -> None:
        """The store had no task of these; the value is ms until it will have one."""
        for name, wait in sources.items():
            if name in self._hinted:
                continue
            self._active.pop(name, None)
            if wait is not None:
                self._idle_until[name] = now + wait

    def expect_end_of_wait(self) -> None:
        """The next turn may end the wait of a task of any source: it settles a member of a flow, or a signal came."""
        self._wait_over = True

    def hint(self, names: Iterable[str]) -> None:
        self._hinted.update(names)
        self.wake(names)

    def wake(self, names: Iterable[str]) -> None:
        for name in names:
            source = self._sources.get(name)
            if source is not None and name not in self._active:
                self._active[name] = source
                self._pools[name] = self._pool_of(source)
            self._idle_until.pop(name, None)


def share(free: int, running: Mapping[str, int], most: Mapping[str, int], turn: int) -> dict[str, int]:
    """Max-min: the free slots go to the sources that run least, up to `most` of each.

    A remainder goes to some of them, to others in the next turn.

    >>> share(4, {"a": 3, "b": 0}, {"a": 4, "b": 4}, 0)
    {'a': 1, 'b': 3}
    >>> share(4, {"a": 0, "b": 0, "c": 0}, {"a": 4, "b": 4, "c": 4}, 0)
    {'a': 2, 'b': 1, 'c': 1}
    """
    low = 0
    high = free + max(running.values())
    while low < high:  # find the highest level to which all can be filled
        level = (low + high + 1) // 2
        if sum(_filled(running, most, level).values()) <= free:
            low = level
        else:
            high = level - 1
    capacity = _filled(running, most, low)
    left = free - sum(capacity.values())
    names = list(capacity)
    first = turn % len(names)
    for name in names[first:] + names[:first]:
        if left > 0 and capacity[name] < most[name] and running[name] + capacity[name] <= low:
            capacity[name] += 1
            left -= 1
    return capacity


def _filled(running: Mapping[str, int], most: Mapping[str, int], level: int) -> dict[str, int]:
    return {name: max(0, min(most[name], level - running[name])) for name in running}
