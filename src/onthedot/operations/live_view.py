"""Looking on: one picture after the other of what a store does, from its change log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf

from onthedot.clock.epoch import from_ms
from onthedot.errors import StoreError
from onthedot.model.failures import decode_failure
from onthedot.operations.sources import SourceInfo, source_infos
from onthedot.operations.throughput import ENDS, Step, Throughput
from onthedot.operations.workers import WorkerInfo, worker_info
from onthedot.stores.contract import Record, Store

_ROWS, _READS = 500, 20  # of the log in one read, and reads for one picture: who is behind catches up over several
_COUNTS, _QUIET = 1.0, 5.0  # seconds for which counts are good while something happens, and while nothing does
_SHOWN = 5  # failures
_NEVER = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Rates:
    """A second, over the last ten. done: succeeded, failed or cancelled."""

    started: float
    done: float
    failed: float
    retried: float


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
    """One picture. history: how many ended in each of the last 60 seconds."""

    at: datetime
    rates: Rates
    by_source: dict[str, Rates]
    history: tuple[int, ...]
    sources: tuple[SourceInfo, ...]
    workers: tuple[WorkerInfo, ...]
    failures: tuple[FailedTask, ...]  # the newest first
    trouble: str = ""  # the store does not answer: everything else is as it was last seen
    since: datetime | None = None  # likewise


class LiveView:
    """Follows the log; counts are asked for now and then, and never more than once a second."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pace = Throughput(_clock())
        self._cursor = ""
        self._counted = -inf
        self._heard = 0.0
        self._stale = True
        self._sources: list[SourceInfo] = []
        self._workers: list[WorkerInfo] = []
        self._first = True
        self._asked: set[str] = set()  # failures that were looked at
        self._failures: list[FailedTask] = []
        self._away: tuple[str, datetime] | None = None

    async def look(self) -> LiveSnapshot:
        """Never fails for what the store does: the picture says so."""
        try:
            await self._follow()
            await self._count()
            await self._look_at_failures()
            self._away = None
        except StoreError as error:
            self._away = (str(error), self._away[1] if self._away else datetime.now(UTC))
        return self._frame()

    async def _follow(self) -> None:
        now = time.monotonic()
        for _ in range(_READS if self._cursor else 0):
            page = await self._store.changes(self._cursor, _ROWS)
            self._stale |= self._pace.fold(page.entries, _clock()) > 0
            if page.entries:
                self._cursor = page.cursor
                self._heard = now
            if len(page.entries) < _ROWS:
                break
        if now - self._heard > _QUIET or not self._cursor:  # perhaps it is another store by now, with other numbers
            self._cursor = (await self._store.changes("", 1)).cursor
            self._heard = now

    async def _count(self) -> None:
        now = time.monotonic()
        if now - self._counted < (_COUNTS if self._stale else _QUIET) and self._away is None:
            return
        limits = await self._store.limits()
        sessions = await self._store.sessions()
        self._workers = [worker_info(name, info, 0) for name, info in sorted(sessions.items())]
        self._sources = source_infos(await self._store.tally(), limits, self._workers)
        self._counted, self._stale = now, False

    async def _look_at_failures(self) -> None:
        """Those that the log tells of; at the beginning, the newest that there are."""
        told = {uuid for _, uuid in self._pace.failures}
        if new := list(told - self._asked):
            found = list(await self._store.get(new))
        elif self._first and any(source.failed for source in self._sources):
            found = list((await self._store.find({"state": "failed"}, None, _SHOWN)).rows)
        else:
            return
        self._asked, self._first = told, False
        merged = {each.uuid: each for each in [*self._failures, *filter(None, map(_failed, found))]}
        self._failures = sorted(merged.values(), key=lambda each: each.at or _NEVER, reverse=True)[:_SHOWN]

    def _frame(self) -> LiveSnapshot:
        trouble, since = self._away or ("", None)
        rates = self._pace.rates()
        return LiveSnapshot(
            at=datetime.now(UTC),
            rates=_rates(rates, [source for source, _ in rates]),
            by_source={source.name: _rates(rates, [source.name]) for source in self._sources},
            history=tuple(self._pace.history(*ENDS)),
            sources=tuple(self._sources),
            workers=tuple(self._workers),
            failures=tuple(self._failures),
            trouble=trouble,
            since=since,
        )


def _rates(rates: Mapping[tuple[str, Step], float], sources: Iterable[str]) -> Rates:
    names = set(sources)

    def of(*steps: Step) -> float:
        return round(sum(rates.get((source, step), 0.0) for source in names for step in steps), 3)

    return Rates(of("started"), of(*ENDS), of("failed"), of("retried"))


def _failed(record: Record | None) -> FailedTask | None:
    error = None if record is None or record.state != "failed" else decode_failure(record.history.error)
    if record is None or error is None:
        return None
    at = None if record.history.ended is None else from_ms(record.history.ended)
    return FailedTask(record.uuid, record.source, at, error.type, error.message)


def _clock() -> float:
    return time.monotonic() * 1000
