"""Reads of a memory store: pages of tasks, and the position of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onthedot.stores.contract import MAX_AHEAD, Page, Position, Record
from onthedot.stores.memory.ordered_queue import OrderedQueue
from onthedot.stores.memory.tables import MemoryTables
from onthedot.stores.rules.filters import check, fits
from onthedot.stores.rules.position import blockers
from onthedot.stores.rules.records import ENDED, UNQUEUED_REASONS

_MAX_READ = 20_000  # records per call, so that the lock is never held for long


def find(tables: MemoryTables, where: Mapping[str, str], after: str | None, limit: int, now: float) -> Page:
    """Newest first."""
    check(where)
    rows: list[Record] = []
    before = int(after) if after else None
    read = 0
    candidates: Iterable[Record] = reversed(tables.records.values())
    if where.get("state") == "running":
        candidates = _running(tables)
    for stored in candidates:
        if before is not None and stored.seq >= before:
            continue
        if read == _MAX_READ or len(rows) == limit:
            return Page(rows, str(stored.seq + 1))
        read += 1
        record = tables.as_seen(stored, now)
        if fits(record, where):
            rows.append(record)
    return Page(rows, None)


def _running(tables: MemoryTables) -> list[Record]:
    """They are few, and known from the leases, however many tasks are pending."""
    running = [tables.records[uuid] for uuid, claim in tables.leases.items() if not claim.chores]
    return sorted(running, key=lambda record: record.seq, reverse=True)


def position(tables: MemoryTables, uuid: str, now: float) -> Position | None:
    """None: it is not pending."""
    record = tables.records.get(uuid)
    if record is None or record.state in ENDED or record.history.reason in UNQUEUED_REASONS or uuid in tables.leases:
        return None
    if record.state == "waiting":
        return None
    ahead = sum(queue.before(record.rank, record.seq, MAX_AHEAD) for queue in _queues_before(tables, record))
    running = tables.count_running(record.source)
    return Position(blockers(tables.limits.snapshot(record), record, running, now), min(ahead, MAX_AHEAD))


def _queues_before(tables: MemoryTables, record: Record) -> list[OrderedQueue]:
    queues = [each[record.source] for each in (tables.ready, tables.suspects) if record.source in each]
    if record.state == "parked":
        assert record.lane is not None
        queues.append(tables.limits.parked_in(record.lane))
    return queues
