"""The change feed: bounded, one row per call; counts and transitions are made when it is read."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from operator import attrgetter

import msgspec

from onthedot.stores.contract import MAX_TRANSITIONS, ChangeEntry, ChangePage, Record, State, Transition

_source_and_state = attrgetter("source", "state")
_source = attrgetter("source")


class ChangeSet:
    """The transitions of one call, for the change log."""

    __slots__ = ("ended", "entered", "started")

    def __init__(self) -> None:
        self.entered: list[Record] = []
        self.started: list[Record] = []
        self.ended: list[Record] = []

    def __bool__(self) -> bool:
        return bool(self.entered or self.started or self.ended)

    def clear(self) -> None:
        self.entered.clear()
        self.started.clear()
        self.ended.clear()


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
        while self._transitions - len(self._rows[0]) >= MAX_TRANSITIONS:
            self._transitions -= len(self._rows.popleft())

    def read(self, after: str, limit: int, resolve: int) -> ChangePage:
        if not after:
            return ChangePage([], str(self._number))
        last = int(after)
        first_kept = self._number - len(self._rows) + 1
        start = max(0, last + 1 - first_kept)
        rows = [self._rows[index] for index in range(start, min(start + limit, len(self._rows)))]
        gap = not first_kept - 1 <= last <= self._number
        entries: list[ChangeEntry] = []
        for row in reversed(rows):
            transitions = _newest(row, resolve)
            resolve -= len(transitions)
            entries.append(ChangeEntry(row.at, _counts(row), transitions))
        entries.reverse()
        return ChangePage(entries, str(rows[-1].number) if rows else str(min(last, self._number)), gap)


def _counts(row: _Row) -> dict[str, dict[State, int]]:
    counts: dict[str, dict[State, int]] = {}
    for (source, state), number in Counter(map(_source_and_state, (*row.entered, *row.ended))).items():
        counts.setdefault(source, {})[state] = number
    for source, number in Counter(map(_source, row.started)).items():
        counts.setdefault(source, {})["running"] = number
    return counts


def _newest(row: _Row, number: int) -> Sequence[Transition]:
    if number <= 0:
        return ()
    return list(_transitions(row, max(0, len(row) - number)))


def _transitions(row: _Row, skip: int) -> Iterator[Transition]:
    parts: tuple[tuple[tuple[Record, ...], State | None], ...] = (
        (row.entered, None), (row.started, "running"), (row.ended, None),
    )  # fmt: skip
    for records, state in parts:
        for record in records[skip:]:
            yield Transition(row.at, record.uuid, record.source, state or record.state)
        skip = max(0, skip - len(records))
