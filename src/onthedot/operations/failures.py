"""Failed tasks, grouped by error."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable
from dataclasses import dataclass
from datetime import datetime

from onthedot.clock.epoch import from_optional_ms
from onthedot.codec.task_failure import TaskFailure
from onthedot.model.error_fingerprint import error_line, fingerprint, message_template
from onthedot.model.failures import decode_failure
from onthedot.stores.contract import Record

_PARTS = 24  # of a trend


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed tasks with the same source, error and place in the code, up to what varies in the message.

    trend: failures per 24th part of the time asked for; empty without a beginning
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


class _Group:
    """A group that is being counted. Only the last record is kept, since a message may be long."""

    def __init__(self, record: Record, error: TaskFailure) -> None:
        self.record = record
        self.error = error
        self.count = 0
        self.first = record.history.ended
        self.parts: Counter[int] = Counter()

    def add(self, record: Record, error: TaskFailure, part: int) -> None:
        """part: of the time asked for."""
        self.count += 1
        self.parts[part] += 1
        if (record.history.ended or 0) < (self.first or 0):
            self.first = record.history.ended
        if (record.history.ended or 0) > (self.record.history.ended or 0):
            self.record = record
            self.error = error

    def describe(self, name: str, *, has_trend: bool) -> FailureGroup:
        record = self.record
        error = self.error
        return FailureGroup(
            group=name,
            source=record.source,
            type=error.type,
            message=message_template(error.message) if self.count > 1 else error.message,
            place=error_line(error),
            count=self.count,
            first=from_optional_ms(self.first),
            last=from_optional_ms(record.history.ended),
            example=record.uuid,
            trend=tuple(self.parts[part] for part in range(_PARTS)) if has_trend else (),
        )


async def group_failures(
    failed: AsyncIterable[Record], begin: int | None = None, end: int | None = None
) -> list[FailureGroup]:
    """Return the groups, the most frequent first. begin, end: of the trend, in ms."""
    groups: dict[str, _Group] = {}
    has_trend = begin is not None and end is not None
    async for record in failed:
        error = decode_failure(record.history.error)
        if error is not None and error.type:
            name = fingerprint(record.source, error)
            part = _part(record.history.ended or 0, begin or 0, end or 0)
            groups.setdefault(name, _Group(record, error)).add(record, error, part)
    found = [group.describe(name, has_trend=has_trend) for name, group in groups.items()]
    return sorted(found, key=lambda group: -group.count)


def _part(at: int, begin: int, end: int) -> int:
    """
    >>> _part(0, 0, 240), _part(19, 0, 240), _part(240, 0, 240), _part(7, 7, 7)
    (0, 1, 23, 0)
    """
    return max(0, min(_PARTS - 1, (at - begin) * _PARTS // max(1, end - begin)))
