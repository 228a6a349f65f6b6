"""The change log: bounded, a row a call, put into JSON only when somebody reads it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from onthedot.stores.memory.board import Moves

_MOST = 100_000  # moves, over all rows


class Changes:
    def __init__(self) -> None:
        self._rows: deque[tuple[int, float, Moves]] = deque()
        self._moves = 0
        self._number = 0

    def write(self, now: float, moves: Moves) -> None:
        self._number += 1
        self._rows.append((self._number, now, moves))
        self._moves += len(moves)
        while self._moves > _MOST and len(self._rows) > 1:
            self._moves -= len(self._rows.popleft()[2])

    def read(self, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        if not after:
            return [(str(self._number), b"[]")]
        first = int(after)
        if self._rows:
            first = max(first, self._rows[0][0] - 1)
        start = first - (self._rows[0][0] - 1) if self._rows else 0
        rows = [self._rows[index] for index in range(start, min(start + limit, len(self._rows)))]
        return [(str(number), _encode(now, moves)) for number, now, moves in rows]


def _encode(now: float, moves: Moves) -> bytes:
    at = int(now)
    rows = [[at, record.uuid, record.source, record.state] for record in moves.entered]
    rows += [[at, record.uuid, record.source, "running"] for record in moves.started]
    rows += [[at, record.uuid, record.source, record.state] for record in moves.ended]
    return msgspec.json.encode(rows)
