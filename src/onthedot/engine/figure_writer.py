"""Writes the figures of a worker to the series "minutes" and "workers"."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from onthedot.clock.durations import MINUTE
from onthedot.clock.protocol import Clock
from onthedot.engine.figure_sums import FigureSums
from onthedot.engine.worker_state import WorkerEntries
from onthedot.model.source_figures import FigureRecord, encode_record
from onthedot.observability.events import Observer
from onthedot.observability.meter import Meter
from onthedot.stores.contract import MAX_SERIES_DATA, SeriesEntry, Store

INTERVAL = 8_000.0  # ms between two writes, on average
JITTER = 0.2  # at most 9.6 s, so that a killed process loses ten seconds at most, with the time of a write
GRACE = 12_000  # ms after a minute in which its record may still be written; sums are made later
_SUM_AFTER = 15_000  # ms after a minute: from here on its records are added up, within _SUM_WITHIN
_SUM_WITHIN = 30_000


@dataclass(eq=False)
class FigureWriter:
    """Writes within ten seconds, if something ran, the cumulative record of the minute in which they began.

    A repeated write changes nothing. Figures that are late are part of the next minute. A process that is
    killed loses the figures since the last write, those of ten seconds at most. writer: returns the session of the
    worker. workers: makes what is written about the worker itself: in the same call, or alone once per minute.
    """

    store: Store
    meter: Meter
    clock: Clock
    random: Random
    observer: Observer
    writer: Callable[[], str]
    workers: WorkerEntries | None = None

    def __post_init__(self) -> None:
        self._sums = FigureSums(self.store)
        self._failing: set[str] = set()
        self._minute = 0  # ms, of `_record`
        self._writer = ""  # of `_record`
        self._record = FigureRecord()
        self._unwritten = FigureRecord()  # the part of `_record` that the store may not have
        self._since = int(self.store.earliest_now())  # when the figures of the meter begin
        self._write_at = self.clock.now() + self._pause()
        self._sum_at = self.clock.now() + self._sum_pause()

    def next_in(self, now: float) -> float:
        """ms"""
        times = [self._sum_at]
        if self.meter.has_figures or self._unwritten.sources:
            times.append(self._write_at)
        return max(0.0, min(times) - now)

    async def write_if_due(self) -> None:
        """Figures that cannot be written are kept for the next time."""
        now = self.clock.now()
        if now >= self._write_at:
            self._write_at = now + self._pause()
            await self.write()
        if now >= self._sum_at:
            self._sum_at = now + self._sum_pause()
            await self._attempt("adding figures up", self._sums.update(int(self.store.earliest_now()) - _SUM_AFTER))

    async def write(self, *, is_last: bool = False) -> None:
        """is_last: the worker ends."""
        taken = self.meter.take()
        now = int(self.store.earliest_now())
        since = self._since
        self._since = now
        entries: list[SeriesEntry] = []
        if taken or self._unwritten.sources:
            self._choose_minute(since, now)
            self._record.add(taken)
            self._unwritten.add(taken)
            data = encode_record(self._record, MAX_SERIES_DATA)
            entries.append(SeriesEntry("minutes", self._minute, self._writer, data))
        if self.workers is not None:
            session = self.writer()
            is_due = self.workers.is_due(now) or (is_last and self.workers.is_known(session))
            if entries or is_due:
                entries.append(self.workers.next(now, session, taken, is_closed=is_last))
        if entries and await self._attempt("writing figures", self.store.write_series(entries)):
            self._unwritten = FigureRecord()

    async def _attempt(self, operation: str, call: Awaitable[object]) -> bool:
        """Figures never end a worker: an error is reported, and the next attempt comes at the usual time."""
        try:
            await call
        except Exception as error:  # noqa: BLE001 - reported
            self.observer.store_failed(operation, error)
            self._failing.add(operation)
            return False
        if operation in self._failing:
            self._failing.discard(operation)
            self.observer.store_recovered(operation)
        return True

    def _choose_minute(self, since: int, now: int) -> None:
        """The minute in which the figures begin, unless its records may be added up by now."""
        minute = max(since // MINUTE * MINUTE, self._minute)
        if now >= minute + MINUTE + GRACE:
            minute = now // MINUTE * MINUTE
        writer = self.writer()
        if minute != self._minute or writer != self._writer:
            self._minute = minute
            self._writer = writer
            self._record = FigureRecord()
            self._record.add(self._unwritten.sources)

    def _pause(self) -> float:
        return INTERVAL * self.random.uniform(1 - JITTER, 1 + JITTER)

    def _sum_pause(self) -> float:
        """Until 15 to 45 s after the end of this minute: workers rarely do it at once, and none is a leader."""
        left = MINUTE - self.store.earliest_now() % MINUTE
        return left + _SUM_AFTER + self.random.uniform(0, _SUM_WITHIN)
