"""Snapshots of what a store does, from its change feed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf

from onthedot.clock.epoch import from_ms, from_optional_ms
from onthedot.clock.protocol import Clock
from onthedot.errors import StoreError
from onthedot.model.failures import decode_failure
from onthedot.operations.change_feed import ChangeFeed
from onthedot.operations.feed_state import Rates, rates_of
from onthedot.operations.run_times import recent_durations
from onthedot.operations.sources import SourceInfo, source_infos
from onthedot.operations.store_state import StoreState, read_store_state
from onthedot.operations.throughput import ENDS
from onthedot.operations.workers import WorkerInfo
from onthedot.stores.contract import Record, Store

_RESOLVED = 2_000  # transitions per read; of more, durations and retries are those of the newest
_MAX_READS = 20  # per snapshot; a view that lags catches up over several
COUNT_INTERVAL = 1_000  # ms between two tallies while tasks change
IDLE_INTERVAL = 5_000  # and while none does
_HISTORY = 59  # seconds
_MAX_FAILURES = 5  # shown
_NEVER = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class FailedTask:
    """One of the newest failures."""

    uuid: str
    source: str
    at: datetime | None
    type: str
    message: str


@dataclass(frozen=True, slots=True)
class LiveSnapshot:
    """The state of a store at one time. history: tasks that ended in each of the last 60 seconds."""

    at: datetime
    rates: Rates
    by_source: dict[str, Rates]
    history: tuple[int, ...]
    sources: tuple[SourceInfo, ...]
    workers: tuple[WorkerInfo, ...]
    failures: tuple[FailedTask, ...]  # the newest first
    trouble: str = ""  # the error of a store that does not answer; the other fields are those of the last answer
    since: datetime | None = None  # when that began
    state: StoreState | None = None  # from which sources and workers are; None: the store has not answered yet


class LiveView:
    """Follows the change feed; tallies are read at most once per second, or for every snapshot."""

    def __init__(self, feed: ChangeFeed, store: Store, clock: Clock, *, always_counts: bool = False) -> None:
        """always_counts: every snapshot has the counts, limits and workers of its time."""
        self._feed = feed
        self._throughput = feed.throughput
        self._store = store
        self._clock = clock
        self._always_counts = always_counts
        self._looking = asyncio.Lock()
        self._counted_at = -inf
        self._transition_count = 0
        self._stale = True
        self._sources: list[SourceInfo] = []
        self._state: StoreState | None = None
        self._first = True
        self._earlier: dict[str, list[int]] | None = None  # durations of runs before this view
        self._read_failures: set[str] = set()
        self._failures: list[FailedTask] = []
        self._trouble = ""  # the error of a store that does not answer
        self._trouble_since: datetime | None = None

    async def look(self) -> LiveSnapshot:
        """Return the next snapshot. Errors of the store are part of it."""
        async with self._looking:  # counts of an older look never replace those of a newer one
            try:
                await self._follow()
                await self._update_counts()
                await self._update_failures()
                self._trouble = ""
                self._trouble_since = None
            except StoreError as error:
                self._trouble = str(error)
                self._trouble_since = self._trouble_since or from_ms(self._clock.now())
            return self._snapshot()

    def history(self, source: str) -> Sequence[int]:
        """Return the tasks of a source that ended in each of the last 60 seconds."""
        return self._throughput.history(*ENDS, source=source)[-_HISTORY:]

    async def _follow(self) -> None:
        for _ in range(_MAX_READS):
            if not await self._feed.read(_RESOLVED):
                break
        if self._throughput.transition_count != self._transition_count:
            self._transition_count = self._throughput.transition_count
            self._stale = True

    async def _update_counts(self) -> None:
        now = self._clock.now()
        interval = COUNT_INTERVAL if self._stale else IDLE_INTERVAL
        is_recent = now - self._counted_at < interval and not self._always_counts
        if is_recent and self._trouble_since is None:
            return
        state = await read_store_state(self._store)
        if self._earlier is None:
            self._earlier = await recent_durations(self._store, state.tally)
        durations = {**self._earlier, **self._throughput.durations}
        self._sources = source_infos(state.tally, state.limits, state.workers, durations)
        self._state = state
        self._counted_at = now
        self._stale = False

    async def _update_failures(self) -> None:
        """Read the failures that the feed names; at first, the newest of the store."""
        named = {uuid for _, uuid in self._throughput.failures}
        if new := list(named - self._read_failures):
            found = list(await self._store.get(new))
        elif self._first and any(source.failed for source in self._sources):
            found = list((await self._store.find({"state": "failed"}, None, _MAX_FAILURES)).rows)
        else:
            return
        self._read_failures = named
        self._first = False
        merged = {each.uuid: each for each in [*self._failures, *filter(None, map(_failed, found))]}
        self._failures = sorted(merged.values(), key=lambda each: each.at or _NEVER, reverse=True)[:_MAX_FAILURES]

    def _snapshot(self) -> LiveSnapshot:
        rates = self._throughput.rates()
        return LiveSnapshot(
            at=from_ms(self._clock.now()),
            rates=rates_of(rates, [source for source, _ in rates]),
            by_source={source.name: rates_of(rates, [source.name]) for source in self._sources},
            history=tuple(self._throughput.history(*ENDS)[-_HISTORY:]),
            sources=tuple(self._sources),
            workers=() if self._state is None else tuple(self._state.workers),
            failures=tuple(self._failures),
            trouble=self._trouble,
            since=self._trouble_since,
            state=self._state,
        )


def _failed(record: Record | None) -> FailedTask | None:
    if record is None or record.state != "failed":
        return None
    error = decode_failure(record.history.error)
    if error is None:
        return None
    return FailedTask(record.uuid, record.source, from_optional_ms(record.history.ended), error.type, error.message)
