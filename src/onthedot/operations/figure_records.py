"""Reads the figures that workers have written to the series."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from onthedot.model.source_figures import FLEET, MAX_SOURCES, Depth, FigureRecord, decode_record, writer_mark
from onthedot.stores.contract import SeriesEntry, State, Store

_PAGE = 200
_LATE = 600_000  # ms before the last minute of the totals in which records may not be in them


async def read_all(store: Store, series: str, since: int, until: int) -> list[SeriesEntry]:
    """All entries of a span, in pages."""
    found: list[SeriesEntry] = []
    known: set[tuple[int, str]] = set()
    while True:
        page = await store.read_series(series, since, until, _PAGE)
        new = [entry for entry in page if (entry.at, entry.writer) not in known]
        found += new
        known.update((entry.at, entry.writer) for entry in new)
        if len(page) < _PAGE or not new:
            return found
        since = page[-1].at


def by_time(entries: Iterable[SeriesEntry]) -> dict[int, FigureRecord]:
    """One record per time: what is added up, and the records of workers that are not in it."""
    grouped: defaultdict[int, list[SeriesEntry]] = defaultdict(list)
    for entry in entries:
        grouped[entry.at].append(entry)
    found: dict[int, FigureRecord] = {}
    for at, group in sorted(grouped.items()):
        record = next((decode_record(entry.data) for entry in group if entry.writer == FLEET), FigureRecord())
        for each in not_in_sum(record, group):
            record.add(decode_record(each.data).sources)
        found[at] = record
    return found


def not_in_sum(record: FigureRecord, entries: Iterable[SeriesEntry]) -> list[SeriesEntry]:
    """The records of workers that are not in the sum. A worker that was late may have written one again that is."""
    return [each for each in entries if each.writer != FLEET and writer_mark(each.writer) not in record.writers]


def add_up(records: Iterable[FigureRecord]) -> FigureRecord:
    """One record of several, in order of time: the sum of all, and the last depth."""
    total = FigureRecord()
    for record in records:
        total.add(record.sources)
        if record.depth:
            total.depth = record.depth
    return total


def to_depth(tally: Mapping[tuple[str, State], int]) -> dict[str, Depth]:
    """The depth of the sources with most tasks."""
    sources: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (source, state), number in tally.items():
        sources[source][state] = number
    found = {
        name: Depth(
            counts.get("ready", 0) + counts.get("parked", 0),
            counts.get("scheduled", 0),
            counts.get("running", 0),
            counts.get("waiting", 0),
            counts.get("failed", 0),
        )
        for name, counts in sources.items()
    }
    by_size = sorted(found, key=lambda name: sum(sources[name].values()), reverse=True)
    return {name: found[name] for name in by_size[:MAX_SOURCES]}


async def totals_entry(store: Store) -> SeriesEntry:
    """The sum of all time; an entry without data and revision if there is none."""
    found: Sequence[SeriesEntry] = await store.read_series("totals", 0, 0, 1)
    return found[0] if found else SeriesEntry("totals", 0, FLEET)


async def read_totals(store: Store, now: int) -> FigureRecord:
    """The sum of all time with the records that are not in it yet: it never decreases."""
    entry = await totals_entry(store)
    total = decode_record(entry.data) if entry.data else FigureRecord()
    minutes = await read_all(store, "minutes", max(0, total.until - _LATE), now)
    grouped: defaultdict[int, list[SeriesEntry]] = defaultdict(list)
    for each in minutes:
        grouped[each.at].append(each)
    for group in grouped.values():
        fleet = next((decode_record(each.data) for each in group if each.writer == FLEET), FigureRecord())
        for each in not_in_sum(fleet, group):
            total.add(decode_record(each.data).sources)
    return total
