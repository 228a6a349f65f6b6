"""The audit log: every change by an operator, written before it happens and completed after it."""

from __future__ import annotations

import getpass
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from datetime import datetime
from typing import Literal, Self

import msgspec
from msgspec import Struct

from onthedot.clock.durations import DAY
from onthedot.clock.epoch import from_ms, to_ms
from onthedot.clock.protocol import Clock
from onthedot.errors import StoreBusy, StoreError
from onthedot.model.limits import lane_key
from onthedot.model.redaction import default_redaction
from onthedot.model.uuid7 import new_uuid
from onthedot.observability.log_format import clean
from onthedot.operations.humanize import suffix
from onthedot.stores.contract import SeriesEntry, Store

_log = logging.getLogger("onthedot.operations")
_SERIES = "audit"
_MAX_TRIES = 10  # of a compare-and-set
_PAGE = 500
_MAX_READS = 20  # for one list
_MAX_NAMES = 5  # in a target
_MAX_LIMIT_CHANGES = 500
EMERGENCIES = frozenset({"cancel", "pause"})
"""The first words of changes that happen even if the audit cannot be written: they stop harm."""

AuditState = Literal["begun", "running", "stopping", "done", "stopped", "failed"]


class Actor(Struct, frozen=True):
    """The person or program behind a change."""

    user: str
    role: str = "operator"
    via: Literal["page", "api", "cli", "code"] = "code"


def system_user() -> str:
    """The name of the user whose process this is; a container may have none, but a number."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # KeyError: until Python 3.12
        return f"user {os.getuid()}"


class AuditEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change. target: a task, source, schedule or event; filter: of a bulk action.

    found: how many matched; done: how many were tried; changed: how many are other than before
    """

    user: str
    role: str
    via: str
    action: str
    target: str = ""
    filter: str = ""
    reason: str = ""
    state: AuditState = "begun"
    found: int = 0
    done: int = 0
    changed: int = 0
    rate: float = 0
    error: str = ""


class AuditRecord(Struct, frozen=True):
    """An entry as it is stored. id: names it in every process."""

    id: str
    at: datetime
    entry: AuditEntry


class ChangeNote:
    """The change that is going on: its code sets the counts, which complete the entry.

    done: how many were tried, if it was interrupted
    """

    def __init__(self) -> None:
        self.found = 1
        self.changed = 0
        self.done: int | None = None


