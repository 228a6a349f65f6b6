"""Series of a memory store."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict

from msgspec.structs import replace

from onthedot.stores.contract import SeriesEntry

_Key = tuple[int, str]
_LAST = chr(0x10FFFF)  # behind all names of writers


class MemorySeries:
    """Entries by series and key, and the keys of each series in order."""

    def __init__(self) -> None:
        self._entries: defaultdict[str, dict[_Key, SeriesEntry]] = defaultdict(dict)
        self._order: defaultdict[str, list[_Key]] = defaultdict(list)
        self._writes = 0

    def revision(self, entry: SeriesEntry) -> int:
        found = self._entries[entry.series].get((entry.at, entry.writer))
        return 0 if found is None else found.revision

    def delete(self, entry: SeriesEntry) -> None:
        key = (entry.at, entry.writer)
        if self._entries[entry.series].pop(key, None) is not None:
            order = self._order[entry.series]
            del order[bisect_left(order, key)]

    def put(self, entry: SeriesEntry) -> None:
        key = (entry.at, entry.writer)
        self._writes += 1
        if key not in self._entries[entry.series]:
            insort(self._order[entry.series], key)
        self._entries[entry.series][key] = replace(entry, revision=self._writes)

    def drop_older(self, series: str, at: int, limit: int) -> None:
        self._drop(series, min(limit, bisect_left(self._order[series], (at, ""))))

    def drop_beyond(self, series: str, most: int, limit: int) -> None:
        self._drop(series, min(limit, len(self._order[series]) - most))

    def _drop(self, series: str, number: int) -> None:
        for key in self._order[series][: max(0, number)]:
            del self._entries[series][key]
        del self._order[series][: max(0, number)]

    def read(self, series: str, since: int, until: int, limit: int, *, newest_first: bool) -> list[SeriesEntry]:
        order = self._order[series]
        keys = order[bisect_left(order, (since, "")) : bisect_right(order, (until, _LAST))]
        if newest_first:
            keys.reverse()
        return [self._entries[series][key] for key in keys[:limit]]
