"""Looking for tasks: newest first, a bounded look a call."""

from __future__ import annotations

from collections.abc import Mapping

from onthedot.stores.contract import Page, Record
from onthedot.stores.memory.tables import MemoryTables
from onthedot.stores.rules.filters import check, fits

_LOOK = 20_000  # records a call looks at, so that the lock is never held for long


def find(tables: MemoryTables, where: Mapping[str, str], after: str | None, limit: int, now: float) -> Page:
    check(where)
    rows: list[Record] = []
    before = int(after) if after else None
    looked = 0
    for stored in _running(tables) if where.get("state") == "running" else reversed(tables.records.values()):
        if before is not None and stored.seq >= before:
            continue
        if looked == _LOOK or len(rows) == limit:
            return Page(rows, str(stored.seq + 1))
        looked += 1
        record = tables.as_seen(stored, now)
        if fits(record, where):
            rows.append(record)
    return Page(rows, None)


def _running(tables: MemoryTables) -> list[Record]:
    """Few, and known from the claims, however many wait."""
    leased = [tables.records[uuid] for uuid, claim in tables.holds.items() if not claim.chores]
    return sorted(leased, key=lambda record: record.seq, reverse=True)
