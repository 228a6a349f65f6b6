"""What an operator does, over the store contract alone: no user code is needed. Thin doors call it."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, TypedDict, Unpack

import msgspec

from onthedot.clock import from_ms, to_ms
from onthedot.errors import ArgumentError, TaskNotFound
from onthedot.limits import key_text
from onthedot.outcome import write_reason
from onthedot.stores.contract import Ended, Lease, Limit, NewTask, Page, Record, Store
from onthedot.task import TaskFailure, TaskInfo
from onthedot.views import as_info

_KEEP = 7 * 86_400_000
_PAGE = 100
_WAITING = ("scheduled", "ready", "parked")
_CURSOR = re.compile(r"(parked:)?[0-9]*")
_PARKED = "parked:"  # of a cursor: it has come to those that their lane holds back
_MANY = 1000  # records a read, where all are wanted
_VARIES = re.compile(r"""(?<!\w)'[^']*'|"[^"]*"|`[^`]*`|\b(?=\w*\d)[0-9a-fA-F-]{8,}\b|0x[0-9a-fA-F]+|\d+(?:\.\d+)?""")


@dataclass(frozen=True, slots=True)
class Found:
    """A page of tasks, newest first, and the cursor of the next."""

    tasks: tuple[TaskInfo, ...]
    cursor: str | None

    def __iter__(self) -> Iterator[TaskInfo]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Tasks that failed alike: same source and error, up to what varies in its message."""

    group: str
    source: str
    type: str
    message: str
    count: int
    last: datetime | None
    example: str


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A session that lives, and what it says of itself."""

    id: str
    host: str = ""
    pid: int = 0
    app: str = ""
    version: str = ""
    started: datetime | None = None
    concurrency: Mapping[str, int] = field(default_factory=dict[str, int])
    sources: tuple[str, ...] = ()
    running: int = 0


class Where(TypedDict, total=False):
    """Filters of ``find``. error: a part of the error's type or message; group: as ``failures`` shows it."""

    state: str
    source: str
    tag: str
    since: datetime
    error: str
    group: str
    limit: int
    cursor: str | None


