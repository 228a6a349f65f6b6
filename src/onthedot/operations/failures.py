"""Failed tasks, grouped by error."""

from __future__ import annotations

from collections.abc import AsyncIterable
from dataclasses import dataclass
from datetime import datetime

from onthedot.clock.epoch import from_optional_ms
from onthedot.codec.task_failure import TaskFailure
from onthedot.model.error_fingerprint import error_line, fingerprint, message_template
from onthedot.model.failures import decode_failure
from onthedot.stores.contract import Record


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed tasks with the same source, error and place in the code, up to what varies in the message."""

    group: str
    source: str
    type: str
    message: str
    place: str
    count: int
    last: datetime | None
    example: str


class _Group:
    """A group that is being counted. Only the last record is kept, since a message may be long."""

    def __init__(self, record: Record, error: TaskFailure) -> None:
        self.record = record
        self.error = error
        self.count = 0

    def add(self, record: Record, error: TaskFailure) -> None:
        self.count += 1
        if (record.history.ended or 0) > (self.record.history.ended or 0):
            self.record = record
            self.error = error

    def describe(self, name: str) -> FailureGroup:
        record = self.record
        error = self.error
        shown = message_template(error.message) if self.count > 1 else error.message
        last = from_optional_ms(record.history.ended)
        return FailureGroup(name, record.source, error.type, shown, error_line(error), self.count, last, record.uuid)


async def group_failures(failed: AsyncIterable[Record]) -> list[FailureGroup]:
    """Return the groups, the most frequent first."""
    groups: dict[str, _Group] = {}
    async for record in failed:
        error = decode_failure(record.history.error)
        if error is not None and error.type:
            name = fingerprint(record.source, error)
            groups.setdefault(name, _Group(record, error)).add(record, error)
    return sorted((group.describe(name) for name, group in groups.items()), key=lambda group: -group.count)
