"""A heap of records that forgets lazily."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from onthedot.stores.contract import Record

SEQ_BITS = 40


class Order:
    """Records by (moment, seq), packed into one int each: half the time and the space of a heap of tuples.

    Who leaves early leaves only `members`; the heap drops the entry when it comes up, and is swept when most are stale.
    """

    __slots__ = ("heap", "members")

    def __init__(self) -> None:
        self.heap: list[int] = []
        self.members: dict[int, Record] = {}

    def push(self, moment: int, record: Record) -> None:
        key = moment << SEQ_BITS | record.seq
        self.members[key] = record
        heappush(self.heap, key)

    def remove(self, moment: int, record: Record) -> None:
        del self.members[moment << SEQ_BITS | record.seq]
        if len(self.heap) > 64 and len(self.heap) > 2 * len(self.members):
            self.heap = list(self.members)
            heapify(self.heap)

    def first(self) -> int | None:
        """The first key; what is stale before it goes."""
        heap, members = self.heap, self.members
        while heap:
            if heap[0] in members:
                return heap[0]
            heappop(heap)
        return None

    def moment(self) -> int | None:
        key = self.first()
        return None if key is None else key >> SEQ_BITS

    def pop_until(self, moment: float) -> Record | None:
        """Takes the first out, if its moment has come."""
        key = self.first()
        if key is None or key >> SEQ_BITS > moment:
            return None
        heappop(self.heap)
        return self.members.pop(key)
