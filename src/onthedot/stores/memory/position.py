"""How a waiting task stands: what holds it back, and who is before it."""

from __future__ import annotations

from onthedot.stores.contract import MAX_AHEAD, Position, Record
from onthedot.stores.memory.tables import MemoryTables
from onthedot.stores.rules.ordered_queue import OrderedQueue
from onthedot.stores.rules.position import blockers
from onthedot.stores.rules.records import CHORE_REASONS, ENDED


def standing(tables: MemoryTables, uuid: str, now: float) -> Position | None:
    record = tables.records.get(uuid)
    if record is None or record.state in ENDED or record.history.reason in CHORE_REASONS or uuid in tables.holds:
        return None
    ahead = sum(order.before(record.rank, record.seq, MAX_AHEAD) for order in _orders(tables, record))
    running = tables.counts(record.source)["running"]
    return Position(blockers(tables.limits.snapshot(record), record, running, now), min(ahead, MAX_AHEAD))


def _orders(tables: MemoryTables, record: Record) -> list[OrderedQueue]:
    orders = [each[record.source] for each in (tables.ready, tables.suspects) if record.source in each]
    if record.state == "parked":
        assert record.lane is not None
        orders.append(tables.limits.lane(record.lane).parked)
    return orders
