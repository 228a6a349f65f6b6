"""The change log: bounded, a row a call, put into JSON only when somebody reads it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from onthedot.stores.contract import Record
from onthedot.stores.memory.tables import ChangeSet

_MOST = 100_000  # moves, over all rows


class _Row(msgspec.Struct, frozen=True, gc=False):
    """Nothing in it is tracked by the garbage collector: a hundred thousand tracked objects cost it 50 ms a round."""

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
        self._moves = 0
        self._number = 0

    def write(self, now: float, moves: ChangeSet) -> None:
        self._number += 1
        row = _Row(self._number, int(now), tuple(moves.entered), tuple(moves.started), tuple(moves.ended))
        self._rows.append(row)
        self._moves += len(row)
        while self._moves > _MOST and len(self._rows) > 1:
            self._moves -= len(self._rows.popleft())

    def read(self, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        if not after:
            return [(str(self._number), b"[]")]
        if not self._rows:
            return []
        start = max(0, int(after) - (self._rows[0].number - 1))
        rows = [self._rows[index] for index in range(start, min(start + limit, len(self._rows)))]
        return [(str(row.number), msgspec.json.encode(list(_lines(row)))) for row in rows]


def _lines(row: _Row) -> Iterable[tuple[int, str, str, str]]:
    for record in row.entered:
        yield row.at, record.uuid, record.source, record.state
    for record in row.started:
        yield row.at, record.uuid, record.source, "running"
    for record in row.ended:
        yield row.at, record.uuid, record.source, record.state
