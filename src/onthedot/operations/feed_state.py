"""Messages for listeners of the change feed beside transitions: counts, rates, tasks, actions, what to read again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

from onthedot.clock.protocol import Clock
from onthedot.operations.bulk_progress import BulkProgress
from onthedot.operations.feed_listener import FeedListener, measured
from onthedot.operations.read_interval import ReadInterval
from onthedot.operations.sources import source_infos
from onthedot.operations.task_queries import TaskQueries
from onthedot.operations.throughput import ENDS, Step, Throughput
from onthedot.operations.workers import worker_infos
from onthedot.stores.capabilities import Outbox, find_capability
from onthedot.stores.contract import ChangeEntry, State, Store, Transition

Invalidated: TypeAlias = Literal["limits", "schedules", "workers", "sources", "failures", "outbox"]

_COUNT_INTERVAL = 1_000.0  # ms between two tallies, and between two messages with rates
_CONTROL_INTERVAL = 2_000.0  # ms between two reads of limits, schedules and workers, and of the outbox
_FETCH_INTERVAL = 250.0  # ms between two reads of tasks
_MAX_FETCHED = 100  # tasks per read
_MAX_CHANGED = 1_000  # tasks to fetch


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


class FeedState:
    def __init__(self, store: Store, tasks: TaskQueries, actions: BulkProgress, clock: Clock) -> None:
        self._store = store
        self._tasks = tasks
        self._actions = actions
        self._counting = ReadInterval(clock, _COUNT_INTERVAL)
        self._rating = ReadInterval(clock, _COUNT_INTERVAL)
        self._checking = ReadInterval(clock, _CONTROL_INTERVAL)
        self._checking_outbox = ReadInterval(clock, _CONTROL_INTERVAL)
        self._fetching = ReadInterval(clock, _FETCH_INTERVAL)
        self._is_stale = True
        self._has_failed = False  # a task, since the last tally
        self._counts: dict[str, dict[State, int]] | None = None
        self._rates: dict[str, Rates] = {}
        self._control: dict[Invalidated, object] = {}  # as it was read last
        self._invalidated: dict[Invalidated, float] = {}  # when it changed last
        self._clock = clock
        self._changed: dict[str, None] = {}  # tasks to fetch, in order

    @property
    def is_known(self) -> bool:
        """Whether it was read before, so that a change is noticed."""
        return bool(self._control)

    @property
    def changed_at(self) -> float:
        """When a change was noticed last, in ms."""
        return max(self._invalidated.values(), default=-inf)

    def invalidate(self, listener: FeedListener, since: float) -> None:
        """Send what has changed since this time, in ms."""
        for what, at in self._invalidated.items():
            if at >= since:
                _send((listener,), "invalidate", {"what": what}, key=what)

    def greet(self, listener: FeedListener) -> None:
        """Send what is known."""
        if self._counts is not None:
            listener.put("counts", self._counts)
        if self._rates:
            listener.put("rates", self._rates)
        for record in self._actions.running:
            listener.put("bulk_action", record, key=record.id)

    def recheck(self) -> None:
        """Read limits, schedules, workers, the outbox and bulk actions at the next update."""
        self._checking.expire()
        self._checking_outbox.expire()
        self._actions.recheck()

    def forget(self) -> None:
        """Count again: changes were not read."""
        self._counts = None
        self._is_stale = True
        self._actions.forget()

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

    def note_failures(self, entries: Iterable[ChangeEntry]) -> None:
        """Note whether a task has failed. A retry and a new failure leave the number of failed tasks as it was."""
        if any("failed" in states for entry in entries for states in entry.counts.values()):
            self._has_failed = True

    async def update(self, listeners: Iterable[FeedListener], throughput: Throughput) -> None:
        """Read what is due, and send what has changed."""
        await self._fetch(listeners)
        await self._count(listeners)
        self._rate(listeners, throughput)
        await self._check(listeners)
        await self._check_outbox(listeners)
        for record in await self._actions.changed():
            _send(listeners, "bulk_action", record, key=record.id)

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
            message = measured("task", info)
            for listener in listeners:
                watch = listener.watch
                if info.uuid in watch.uuids or (watch.failures and info.state == "failed"):
                    listener.put_message(message, key=info.uuid)

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
        failed = {source: states["failed"] for source, states in counts.items() if states.get("failed")}
        self._compare(listeners, "failures", failed, is_changed=self._has_failed)
        self._has_failed = False

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
        limits = sorted(await self._store.limits(), key=lambda limit: (limit.name, limit.owner))
        schedules = sorted(await self._store.schedules(), key=lambda schedule: schedule.name)
        sessions = await self._store.sessions()
        self._checking.end()
        known: dict[tuple[str, State], int] = {(source, "ready"): 0 for source in self._counts or ()}
        self._compare(listeners, "limits", limits)
        self._compare(listeners, "schedules", schedules)
        self._compare(listeners, "workers", sorted(sessions))
        self._compare(listeners, "sources", source_infos(known, limits, worker_infos(sessions)))  # without counts

    async def _check_outbox(self, listeners: Iterable[FeedListener]) -> None:
        outbox = find_capability(self._store, Outbox)
        if outbox is None or not self._checking_outbox.is_over:
            return
        self._checking_outbox.begin()
        state = await outbox.outbox_state()
        self._checking_outbox.end()
        self._compare(listeners, "outbox", state)

    def _compare(
        self, listeners: Iterable[FeedListener], what: Invalidated, value: object, *, is_changed: bool = False
    ) -> None:
        """Report what is other than it was read before. is_changed: although it looks as before."""
        if what in self._control and (is_changed or self._control[what] != value):
            self._invalidated[what] = self._clock.now()
            _send(listeners, "invalidate", {"what": what}, key=what)
        self._control[what] = value


def _send(listeners: Iterable[FeedListener], kind: str, data: object, key: str | None = None) -> None:
    message = measured(kind, data)
    for listener in listeners:
        listener.put_message(message, key)
