"""How a waiting task stands: what holds it back, and who is before it."""

from __future__ import annotations

from onthedot.stores.contract import AHEAD, Record, Standing
from onthedot.stores.memory.tables import Board
from onthedot.stores.rules.ordered_queue import Order
from onthedot.stores.rules.position import holds
from onthedot.stores.rules.records import ENDED, ENDING


def standing(board: Board, uuid: str, now: float) -> Standing | None:
    record = board.records.get(uuid)
    if record is None or record.state in ENDED or record.past.why in ENDING or uuid in board.holds:
        return None
    ahead = sum(order.before(record.rank, record.seq, AHEAD) for order in _orders(board, record))
    running = board.counts(record.source)["running"]
    return Standing(holds(board.limits.scratch(record), record, running, now), min(ahead, AHEAD))


def _orders(board: Board, record: Record) -> list[Order]:
    orders = [each[record.source] for each in (board.ready, board.suspects) if record.source in each]
    if record.state == "parked":
        assert record.lane is not None
        orders.append(board.limits.lane(record.lane).parked)
    return orders
