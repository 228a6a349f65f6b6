"""Which ready tasks a claim takes: by rank over several sources, within slots and limits."""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from onthedot.stores.contract import BATCH, Record, SlotPool
from onthedot.stores.memory.ordered_queue import OrderedQueue
from onthedot.stores.rules.claim import source_capacity, start

if TYPE_CHECKING:
    from onthedot.stores.memory.tables import MemoryTables

_Head = tuple[int, int, "_Queue"]  # first key, a number to break ties, the queue


class _Queue:
    """One queue of a source, and how many tasks it may still give."""

    __slots__ = ("capacity", "queue", "source", "suspect")

    def __init__(self, source: str, queue: OrderedQueue, capacity: dict[str, float], suspect: bool) -> None:
        self.source = source
        self.queue = queue
        self.capacity = capacity  # by source: its ready tasks and its suspects share it
        self.suspect = suspect


class MemoryPicker:
    """One pool of one claim request. `suspects`: how many of them it may still take."""

    def __init__(self, tables: MemoryTables, pool: SlotPool, suspects: int) -> None:
        self._tables = tables
        self._pool = pool
        self.suspects: int = suspects
        self._taken: list[Record] = []
        self._parked = 0  # ready tasks whose lane has lost its capacity; a claim passes at most BATCH of them

    def run(self) -> list[Record]:
        """From the queue whose head is first, as long as it stays first."""
        heads = self._heads()
        total = self._pool.total
        while heads and len(self._taken) < total and self._parked < BATCH:
            queue = heads[0][2]
            others = heads[1:3]
            bound = min(others)[0] if others else None
            self._take(queue, bound, total - len(self._taken))
            key = queue.queue.first()
            if key is None or queue.capacity[queue.source] <= 0 or (queue.suspect and self.suspects <= 0):
                heappop(heads)
            else:
                heapreplace(heads, (key, heads[0][1], queue))
        return self._taken

    def _heads(self) -> list[_Head]:
        tables = self._tables
        capacity = {
            source: min(slots, source_capacity(tables, source)[0])
            for source, slots in self._pool.capacity.items()
            if slots > 0
        }
        heads: list[_Head] = []
        for source, slots in capacity.items():
            for suspect, queues in ((False, tables.ready), (True, tables.suspects)):
                queue = queues.get(source)
                if queue is None or slots <= 0 or (suspect and self.suspects <= 0):
                    continue
                key = queue.first()
                if key is not None:
                    heads.append((key, len(heads), _Queue(source, queue, capacity, suspect)))
        heapify(heads)
        return heads

    def _take(self, queue: _Queue, bound: int | None, limit: int) -> None:
        """From one queue, up to the key at which another is first."""
        tables = self._tables
        slots = int(min(queue.capacity[queue.source], limit, self.suspects if queue.suspect else limit))
        taken = queue.queue.pop_many(slots, bound)
        if tables.limits.has_limits or tables.has_expiring:
            popped = len(taken)
            taken = [record for record in taken if start(tables, record)]
            self._parked += popped - len(taken)
        count = len(taken)
        if not count:
            return
        counts = tables.counts(queue.source)
        counts["ready"] -= count
        counts["running"] += count
        queue.capacity[queue.source] -= count
        if queue.suspect:
            self.suspects -= count
        if tables.limits.has_limits:
            tables.limits.spend(queue.source, count, tables.now)
        tables.changes.started += taken
        self._taken += taken
