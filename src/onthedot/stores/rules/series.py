"""Series: how entries are written, compared and dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from onthedot.stores.contract import BATCH, MAX_SERIES_DATA, SERIES, SeriesEntry


class SeriesTable(Protocol):
    """The entries of one app."""

    def revision(self, entry: SeriesEntry) -> int:
        """The revision of the entry with this key; 0 if there is none."""
        ...

    def delete(self, entry: SeriesEntry) -> None: ...
    def put(self, entry: SeriesEntry) -> None: ...
    def drop_older(self, series: str, at: int, limit: int) -> None:
        """Drop entries before a time, the oldest first."""
        ...

    def drop_beyond(self, series: str, most: int, limit: int) -> None:
        """Drop the oldest entries where there are more than `most`."""
        ...


def check(entries: Sequence[SeriesEntry], replaces: Sequence[SeriesEntry]) -> None:
    """ValueError: a store does not take these."""
    if len(entries) > BATCH or len(replaces) > BATCH:
        raise ValueError(f"write_series takes up to {BATCH} entries, and replaces as many")
    for entry in (*entries, *replaces):
        if entry.series not in SERIES:
            raise ValueError(f"there is no series {entry.series!r}; stores have {', '.join(SERIES)}")
    for entry in entries:
        if len(entry.data) > MAX_SERIES_DATA:
            raise ValueError(
                f"series {entry.series!r}: the entry of {entry.writer!r} has {len(entry.data):,} bytes, the limit is "
                f"{MAX_SERIES_DATA:,}; write less, or several entries"
            )


def write(table: SeriesTable, entries: Sequence[SeriesEntry], replaces: Sequence[SeriesEntry]) -> bool:
    if any(table.revision(entry) != entry.revision for entry in replaces):
        return False
    for entry in replaces:
        table.delete(entry)
    for entry in entries:
        table.put(entry)
    return True


def purge(table: SeriesTable, now: float, limit: int) -> None:
    for series, retention in SERIES.items():
        if retention.keep is not None:
            table.drop_older(series, int(now) - retention.keep, limit)
        if retention.most is not None:
            table.drop_beyond(series, retention.most, limit)
