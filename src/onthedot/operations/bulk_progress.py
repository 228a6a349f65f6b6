"""How far the bulk actions of all processes are, from their audit entries."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple

from onthedot.clock.epoch import from_ms
from onthedot.clock.protocol import Clock
from onthedot.operations.audit import AuditEntry, AuditOperations, AuditRecord
from onthedot.operations.read_interval import ReadInterval

_LOOK_INTERVAL = 2_000.0  # ms between two looks for new actions
_FOLLOW_INTERVAL = 500.0  # ms between two reads of those that run
_MOST = 100  # entries per look
_FIRST_SPAN = timedelta(days=1)  # of the first look
_SPAN = timedelta(minutes=1)  # of the others; clocks of servers differ
_SILENT = 600_000.0  # ms beyond two steps without progress, after which an action is not read: its process may be dead


class _Followed(NamedTuple):
    record: AuditRecord
    changed_at: float  # ms
    is_shown: bool  # it began or went on while somebody looked


class BulkProgress:
    """Finds bulk actions as they begin, go on and end. An entry that stays as it was may be of a dead process."""

    def __init__(self, audit: AuditOperations, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        self._looking = ReadInterval(clock, _LOOK_INTERVAL)
        self._following = ReadInterval(clock, _FOLLOW_INTERVAL)
        self._seen: set[str] | None = None  # entries of the last look
        self._followed: dict[str, _Followed] = {}

    @property
    def running(self) -> Iterable[AuditRecord]:
        """The actions that run, as they were reported last."""
        return [each.record for each in self._followed.values() if each.is_shown]

    def recheck(self) -> None:
        """Look for new actions at the next update."""
        self._looking.expire()

    def forget(self) -> None:
        """Nobody has looked for a while: actions that began meanwhile are not news."""
        self._seen = None
        self._followed.clear()

    async def changed(self) -> list[AuditRecord]:
        """Return the actions that have begun, gone on or ended since the last call."""
        found: list[AuditRecord] = []
        if self._looking.is_over:
            self._looking.begin()
            found += await self._look()
            self._looking.end()
        if self._followed and self._following.is_over:
            self._following.begin()
            for record in await self._follow():
                found = [each for each in found if each.id != record.id] + [record]
            self._following.end()
        return found

    async def _look(self) -> list[AuditRecord]:
        span = _FIRST_SPAN if self._seen is None else _SPAN
        newest = await self._audit.newest(_MOST, since=from_ms(self._clock.now()) - span)
        is_first = self._seen is None
        new = [each for each in newest if each.id not in (self._seen or ())]
        self._seen = {each.id for each in newest}
        begun = [each for each in reversed(new) if each.entry.rate > 0]  # only bulk actions have one
        for record in begun:
            if _is_running(record.entry):
                self._followed[record.id] = _Followed(record, self._clock.now(), not is_first)
        return [] if is_first else begun

    async def _follow(self) -> list[AuditRecord]:
        changed: list[AuditRecord] = []
        now = self._clock.now()
        for known in list(self._followed.values()):
            record = await self._audit.get(known.record.id)
            if record is None:
                del self._followed[known.record.id]
            elif record != known.record:
                changed.append(record)
                self._followed[record.id] = _Followed(record, now, is_shown=True)
                if not _is_running(record.entry):
                    del self._followed[record.id]
            elif now - known.changed_at > _SILENT + 2_000 / record.entry.rate:
                del self._followed[record.id]
        return changed


def _is_running(entry: AuditEntry) -> bool:
    return entry.state in ("running", "stopping")
