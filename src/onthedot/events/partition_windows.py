"""Records of a partition that were read, and which of them have ended: the offset never passes an open one."""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from onthedot.events.bus import BusRecord, TopicPartition
from onthedot.stores.contract import NewTask


class ReceivedRecord(Struct, eq=False):
    """A record that was read: skipped, or handled by a task."""

    window: PartitionWindow
    offset: int
    key: bytes | None
    task: NewTask | None  # None: skipped
    is_done: bool
    same_key: list[ReceivedRecord] | None = None  # those in flight with its key, of which it is one


class PartitionWindow:
    """The records of a partition that are read and not committed, in the order of their offsets."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.is_revoked: bool = False
        self.backlog: deque[BusRecord] = deque()  # read, and not accepted: too many are in flight
        self.ended: int = 0  # records since the last commit
        self.by_key: dict[bytes, list[ReceivedRecord]] = {}  # those in flight, in order
        self._records: deque[ReceivedRecord] = deque()
        self._next: int | None = None  # offset to commit; None: nothing was read
        self._committed: int | None = None

    def add(self, received: ReceivedRecord) -> None:
        if self._next is None:
            self._next = received.offset
            self._committed = received.offset
        self._records.append(received)
        if received.is_done:
            self.ended += 1

    def offset(self) -> int | None:
        """The offset to commit: up to it, all records have ended. None: it was committed."""
        while self._records and self._records[0].is_done:
            self._next = self._records.popleft().offset + 1
        if self._next == self._committed:
            return None
        return self._next

    def mark_committed(self, offset: int) -> None:
        self._committed = offset
        self.ended = 0

    @property
    def open_count(self) -> int:
        """Records that are accepted and not done."""
        return sum(not each.is_done for each in self._records)
