"""Adds the figures of workers up: records of a minute become one, then one of ten minutes, then one of an hour.

Any worker does it. A step replaces what it has read by compare-and-set, so nothing counts twice, and a worker that is
too late changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from onthedot.clock.durations import MINUTE
from onthedot.model.source_figures import FLEET, FigureRecord, decode_record, encode_record, writer_mark
from onthedot.operations.figure_records import add_up, by_time, not_in_sum, read_all, to_depth, totals_entry
from onthedot.stores.contract import MAX_SERIES_DATA, SERIES, SeriesEntry, Store

_MAX_REPLACED = 900  # records of workers per step
_USUAL = 10 * MINUTE  # how far back records are searched that are not added up


class Level(NamedTuple):
    """A series of longer spans, made from one of shorter spans."""

    series: str
    span: int  # ms
    source: str


LEVELS = (Level("ten_minutes", 10 * MINUTE, "minutes"), Level("hours", 60 * MINUTE, "ten_minutes"))


@dataclass(eq=False)
class FigureSums:
    """Updates the sums of one store."""

    store: Store

    def __post_init__(self) -> None:
        self._first = True  # the first time it looks for all that workers of the past have left

    async def update(self, until: int) -> None:
        """Adds up the minutes that ended before `until`, in ms of the store."""
        last = until // MINUTE * MINUTE - MINUTE
        since = last - _USUAL
        if self._first:
            since = last - (SERIES["minutes"].keep or 0) + MINUTE
        minutes = await read_all(self.store, "minutes", since, last)
        by_minute: defaultdict[int, list[SeriesEntry]] = defaultdict(list)
        by_minute[last] = []
        for entry in minutes:
            by_minute[entry.at].append(entry)
        for at, entries in sorted(by_minute.items()):
            await self._add_up_minute(at, entries, is_last=at == last)
        for level in LEVELS:
            await self._add_up_level(level, since, until)
        self._first = False

    async def _add_up_minute(self, at: int, entries: Sequence[SeriesEntry], *, is_last: bool) -> None:
        fleet = next((entry for entry in entries if entry.writer == FLEET), None)
        rows = [entry for entry in entries if entry.writer != FLEET][:_MAX_REPLACED]
        if not rows and not (is_last and fleet is None):
            return  # it has been done; a last minute without a record shows that nothing ran
        record = FigureRecord() if fleet is None else decode_record(fleet.data)
        new = FigureRecord()
        for row in not_in_sum(record, rows):
            new.add(decode_record(row.data).sources)
            record.writers.append(writer_mark(row.writer))
        record.add(new.sources)
        if is_last:
            record.depth = to_depth(await self.store.tally())
        written = [SeriesEntry("minutes", at, FLEET, encode_record(record, MAX_SERIES_DATA))]
        replaced = [*rows, fleet or SeriesEntry("minutes", at, FLEET)]
        if new.sources:
            totals = await totals_entry(self.store)
            sum_of_all = decode_record(totals.data) if totals.data else FigureRecord()
            sum_of_all.add(new.sources)
            sum_of_all.until = max(sum_of_all.until, at)
            written.append(SeriesEntry("totals", 0, FLEET, encode_record(sum_of_all, MAX_SERIES_DATA)))
            replaced.append(totals)
        await self.store.write_series(written, replaced)

    async def _add_up_level(self, level: Level, since: int, until: int) -> None:
        """Spans that have ended and have no record yet."""
        end = (until - MINUTE) // level.span * level.span  # a minute later than its last minute
        first = since // level.span * level.span - level.span
        known = {entry.at for entry in await read_all(self.store, level.series, first, end)}
        for at in range(first, end, level.span):
            if at in known:
                continue
            parts = await read_all(self.store, level.source, at, at + level.span - 1)
            if parts:
                record = add_up(by_time(parts).values())
                entry = SeriesEntry(level.series, at, FLEET, encode_record(record, MAX_SERIES_DATA))
                await self.store.write_series([entry], [SeriesEntry(level.series, at, FLEET)])
