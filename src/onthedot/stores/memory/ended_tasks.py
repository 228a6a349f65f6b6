"""Ended tasks by source and state, in the order of their ends."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterator, Mapping

from onthedot.stores.contract import Record, State
from onthedot.stores.rules.pages import Key


def _end(record: Record) -> int:
    assert record.history.ended is not None
    return record.history.ended


class EndedTasks:
    """Tasks that were deleted or revived stay until they are the majority."""

    __slots__ = ("_ended", "_records")

    def __init__(self, records: Mapping[str, Record]) -> None:
        """records: of the store, by uuid."""
        self._records = records
        self._ended: deque[Record] = deque()

    def append(self, record: Record, number: int) -> None:
        """number: how many of these there are, with this one."""
        ended = self._ended
        if ended and _end(ended[-1]) > _end(record):  # the clock was set back
            insort(ended, record, key=_end)
        else:
            ended.append(record)
        if len(ended) > 2 * number + 64:
            self._ended = deque(each for each in ended if self._is_current(each))

    def before(self, after: Key | None) -> Iterator[Record]:
        """Last ended first, behind a key; of one millisecond, last added first."""
        ended = self._ended
        place = len(ended) if after is None else bisect_right(ended, after[0], key=_end)
        while place:
            moment = _end(ended[place - 1])
            together: dict[int, Record] = {}  # by seq: one may have ended twice in a millisecond
            while place and _end(ended[place - 1]) == moment:
                place -= 1
                if self._is_current(ended[place]):
                    together[ended[place].seq] = self._records[ended[place].uuid]
            for seq in sorted(together, reverse=True):
                if after is None or (moment, seq) < after:
                    yield together[seq]

    def _is_current(self, record: Record) -> bool:
        stored = self._records.get(record.uuid)
        if stored is record:
            return True
        if stored is None or stored.state != record.state:
            return False
        return stored.seq == record.seq and stored.history.ended == record.history.ended  # it is kept for its flow


class EndedTable:
    """The ended tasks of each source and state."""

    def __init__(self, records: Mapping[str, Record]) -> None:
        """records: of the store, by uuid."""
        self._records = records
        self._tasks: dict[tuple[str, State], EndedTasks] = {}

    def append(self, record: Record, number: int) -> None:
        """number: how many of its source and state there are, with this one."""
        key = (record.source, record.state)
        tasks = self._tasks.get(key)
        if tasks is None:
            tasks = self._tasks[key] = EndedTasks(self._records)
        tasks.append(record, number)

    def in_state(self, state: str, source: str | None) -> list[EndedTasks]:
        """source: None for all of them."""
        return [tasks for (name, each), tasks in self._tasks.items() if each == state and source in (None, name)]
