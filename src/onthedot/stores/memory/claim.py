"""Taking: which ready tasks a claim gets, in order, within room and limits."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace

from onthedot.stores.contract import BATCH, Record, SlotPool
from onthedot.stores.memory.tables import ClaimEntry, MemoryTables
from onthedot.stores.rules.limits import admitted
from onthedot.stores.rules.ordered_queue import OrderedQueue

_Head = tuple[int, int, "_Queue"]  # first key, a number to break ties, the queue


class _Queue:
    """One order that a claim takes from, and how many it may still give."""

    __slots__ = ("left", "order", "source", "suspect")

    def __init__(self, source: str, order: OrderedQueue, left: dict[str, float], suspect: bool) -> None:
        self.source = source
        self.order = order
        self.left = left  # by source: ready ones and suspects share it
        self.suspect = suspect


class MemoryPicker:
    """One pool of one ask. `suspects`: how many of these the session may still run; it goes down with each."""

    def __init__(self, tables: MemoryTables, pool: SlotPool, claim: ClaimEntry, suspects: int, now: float) -> None:
        self._tables = tables
        self._pool = pool
        self._claim = claim
        self._now = now
        self.suspects: int = suspects
        self._taken: list[Record] = []
        self._shut = 0  # ready ones whose lane has closed meanwhile: no claim walks past more than a batch of them

    def run(self) -> list[Record]:
        """By (rank, seq) over all sources: from the queue whose head is first, as long as it stays first."""
        heads = self._heads()
        total = self._pool.total
        while heads and len(self._taken) < total and self._shut < BATCH:
            queue = heads[0][2]
            others = heads[1:3]
            bound = min(others)[0] if others else None
            self._from(queue, bound, total - len(self._taken))
            key = queue.order.first()
            if key is None or queue.left[queue.source] <= 0 or (queue.suspect and self.suspects <= 0):
                heappop(heads)
            else:
                heapreplace(heads, (key, heads[0][1], queue))
        return self._taken

    def _heads(self) -> list[_Head]:
        tables, now = self._tables, self._now
        asks = self._pool.capacity.items()
        left = {source: min(asked, _room(tables, source, now)[0]) for source, asked in asks if asked > 0}
        heads: list[_Head] = []
        for source, room in left.items():
            for suspect, orders in ((False, tables.ready), (True, tables.suspects)):
                order = orders.get(source)
                if order is None or room <= 0 or (suspect and self.suspects <= 0):
                    continue
                key = order.first()
                if key is not None:
                    heads.append((key, len(heads), _Queue(source, order, left, suspect)))
        heapify(heads)
        return heads

    def _from(self, queue: _Queue, bound: int | None, most: int) -> None:
        """One order, up to a key that another order has."""
        tables = self._tables
        room = int(min(queue.left[queue.source], most, self.suspects if queue.suspect else most))
        taken = queue.order.pop_many(room, bound)
        if tables.limits.declared or tables.expiring:
            taken = [record for record in taken if self._starts(record)]
        count = len(taken)
        if not count:
            return
        claim, blockers, uuids = self._claim, tables.holds, [record.uuid for record in taken]
        for uuid in uuids:
            blockers[uuid] = claim
        claim.taken += uuids
        claim.left += count
        counts = tables.counts(queue.source)
        counts["ready"] -= count
        counts["running"] += count
        queue.left[queue.source] -= count
        if queue.suspect:
            self.suspects -= count
        tables.limits.spend(queue.source, count, self._now)
        tables.moves.started += taken
        self._taken += taken

    def _starts(self, record: Record) -> bool:
        """The last look at its lane; not open any more: parked."""
        limits = self._tables.limits
        if record.lane is None:
            self._tables.clear_alarm(record)
            return True
        lane = limits.lane(record.lane)
        admitted(lane, record, -1)
        if limits.may_start(lane, record.policy.cost, self._now):
            self._tables.clear_alarm(record)
            lane.running += 1
            if (first := lane.parked.first()) is not None:  # from now on time may open it for the next
                limits.has_capacity(lane, lane.parked.members[first].policy.cost, self._now)
            return True
        self._tables.park(record)
        self._shut += 1
        return False


def _room(tables: MemoryTables, source: str, now: float) -> tuple[float, float | None]:
    return tables.limits.source_capacity(source, tables.counts(source)["running"], now)


def idle_sources(
    tables: MemoryTables, pools: Sequence[SlotPool], suspects: bool, now: float
) -> dict[str, float | None]:
    """Asked sources that have nothing to take now, and for how many ms (None: until something happens)."""
    rest: dict[str, float | None] = {}
    for source in [source for pool in pools for source, asked in pool.capacity.items() if asked > 0]:
        orders = (tables.ready.get(source), tables.suspects.get(source) if suspects else None)
        if all(order is None or order.first() is None for order in orders):
            rest[source] = None
            continue
        free, wait = _room(tables, source, now)
        if free <= 0:
            rest[source] = wait
    return rest


def take_strays(tables: MemoryTables, known: frozenset[str], claim: ClaimEntry, most: int, now: float) -> list[Record]:
    """Ready tasks of sources that nobody here knows: to be ended."""
    taken: list[Record] = []
    for orders in (tables.ready, tables.suspects):
        for source in orders.keys() - known:
            order = orders[source]
            while len(taken) < most and (key := order.first()) is not None:
                record = tables.end_as_chore(order.members[key], "stray", now)
                tables.hold(record, claim)
                taken.append(record)
    return taken
