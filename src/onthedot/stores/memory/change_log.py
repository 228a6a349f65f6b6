"""The change feed: bounded, one row per call; transitions are made when it is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from onthedot.stores.contract import ChangeEntry, ChangePage, Record, Transition
from onthedot.stores.memory.tables import ChangeSet

_MAX_TRANSITIONS = 100_000  # over all rows


class _Row(msgspec.Struct, frozen=True, gc=False):
    """Not tracked by the garbage collector: a hundred thousand tracked objects cost 50 ms per collection."""

    number: int
    at: int
    entered: tuple[Record, ...]
    started: tuple[Record, ...]
    ended: tuple[Record, ...]

    def __len__(self) -> int:
        return len(self.entered) + len(self.started) + len(self.ended)


class ChangeLog:
    def __init__(self) -> None:
        self._rows: deque[_Row] = deque()
        self._transitions = 0
        self._number = 0

    def write(self, now: float, changes: ChangeSet) -> None:
        self._number += 1
        row = _Row(self._number, int(now), tuple(changes.entered), tuple(changes.started), tuple(changes.ended))
        self._rows.append(row)
        self._transitions += len(row.entered) + len(row.started) + len(row.ended)
        while self._transitions > _MAX_TRANSITIONS and len(self._rows) > 1:
            self._transitions -= len(self._rows.popleft())

    def read(self, after: str, limit: int) -> ChangePage:
        if not after:
            return ChangePage([], str(self._number))
        if not self._rows:
            return ChangePage([], after)
        start = max(0, int(after) - (self._rows[0].number - 1))
        rows = [self._rows[index] for index in range(start, min(start + limit, len(self._rows)))]
        entries = [ChangeEntry(str(row.number), list(_transitions(row))) for row in rows]
        return ChangePage(entries, entries[-1].cursor if entries else after)


def _transitions(row: _Row) -> Iterable[Transition]:
    for record in row.entered:
        yield Transition(row.at, record.uuid, record.source, record.state)
    for record in row.started:
        yield Transition(row.at, record.uuid, record.source, "running")
    for record in row.ended:
        yield Transition(row.at, record.uuid, record.source, record.state)
