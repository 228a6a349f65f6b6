"""Failed tasks, grouped by error. `newest_failures` is the one reader of page, commands and attention items."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from onthedot.clock.epoch import from_optional_ms
from onthedot.codec.task_failure import TaskFailure
from onthedot.model.error_fingerprint import error_line, fingerprint, message_template
from onthedot.model.failures import decode_failure
from onthedot.operations.argument_checks import check_time
from onthedot.stores.contract import Record, Store

MAX_READ = 100_000  # failed tasks; of more, the newest are counted
SLICE = 500  # per read
_PARTS = 24  # of a trend


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed tasks with the same source, error and place in the code, up to what varies in the message.

    trend: failures per 24th part of the time asked for; empty without a beginning
    began: when the first of those that are kept failed, also before the time asked for
    """

    group: str
    source: str
    type: str
    message: str
    place: str
    count: int
    first: datetime | None
    last: datetime | None
    example: str
    trend: tuple[int, ...] = ()
    began: datetime | None = None


class _Group:
    """A group that is being counted: when its tasks ended, and the newest error."""

    def __init__(self, record: Record, error: TaskFailure) -> None:
        self.source = record.source
        self.example = record.uuid
        self.error = error
        self.last = record.history.ended or 0
        self._ends = array("q")  # ms
        self._is_sorted = True  # the newest first

    def add(self, record: Record, error: TaskFailure) -> None:
        ended = record.history.ended or 0
        if self._ends and ended > self._ends[-1]:
            self._is_sorted = False
        self._ends.append(ended)
        if ended > self.last:
            self.last = ended
            self.example = record.uuid
            self.error = error

    def describe(self, name: str, begin: int | None, end: int) -> FailureGroup | None:
        """None: nothing since the beginning."""
        if not self._is_sorted:
            self._ends = array("q", sorted(self._ends, reverse=True))
            self._is_sorted = True
        ends = self._ends
        count = len(ends) if begin is None else bisect_right(ends, -begin, key=lambda at: -at)
        if not count:
            return None
        error = self.error
        return FailureGroup(
            group=name,
            source=self.source,
            type=error.type,
            message=message_template(error.message) if count > 1 else error.message,
            place=error_line(error),
            count=count,
            first=from_optional_ms(ends[count - 1] or None),
            last=from_optional_ms(self.last or None),
            example=self.example,
            trend=() if begin is None else _trend(ends, count, begin, end),
            began=from_optional_ms(ends[-1] or None),
        )


class FailureGroups:
    """Counts failed tasks by error. Of each group the newest record is kept, since a message may be long."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self.read_count: int = 0
        self.oldest: int | None = None
        """When the last record that was read has ended, in ms."""

    def add(self, records: Sequence[Record]) -> None:
        self.read_count += len(records)
        for record in records:
            ended = record.history.ended
            if ended is not None:
                self.oldest = ended if self.oldest is None else min(self.oldest, ended)
            error = decode_failure(record.history.error)
            if error is not None and error.type:
                name = fingerprint(record.source, error)
                group = self._groups.get(name)
                if group is None:
                    group = self._groups[name] = _Group(record, error)
                group.add(record, error)

    def describe(self, begin: int | None, end: int, source: str | None = None) -> list[FailureGroup]:
        """Return the groups, the most frequent first. begin, end: of what is counted and of the trend, in ms."""
        found = [
            group.describe(name, begin, end) for name, group in self._groups.items() if source in (None, group.source)
        ]
        return sorted((group for group in found if group is not None), key=lambda group: -group.count)


async def newest_failures(
    store: Store, since: int | None = None, source: str | None = None, most: int = MAX_READ, size: int = SLICE
) -> AsyncIterator[Sequence[Record]]:
    """Yield failed tasks in slices, the last ended first: those that ended since then, in ms, and at most so many."""
    where = {"state": "failed"} | ({} if source is None else {"source": source})
    cursor: str | None = None
    while most > 0:
        page = await store.find(where, cursor, min(size, most))
        rows = page.rows
        if since is not None:
            rows = [record for record in rows if (record.history.ended or 0) >= since]
        yield rows
        most -= len(page.rows)
        cursor = page.after
        if cursor is None or len(rows) < len(page.rows):
            return


async def group_failures(
    store: Store, now: int, since: datetime | None = None, source: str | None = None, most: int = MAX_READ
) -> list[FailureGroup]:
    """Return the groups of the newest failed tasks, the most frequent first. now: in ms."""
    begin = None if since is None else check_time("failures", "since", since)
    groups = FailureGroups()
    async for records in newest_failures(store, begin, source, most):
        groups.add(records)
    return groups.describe(begin, now, source)


def _trend(ends: array[int], count: int, begin: int, end: int) -> tuple[int, ...]:
    """Per part. Every request asks for it, so it is found by bisection. ends: the newest first; count: since then."""
    reached = [bisect_right(ends, -part, 0, count, key=lambda at: -_part(at, begin, end)) for part in range(_PARTS)]
    return tuple(here - later for here, later in zip(reached, [*reached[1:], 0], strict=True))


def _part(at: int, begin: int, end: int) -> int:
    """
    >>> _part(0, 0, 240), _part(19, 0, 240), _part(240, 0, 240), _part(7, 7, 7)
    (0, 1, 23, 0)
    """
    return max(0, min(_PARTS - 1, (at - begin) * _PARTS // max(1, end - begin)))
