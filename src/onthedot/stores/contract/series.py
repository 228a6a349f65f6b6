"""Series: named, bounded lists of entries over time, such as figures and the audit log."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from onthedot.clock.durations import DAY, HOUR, MINUTE

MAX_SERIES_DATA = 65_536  # bytes of one entry


class SeriesEntry(Struct, frozen=True, gc=False):
    """One entry; series, at and writer are its key. The data is opaque to the store."""

    series: str
    at: int  # ms
    writer: str  # a session, a user, or "fleet" for entries of all workers
    data: bytes = b""
    revision: int = 0
    """The number of the write, set by the store: it only grows, so two writes of a key never share one. In `replaces`,
    0 stands for a key without an entry.
    """


class SeriesRetention(Struct, frozen=True):
    """The entries of a series that a purge keeps: those up to this age, in ms, and at most so many. None: any."""

    keep: int | None
    most: int | None = None


SERIES: Mapping[str, SeriesRetention] = {
    "minutes": SeriesRetention(6 * HOUR),
    "ten_minutes": SeriesRetention(3 * DAY),
    "hours": SeriesRetention(62 * DAY),
    "totals": SeriesRetention(None),
    "workers": SeriesRetention(10 * MINUTE),
    "audit": SeriesRetention(90 * DAY, 100_000),
    "releases": SeriesRetention(62 * DAY),
}
"""The series that stores take, by name."""
