"""Ended records of a memory store, in queues per keeping time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from onthedot.clock.durations import DAY
from onthedot.stores.contract import ENDED, Record
from onthedot.stores.rules.records import with_state

if TYPE_CHECKING:
    from onthedot.stores.memory.tables import MemoryTables

_RECHECK = DAY  # ms after which a member that is kept for its flow is looked at again


def drop_expired(tables: MemoryTables, limit: int) -> int:
    dropped = 0
    for _ in range(limit):
        expired = [record for record in _firsts(tables) if _keep_until(record) <= tables.now]
        if not expired:
            return dropped
        first = min(expired, key=lambda record: (_keep_until(record), record.seq))
        if _is_kept_for_flow(tables, first):
            _keep_for_a_day(tables, first)
        else:
            tables.delete_ended(first)
            dropped += 1
    return dropped


def drop_oldest(tables: MemoryTables, limit: int, most: int) -> int:
    dropped = 0
    for _ in range(limit):
        if tables.retained_count <= most:
            break
        firsts = _firsts(tables)
        kept = [record for record in firsts if _is_kept_for_flow(tables, record)]
        free = [record for record in firsts if record not in kept]
        for record in kept:  # those behind them may be dropped
            _keep_for_a_day(tables, record)
        if free:
            tables.delete_ended(min(free, key=lambda record: (record.history.ended or 0, record.seq)))
            dropped += 1
    return dropped


def _is_kept_for_flow(tables: MemoryTables, record: Record) -> bool:
    """Its flow's last task lives, and may need its result."""
    flow = None if record.links is None else record.links.flow
    last = None if flow is None else tables.records.get(flow)
    return last is not None and last.state not in ENDED


def _keep_for_a_day(tables: MemoryTables, record: Record) -> None:
    kept = with_state(record, record.state, replace(record.history, keep_until=int(tables.now) + _RECHECK))
    tables.records[kept.uuid] = kept
    tables.retained[_RECHECK].append(kept)


def _firsts(tables: MemoryTables) -> list[Record]:
    """The first record of each keeping time."""
    firsts: list[Record] = []
    for retained in tables.retained.values():
        while retained and tables.records.get(retained[0].uuid) is not retained[0]:
            retained.popleft()  # revived since, or deleted
        if retained:
            firsts.append(retained[0])
    return firsts


def _keep_until(record: Record) -> int:
    assert record.history.keep_until is not None  # it has ended
    return record.history.keep_until
