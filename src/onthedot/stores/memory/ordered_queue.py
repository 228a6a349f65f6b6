"""Records in order of (time, seq). Most are pushed in that order already."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush, nsmallest

from onthedot.stores.contract import Record

SEQ_BITS = 40


def last_key(moment: int) -> int:
    """No record of this moment has a larger key."""
    return ((moment + 1) << SEQ_BITS) - 1


class OrderedQueue:
    """Records by (moment, seq), packed into one int each: half the time and the space of tuples.

    Keys that are pushed in order are in a deque, others in a heap; popping from a deque costs the same for a thousand
    keys and for a million. A record that is removed early leaves `members` only: its stale key is dropped when it is
    first, and all stale keys are swept when they are the majority.
    """

    __slots__ = ("_heap", "_queue", "members")

    def __init__(self) -> None:
        self.members: dict[int, Record] = {}
        self._queue: deque[int] = deque()
        self._heap: list[int] = []

    def push(self, moment: int, record: Record) -> None:
        key = moment << SEQ_BITS | record.seq
        self.members[key] = record
        queue = self._queue
        if not queue or key > queue[-1]:
            queue.append(key)
        else:
            heappush(self._heap, key)

    def push_many(self, moment: int, records: Sequence[Record]) -> None:
        first = moment << SEQ_BITS
        members = self.members
        queue = self._queue
        last = queue[-1] if queue else -1
        for record in records:
            key = first | record.seq
            members[key] = record
            if key > last:
                queue.append(key)
                last = key
            else:
                heappush(self._heap, key)

    def remove(self, moment: int, record: Record) -> None:
        """A record that is not in the queue is ignored."""
        self.remove_many(moment, (record,))

    def remove_many(self, moment: int, records: Sequence[Record]) -> None:
        first = moment << SEQ_BITS
        members = self.members
        for record in records:
            members.pop(first | record.seq, None)
        stale = len(self._queue) + len(self._heap) - len(self.members)
        if stale > 64 and stale > len(self.members):
            self._queue = deque(key for key in self._queue if key in self.members)
            self._heap = [key for key in self._heap if key in self.members]
            heapify(self._heap)

    def first(self) -> int | None:
        """The first key; stale keys before it are dropped."""
        queue = self._queue
        heap = self._heap
        members = self.members
        while queue and queue[0] not in members:
            queue.popleft()
        while heap and heap[0] not in members:
            heappop(heap)
        if not heap:
            return queue[0] if queue else None
        return heap[0] if not queue or heap[0] < queue[0] else queue[0]

    def first_record(self) -> Record | None:
        key = self.first()
        return None if key is None else self.members[key]

    def moment(self) -> int | None:
        key = self.first()
        return None if key is None else key >> SEQ_BITS

    def after(self, moment: int, seq: int, most: int) -> list[int]:
        """The first keys behind this one, in order."""
        start = moment << SEQ_BITS | seq
        queue = self._queue
        found: set[int] = set()
        for place in range(bisect_right(queue, start), len(queue)):
            if len(found) == most:
                break
            if queue[place] in self.members:
                found.add(queue[place])
        others = {key for key in self._heap if key > start and key in self.members}  # a key may be there twice
        found.update(nsmallest(most, others))
        return sorted(found)[:most]

    def before(self, moment: int, seq: int, most: int) -> int:
        """How many records are before this one, counted up to `most`; later ones are not read."""
        end = moment << SEQ_BITS | seq
        found: set[int] = set()  # a record that was removed and pushed again may have two keys
        for key in self._queue:
            if key >= end or len(found) >= most:
                break
            if key in self.members:
                found.add(key)
        heap = self._heap
        below = [0]
        while below and len(found) < most:  # from the root of the heap down: below a later key, all keys are later
            place = below.pop()
            if place < len(heap) and heap[place] < end:
                if heap[place] in self.members:
                    found.add(heap[place])
                below += (2 * place + 1, 2 * place + 2)
        return len(found)

    def pop_until(self, moment: float) -> Record | None:
        """Pop the first record, if its moment has come."""
        key = self.first()
        if key is None or key >> SEQ_BITS > moment:
            return None
        return self.members.pop(key)

    def pop_many(self, most: int, bound: int | None) -> list[Record]:
        """Pop the first records, not beyond a key."""
        taken: list[Record] = []
        queue = self._queue
        members = self.members
        while len(taken) < most:
            if self._heap or not queue:
                key = self.first()
                if key is None:
                    break
            else:
                key = queue[0]
            if bound is not None and key > bound:
                break
            if queue and key == queue[0]:
                queue.popleft()
            record = members.pop(key, None)
            if record is not None:
                taken.append(record)
        return taken