class Operations:
    def __init__(self, store: Store, client: str) -> None:
        self._store = store
        self._client = client

    async def get(self, uuid: str) -> TaskInfo:
        """By uuid, or by an unambiguous beginning of one."""
        (record,) = await self._store.get((uuid,))
        if record is None:
            record = await self._by_prefix(uuid)
        notes = await self._store.notes(record.uuid, 0, 1000)
        return as_info(record, [note for _, note in notes])

    async def _by_prefix(self, prefix: str) -> Record:
        found = [record async for record in self._records({"uuid": prefix}, most=2)]
        if not found:
            raise TaskNotFound(f"no task {prefix}: never added here, or no longer kept")
        if len(found) > 1:
            raise TaskNotFound(
                f"{prefix} is the beginning of several uuids, {found[0].uuid} and {found[1].uuid} among them"
            )
        return found[0]

    async def find(self, **where: Unpack[Where]) -> Found:
        """Newest first."""
        limit, cursor = where.get("limit", _PAGE), where.get("cursor")
        if cursor is not None and not _CURSOR.fullmatch(cursor):
            raise ArgumentError(f"cursor {cursor!r} is not one that an earlier page ended with")
        said, picky = _for_store(where), not where.keys().isdisjoint(("error", "group"))
        rows: list[TaskInfo] = []
        while True:
            before, size = cursor, max(limit - len(rows), _PAGE if picky else 0)
            page = await self._page(said, before, size)
            cursor = page.after
            for used, record in enumerate(page.rows, 1):
                info = as_info(record)
                if _wanted(info, where):
                    rows.append(info)
                if len(rows) == limit and used < len(page.rows):  # the next page begins in the middle of this one
                    return Found(tuple(rows), (await self._page(said, before, used)).after)
            if cursor is None or len(rows) >= limit:
                return Found(tuple(rows), cursor)

    async def oldest_ready(self) -> datetime | None:
        """Since when something has been due; looks at the first 10,000 that are ready."""
        due = [record.due async for record in self._records({"state": "ready"}, most=10_000)]
        return from_ms(min(due)) if due else None

    async def _page(self, where: dict[str, str], cursor: str | None, size: int) -> Page:
        """Ready, as people say it: first those that are, then those that their lane holds back."""
        if cursor is not None and cursor.startswith(_PARKED):
            page = await self._store.find(where | {"state": "parked"}, cursor.removeprefix(_PARKED) or None, size)
            return Page(page.rows, None if page.after is None else _PARKED + page.after)
        page = await self._store.find(where, cursor, size)
        return Page(page.rows, _PARKED) if page.after is None and where.get("state") == "ready" else page

    async def matching(self, **where: Unpack[Where]) -> list[str]:
        """The uuids of all that fit, whatever their number."""
        where["limit"] = _MANY
        found = await self.find(**where)
        uuids = [info.uuid for info in found]
        while found.cursor is not None:
            where["cursor"] = found.cursor
            found = await self.find(**where)
            uuids += [info.uuid for info in found]
        return uuids

    async def failures(self, since: datetime | None = None) -> list[FailureGroup]:
        """What has failed (since then), grouped by error, the most frequent first."""
        groups: dict[str, list[TaskInfo]] = {}
        async for record in self._records({"state": "failed"}, most=None):
            info = as_info(record)
            if info.error is not None and (since is None or info.ended_at is None or info.ended_at >= since):
                groups.setdefault(group_of(info.source, info.error), []).append(info)
        found: list[FailureGroup] = []
        for group, infos in groups.items():
            last = max(infos, key=lambda info: info.ended_at or info.added_at)
            assert last.error is not None
            shown = blanked(last.error.message) if len(infos) > 1 else last.error.message
            found.append(FailureGroup(group, last.source, last.error.type, shown, len(infos), last.ended_at, last.uuid))
        return sorted(found, key=lambda group: -group.count)

    async def workers(self) -> list[WorkerInfo]:
        """Who lives, the oldest first, and how many tasks each of them runs."""
        _, _, sessions = await self._store.state()
        running = Counter([r.past.session async for r in self._records({"state": "running"}, most=None)])
        return [_as_worker(name, info, running[name]) for name, info in sorted(sessions.items())]

    async def _records(self, where: dict[str, str], most: int | None) -> AsyncIterator[Record]:
        cursor: str | None = None
        while most is None or most > 0:
            page = await self._store.find(where, cursor, _MANY if most is None else most)
            for record in page.rows:
                yield record
            most = None if most is None else most - len(page.rows)
            cursor = page.after
            if cursor is None:
                return

    async def cancel(self, *uuids: str, reason: str = "cancelled") -> int:
        """Waiting ones end at once, running ones are told. Answers how many were still alive."""
        alive = [r for r in await self._store.get(uuids) if r is not None and r.past.ended is None]
        held = await self._store.cancel(self._client, uuids, reason)
        await self._store.turn(
            self._client,
            [
                Ended(Lease(record.uuid, held.fence, self._client), "cancelled", write_reason(reason), _KEEP)
                for record in held.tasks
            ],
            None,
        )
        return len(alive)

    async def waiting(self) -> list[NewTask]:
        """All that wait, as they would be added to another store."""
        return [
            NewTask(record.uuid, record.source, record.body, record.due, 0, record.lane, record.unique, record.policy)
            for state in _WAITING
            async for record in self._records({"state": state}, most=None)
        ]

    async def end_waiting(self, reason: str) -> int:
        """Ends all that wait: a private store is about to go."""
        ended, counts = 0, await self.counts()
        if not (counts.get("scheduled") or counts.get("ready")):
            return 0
        for state in _WAITING:
            uuids = [record.uuid async for record in self._records({"state": state}, most=None)]
            for start in range(0, len(uuids), _MANY):
                ended += await self.cancel(*uuids[start : start + _MANY], reason=reason)
                await asyncio.sleep(0)
        return ended

    async def retry(self, *uuids: str) -> Sequence[str]:
        """Failed and cancelled ones run again, with their uuid. Answers with those that are alive now."""
        return await self._store.revive(uuids)

    async def pause(self, source: str, key: str | None = None, reason: str = "") -> None:
        """Nothing of the source (or of one key of it) starts until resume; what runs goes on."""
        await self._set_pause(source, key, paused=True, reason=reason)

    async def resume(self, source: str, key: str | None = None) -> None:
        await self._set_pause(source, key, paused=False, reason="")

    async def _set_pause(self, source: str, key: str | None, *, paused: bool, reason: str) -> None:
        name = source if key is None else f"{source}/{key_text(key)}"
        _, limits, _ = await self._store.state()
        mine = next((limit for limit in limits if limit.name == name and limit.by == "operator"), Limit(name))
        changed = Limit(name, mine.cap, mine.rate, mine.burst, paused, reason, by="operator")
        await self._store.put([], [changed])

    async def purge(self, limit: int = 10_000) -> int:
        """Drops what is past its retention; workers do this by themselves."""
        return await self._store.purge(limit)

    async def counts(self) -> dict[str, int]:
        """How many tasks there are, by state."""
        counts: dict[str, int] = {}
        for (_, state), count in (await self._store.tally()).items():
            shown = "ready" if state == "parked" else state
            counts[shown] = counts.get(shown, 0) + count
        return counts


def group_of(source: str, error: TaskFailure) -> str:
    """A short name for errors that are alike.

    >>> one, two = TaskFailure("KeyError", "no order 17 for 'ann'"), TaskFailure("KeyError", "no order 4 for 'bob'")
    >>> group_of("send", one) == group_of("send", two)
    True
    """
    return sha256(f"{source}\n{error.type}\n{blanked(error.message)}".encode()).hexdigest()[:8]


def blanked(message: str) -> str:
    """Without numbers, ids and quoted parts: what differs between errors of one kind."""
    return _VARIES.sub("…", message)


def _for_store(where: Where) -> dict[str, str]:
    plain = (("state", where.get("state")), ("source", where.get("source")), ("tag", where.get("tag")))
    said = {name: str(value) for name, value in plain if value is not None}
    if "since" in where:
        said["since"] = str(to_ms(where["since"]))
    return said


def _wanted(info: TaskInfo, where: Where) -> bool:
    text, group = where.get("error"), where.get("group")
    if text is not None and (info.error is None or not (text in info.error.type or text in info.error.message)):
        return False
    return group is None or (info.error is not None and group_of(info.source, info.error) == group)


def _as_worker(name: str, info: bytes, running: int) -> WorkerInfo:
    try:
        said: dict[str, Any] = msgspec.json.decode(info) if info else {}
    except msgspec.DecodeError:  # another version's, or another program's
        said = {}
    started = said.get("started")
    return WorkerInfo(
        id=name,
        host=said.get("host", ""),
        pid=said.get("pid", 0),
        app=said.get("app", ""),
        version=said.get("version", ""),
        started=None if started is None else from_ms(started),
        concurrency=said.get("concurrency", {}),
        sources=tuple(said.get("sources", ())),
        running=running,
    )