class AuditOperations:
    """Writes and reads the audit log of one app."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    @asynccontextmanager
    async def change(
        self, actor: Actor, action: str, target: str, reason: str = ""
    ) -> AsyncGenerator[ChangeNote, None]:
        """Write the entry, run the block, complete the entry. A change without an audit is refused.

        Exceptions are to cancel and to pause: if the entry cannot be written, these happen and a WARNING is logged.
        """
        hide = default_redaction().text
        because = suffix(": ", clean(hide(reason)))
        _log.info(
            "[operation] %s: %s %s%s", clean(actor.user), action, clean(hide(target)), because,
            extra={"user": actor.user},
        )  # fmt: skip
        entry = AuditEntry(
            user=actor.user, role=actor.role, via=actor.via, action=action, target=target[:500], reason=reason
        )
        entry_id: str | None = None
        try:
            entry_id = await self.begin(entry)
        except StoreError as error:
            if action.partition(" ")[0] not in EMERGENCIES:
                raise
            _log.warning("[audit] %s of %s by %s is not recorded: %s", action, hide(target), actor.user, error)
        note = ChangeNote()
        try:
            yield note
        except BaseException as error:
            await self.complete(entry_id, error=type(error).__name__, state="failed")
            raise
        done = note.found if note.done is None else note.done
        state: AuditState = "done" if done == note.found else "stopped"
        await self.complete(entry_id, found=note.found, done=done, changed=note.changed, state=state)

    async def complete(self, entry_id: str | None, **changes: object) -> None:
        """Record how a change ended, if the store answers. None: the change has no entry."""
        if entry_id is None:
            return
        try:
            await self.update(entry_id, lambda entry: msgspec.structs.replace(entry, **changes))
        except StoreError as error:
            _log.warning("[audit] the end of change %s is not recorded: %s", entry_id, error)

    async def begin(self, entry: AuditEntry) -> str:
        """Write a new entry. Return its id."""
        at = int(self._clock.now())
        writer = new_uuid()
        new = SeriesEntry(_SERIES, at, writer, msgspec.json.encode(entry))
        await self._store.write_series([new])
        return f"{at}.{writer}"

    async def update(self, entry_id: str, change: Callable[[AuditEntry], AuditEntry]) -> AuditEntry | None:
        """Compare-and-set, repeated on the newest entry after a conflict. None: there is no such entry."""
        for _ in range(_MAX_TRIES):
            stored = await self._stored(entry_id)
            if stored is None:
                return None
            before = _decode(stored)
            after = change(before)
            if after == before:
                return after
            new = SeriesEntry(_SERIES, stored.at, stored.writer, msgspec.json.encode(after))
            if await self._store.write_series([new], [stored]):
                return after
        raise StoreBusy(f"audit entry {entry_id} was changed by others {_MAX_TRIES} times in a row; try again")

    async def get(self, entry_id: str) -> AuditRecord | None:
        """Return an entry; None: there is none with this id, it is no longer kept, or it cannot be read."""
        stored = await self._stored(entry_id)
        return None if stored is None else _readable(stored)

    async def newest(
        self,
        limit: int,
        *,
        action: str | None = None,
        user: str | None = None,
        since: datetime | None = None,
        before: str | None = None,
    ) -> list[AuditRecord]:
        """Return entries, newest first; a bounded number of them is read. before: the id of the last one of a page."""
        start = 0 if since is None else to_ms(since)
        until = int(self._clock.now()) + DAY
        seen: set[str] = set()
        if before is not None:
            until = _key(before)[0]
        found: list[AuditRecord] = []
        skipping = before is not None
        for _ in range(_MAX_READS):
            page = await self._store.read_series(_SERIES, start, until, _PAGE, newest_first=True)
            new = [each for each in page if _id(each) not in seen]
            for stored in new:
                seen.add(_id(stored))
                if skipping:
                    skipping = _id(stored) != before
                    continue
                record = _readable(stored)
                if record is None:
                    continue
                if action in (None, record.entry.action) and user in (None, record.entry.user):
                    found.append(record)
                    if len(found) == limit:
                        return found
            if len(page) < _PAGE or not new:
                break
            until = page[-1].at
        return found

    async def changes_of_pauses(self, until: datetime | None, most: int) -> list[AuditRecord]:
        """Return the pauses and resumes of sources that took effect, oldest first.

        until: None: now. most: entries that are read, the newest first; an older pause is not found.
        """
        latest = int(self._clock.now()) if until is None else to_ms(until)
        found: dict[str, AuditRecord] = {}
        for _ in range(0, most, _PAGE):
            page = await self._store.read_series(_SERIES, 0, latest, _PAGE, newest_first=True)
            for record in filter(None, map(_readable, page)):
                if record.entry.action in ("pause", "resume") and record.entry.state != "failed":
                    found[record.id] = record
            if len(page) < _PAGE or page[-1].at == latest:
                break
            latest = page[-1].at
        return sorted(found.values(), key=lambda record: (record.at, record.id))  # ids of one process grow

    async def changes_of_limits(self) -> Mapping[str, AuditRecord]:
        """Return the newest recorded change of each limit, by its name. A bounded part of the audit log is read."""
        found: dict[str, AuditRecord] = {}
        for record in await self.newest(_MAX_LIMIT_CHANGES, action="limit"):
            if record.entry.state != "failed":
                found.setdefault(limit_name(record.entry.target), record)
        return found

    async def _stored(self, entry_id: str) -> SeriesEntry | None:
        at, writer = _key(entry_id)
        page = await self._store.read_series(_SERIES, at, at, _PAGE)
        return next((each for each in page if each.writer == writer), None)


def _key(entry_id: str) -> tuple[int, str]:
    at, _, writer = entry_id.partition(".")
    if not at.isdecimal() or len(at) > 15:
        return -1, ""
    return int(at), writer


def _decode(stored: SeriesEntry) -> AuditEntry:
    return msgspec.json.decode(stored.data, type=AuditEntry)


def _id(stored: SeriesEntry) -> str:
    return f"{stored.at}.{stored.writer}"


def _readable(stored: SeriesEntry) -> AuditRecord | None:
    """None: a newer version may have written what this one does not know. It must not hide the other entries."""
    try:
        return AuditRecord(_id(stored), from_ms(stored.at), _decode(stored))
    except msgspec.MsgspecError as error:
        _log.debug("[audit] entry %s cannot be read: %s", _id(stored), error)
        return None


def limit_name(target: str) -> str:
    """The limit that an entry is about.

    >>> limit_name("deliver for acme"), limit_name("@openai/acme")
    ('deliver/acme', '@openai/acme')
    """
    head, found, key = target.partition(" for ")
    return f"{head}/{lane_key(key)}" if found else head


class Recorder:
    """Puts changes into the audit log in the name of one actor. Changes by nobody are those of programs: no entry.

    reason: of every change; None: each change has its own
    """

    def __init__(
        self, audit: AuditOperations | None = None, actor: Actor | None = None, reason: str | None = None
    ) -> None:
        self._audit = audit
        self._actor = actor
        self._reason = reason

    @asynccontextmanager
    async def change(self, action: str, target: str, reason: str = "") -> AsyncGenerator[ChangeNote, None]:
        """The block is the change. See `AuditOperations.change`."""
        if self._audit is None or self._actor is None:
            yield ChangeNote()
            return
        reason = reason if self._reason is None else self._reason
        async with self._audit.change(self._actor, action, target, reason) as note:
            yield note


class Recorded:
    """A group of operations. Its changes are recorded only in a copy that somebody acts through."""

    _recorder: Recorder = Recorder()

    def recorded_by(self, recorder: Recorder) -> Self:
        """Return the same operations, whose changes are in the audit log."""
        acting = copy(self)
        acting._recorder = recorder
        return acting


def list_names(found: Sequence[str]) -> str:
    """
    >>> list_names(["a"]), list_names(["a", "b", "c"])
    ('a', '3: a, b, c')
    """
    if len(found) < 2:
        return "".join(found)
    shown = list(found[:_MAX_NAMES])
    if len(found) > _MAX_NAMES:
        shown.append("…")
    return f"{len(found):,}: {', '.join(shown)}"
