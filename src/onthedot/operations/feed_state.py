"""Messages for listeners of the change feed beside transitions: counts, rates, tasks, and what to read again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from onthedot.clock.protocol import Clock
from onthedot.operations.feed_listener import FeedListener
from onthedot.operations.task_queries import TaskQueries
from onthedot.operations.throughput import ENDS, Step, Throughput
from onthedot.stores.contract import State, Store, Transition

_COUNT_INTERVAL = 1_000.0  # ms between two tallies, and between two messages with rates
_CONTROL_INTERVAL = 2_000.0  # ms between two reads of limits, schedules and workers
_FETCH_INTERVAL = 250.0  # ms between two reads of tasks
_MAX_FETCHED = 100  # tasks per read
_MAX_CHANGED = 1_000  # tasks to fetch
_LOAD = 50  # an interval lasts at least this many times as long as the read before it


@dataclass(frozen=True, slots=True)
class Rates:
    """Tasks per second, over the last ten seconds. done: succeeded, failed or cancelled."""

    started: float
    done: float
    failed: float
    retried: float


def rates_of(rates: Mapping[tuple[str, Step], float], sources: Iterable[str]) -> Rates:
    """Of these sources together."""
    names = set(sources)

    def rate(*steps: Step) -> float:
        return round(sum(rates.get((source, step), 0.0) for source in names for step in steps), 3)

    return Rates(rate("started"), rate(*ENDS), rate("failed"), rate("retried"))


class _ReadInterval:
    """When a read is due again: after its interval, or 50 times its duration."""

    def __init__(self, clock: Clock, ms: float) -> None:
        self._clock = clock
        self._ms = ms
        self._began = 0.0
        self._next = -inf

    @property
    def is_over(self) -> bool:
        return self._clock.now() >= self._next

    def begin(self) -> None:
        self._began = self._clock.now()

    def end(self) -> None:
        now = self._clock.now()
        self._next = max(self._began + self._ms, now + _LOAD * (now - self._began))

    def expire(self) -> None:
        self._next = -inf


class FeedState:
    def __init__(self, store: Store, tasks: TaskQueries, clock: Clock) -> None:
        self._store = store
        self._tasks = tasks
        self._counting = _ReadInterval(clock, _COUNT_INTERVAL)
        self._rating = _ReadInterval(clock, _COUNT_INTERVAL)
        self._checking = _ReadInterval(clock, _CONTROL_INTERVAL)
        self._fetching = _ReadInterval(clock, _FETCH_INTERVAL)
        self._is_stale = True
        self._counts: dict[str, dict[State, int]] | None = None
        self._rates: dict[str, Rates] = {}
        self._control: dict[str, object] = {}
        self._changed: dict[str, None] = {}  # tasks to fetch, in order

    def greet(self, listener: FeedListener) -> None:
        """Send what is known."""
        if self._counts is not None:
            listener.put("counts", self._counts)
        if self._rates:
            listener.put("rates", self._rates)

    def recheck(self) -> None:
        """Read limits, schedules and workers at the next update."""
        self._checking.expire()

    def forget_counts(self) -> None:
        """Count again: changes were not read."""
        self._counts = None
        self._is_stale = True

    def note(
        self,
        listeners: Iterable[FeedListener],
        transitions: Sequence[Transition],
        *,
        is_complete: bool,
    ) -> None:
        """Note the tasks that a page has changed. is_complete: all its transitions are given."""
        self._is_stale = self._is_stale or bool(transitions) or not is_complete
        watched = {uuid for listener in listeners for uuid in listener.watch.uuids}
        failures = any(listener.watch.failures for listener in listeners)
        for each in transitions:
            if each.uuid in watched or (failures and each.state == "failed"):
                self._changed[each.uuid] = None
        if not is_complete:
            self._changed.update(dict.fromkeys(watched))
        while len(self._changed) > _MAX_CHANGED:
            del self._changed[next(iter(self._changed))]

    async def update(self, listeners: Iterable[FeedListener], throughput: Throughput) -> None:
        """Read what is due, and send what has changed."""
        await self._fetch(listeners)
        await self._count(listeners)
        self._rate(listeners, throughput)
        await self._check(listeners)

    async def _fetch(self, listeners: Iterable[FeedListener]) -> None:
        if not self._changed or not self._fetching.is_over:
            return
        self._fetching.begin()
        uuids = list(self._changed)[-_MAX_FETCHED:]
        found = await self._tasks.get_many(uuids)
        for uuid in uuids:
            self._changed.pop(uuid, None)
        self._fetching.end()
        for info in found:
            for listener in listeners:
                watch = listener.watch
                if info.uuid in watch.uuids or (watch.failures and info.state == "failed"):
                    listener.put("task", info, key=info.uuid)

    async def _count(self, listeners: Iterable[FeedListener]) -> None:
        if not self._is_stale or not self._counting.is_over:
            return
        self._counting.begin()
        self._is_stale = False
        counts: dict[str, dict[State, int]] = {}
        for (source, state), number in (await self._store.tally()).items():
            counts.setdefault(source, {})[state] = number
        self._counting.end()
        if counts != self._counts:
            self._counts = counts
            _send(listeners, "counts", counts)

    def _rate(self, listeners: Iterable[FeedListener], throughput: Throughput) -> None:
        if not self._rating.is_over:
            return
        self._rating.begin()
        found = throughput.rates()
        rates = {source: rates_of(found, [source]) for source in sorted({source for source, _ in found})}
        self._rating.end()
        if rates != self._rates:
            self._rates = rates
            _send(listeners, "rates", rates)

    async def _check(self, listeners: Iterable[FeedListener]) -> None:
        if not self._checking.is_over:
            return
        self._checking.begin()
        found: dict[str, object] = {
            "limits": sorted(await self._store.limits(), key=lambda limit: (limit.name, limit.owner)),
            "schedules": sorted(await self._store.schedules(), key=lambda schedule: schedule.name),
            "workers": sorted(await self._store.sessions()),
        }
        self._checking.end()
        for what, value in found.items():
            if what in self._control and self._control[what] != value:
                _send(listeners, "invalidate", {"what": what}, key=what)
        self._control = found


def _send(listeners: Iterable[FeedListener], kind: str, data: object, key: str | None = None) -> None:
    for listener in listeners:
        listener.put(kind, data, key)
