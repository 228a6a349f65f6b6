"""The records that an agent has received in this process: how many, in which order they start, and which are open."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from onthedot.events.bus import BusRecord, TopicPartition
from onthedot.events.partition_windows import PartitionWindow, ReceivedRecord
from onthedot.stores.contract import NewTask

_place_of = attrgetter("topic", "partition")


class RecordsInFlight:
    """Bounds and orders what is received and not ended.

    ordered: a record is ready to be added after the one before it with the same key has ended. most: how many are in
    flight; one key has half of it. Records above that wait in the backlog of their partition. A record without a key
    has no order.
    """

    def __init__(self, most: int, *, ordered: bool) -> None:
        self._most = most
        self._most_per_key = max(1, most // 2)
        self._ordered = ordered
        self.windows: dict[TopicPartition, PartitionWindow] = {}
        self.count: int = 0
        self._is_full = False
        self._turn = 0
        self._ready: deque[ReceivedRecord] = deque()
        self._open: dict[str, list[ReceivedRecord]] = {}  # by uuid; a copy ends with the first
        self._unread: deque[str] = deque()  # uuids whose tasks are not read in this round

    # -- receiving

    def receive(self, records: Sequence[BusRecord]) -> None:
        """Takes over records that were read; `accept` starts them."""
        for (topic, number), some in groupby(records, key=_place_of):
            partition = TopicPartition(topic, number)
            window = self.windows.get(partition)
            if window is None:
                window = self.windows[partition] = PartitionWindow(partition)
            window.backlog.extend(some)

    def accept(self, task_of: Callable[[BusRecord], NewTask | None]) -> int:
        """Accepts records of the backlogs as far as there is capacity; returns how many were skipped."""
        skipped = 0
        for window in self._in_turn():
            while window.backlog and self._has_capacity(window):
                record = window.backlog[0]
                task = task_of(record)
                received = ReceivedRecord(window, record.offset, record.message.key, task, task is None)
                window.backlog.popleft()  # not before: a record is never lost
                window.add(received)
                if received.task is None:
                    skipped += 1
                else:
                    self._enqueue(received)
        return skipped

    def _in_turn(self) -> list[PartitionWindow]:
        """All partitions; another one is the first each time."""
        windows = list(self.windows.values())
        if not windows:
            return windows
        self._turn = (self._turn + 1) % len(windows)
        return windows[self._turn :] + windows[: self._turn]

    def _has_capacity(self, window: PartitionWindow) -> bool:
        if self.count >= self._most:
            return False
        key = window.backlog[0].message.key
        if key is None or (same := window.by_key.get(key)) is None:
            return True
        return len(same) < self._most_per_key

    def _enqueue(self, received: ReceivedRecord) -> None:
        self.count += 1
        if received.key is None:
            self._ready.append(received)
            return
        same = received.window.by_key.setdefault(received.key, [])
        same.append(received)
        received.same_key = same
        if not self._ordered or len(same) == 1:  # ordered: the first one is ready or open
            self._ready.append(received)

    @property
    def has_backlog(self) -> bool:
        return any(window.backlog for window in self.windows.values())

    @property
    def backlog(self) -> int:
        """Records that were read and not accepted."""
        return sum(len(window.backlog) for window in self.windows.values())

    def blocked(self) -> Collection[TopicPartition]:
        """The partitions of which nothing more can be taken. After it was full, a quarter must be free again."""
        if self.count >= self._most:
            self._is_full = True
        elif self.count <= self._most * 3 // 4:
            self._is_full = False
        return {partition for partition, window in self.windows.items() if window.backlog or self._is_full}

    # -- adding

    def take_ready(self, limit: int) -> list[NewTask]:
        """The next tasks to add; from now on they are open. A copy of an open one is not added."""
        tasks: list[NewTask] = []
        while self._ready and len(tasks) < limit:
            received = self._ready.popleft()
            assert received.task is not None
            if received.window.is_revoked:
                continue
            same = self._open.get(received.task.uuid)
            if same is None:
                self._open[received.task.uuid] = [received]
                tasks.append(received.task)
            else:
                same.append(received)
        return tasks

    def put_back(self, tasks: Iterable[NewTask]) -> None:
        """These were not added: they are ready again, in the same order."""
        for task in reversed(list(tasks)):
            self._ready.extendleft(reversed(self._open.pop(task.uuid, [])))

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    # -- ends

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    def open_among(self, uuids: Collection[str]) -> list[str]:
        """Those of these tasks that are open here."""
        if len(uuids) > len(self._open):
            return [uuid for uuid in self._open if uuid in uuids]
        return [uuid for uuid in uuids if uuid in self._open]

    def oldest_open(self, limit: int) -> list[str]:
        """The tasks to read now: the oldest ones, then those after them, until all were read and it begins again."""
        if not self._unread:
            self._unread.extend(self._open)
        found: list[str] = []
        while self._unread and len(found) < limit:
            uuid = self._unread.popleft()
            if uuid in self._open:
                found.append(uuid)
        return found

    def end(self, uuid: str) -> int:
        """A task has ended; returns how many records are done with it."""
        ended = self._open.pop(uuid, [])
        for received in ended:
            received.is_done = True
            if not received.window.is_revoked:
                received.window.ended += 1
                self._leave(received)
        return len(ended)

    def _leave(self, received: ReceivedRecord) -> None:
        self.count -= 1
        same = received.same_key
        if same is None:
            return
        assert received.key is not None
        same.pop(0)  # without order any of them will do: only their number counts
        if not same:
            del received.window.by_key[received.key]
        elif self._ordered:
            self._ready.append(same[0])

    # -- leaving partitions

    def forget(self, partitions: Collection[TopicPartition]) -> list[PartitionWindow]:
        """These belong to another member now; their tasks continue. Returns what was read of them."""
        windows = [window for each in partitions if (window := self.windows.pop(each, None)) is not None]
        for window in windows:
            window.is_revoked = True
            window.backlog.clear()
            self.count -= window.open_count
        self._ready = deque(each for each in self._ready if not each.window.is_revoked)
        for uuid, same in list(self._open.items()):
            same[:] = [each for each in same if not each.window.is_revoked]
            if not same:
                del self._open[uuid]
        return windows
