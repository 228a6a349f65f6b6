"""Looking for tasks: newest first, a bounded look a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onthedot.stores.contract import Page, Record
from onthedot.stores.memory.board import Board

_LOOK = 20_000  # records a call looks at, so that the lock is never held for long


def find(board: Board, where: Mapping[str, str], after: str | None, limit: int, now: float) -> Page:
    unknown = where.keys() - _FILTERS.keys()
    if unknown:
        raise ValueError(f"cannot filter by {', '.join(sorted(unknown))}; known: {', '.join(_FILTERS)}")
    rows: list[Record] = []
    before = int(after) if after else None
    looked = 0
    for stored in _running(board) if where.get("state") == "running" else reversed(board.records.values()):
        if before is not None and stored.seq >= before:
            continue
        if looked == _LOOK or len(rows) == limit:
            return Page(rows, str(stored.seq + 1))
        looked += 1
        record = board.seen(stored, now)
        if all(_FILTERS[name](record, value) for name, value in where.items()):
            rows.append(record)
    return Page(rows, None)


def _running(board: Board) -> list[Record]:
    """Few, and known from the claims, however many wait."""
    held = [board.records[uuid] for uuid, claim in board.holds.items() if not claim.chores]
    return sorted(held, key=lambda record: record.seq, reverse=True)


_FILTERS: dict[str, Callable[[Record, str], bool]] = {
    "uuid": lambda record, value: record.uuid.startswith(value),
    "source": lambda record, value: record.source == value,
    "state": lambda record, value: record.state == value,
    "tag": lambda record, value: value in record.policy.tags,
    "unique": lambda record, value: record.unique == value,
    "lane": lambda record, value: record.lane == value,
    "since": lambda record, value: record.added >= int(value),
    "until": lambda record, value: record.added < int(value),
}
