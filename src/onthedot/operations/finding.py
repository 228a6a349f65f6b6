"""Finding tasks: by uuid, by what they are, page by page."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict, Unpack

from onthedot.clock import from_ms, to_ms
from onthedot.errors import ArgumentError, TaskNotFound
from onthedot.operations.failures import group_of
from onthedot.stores.contract import Page, Record, Store
from onthedot.task import TaskInfo
from onthedot.views import as_info

MANY = 1000  # records a read, where all are wanted
_PAGE = 100
_CURSOR = re.compile(r"(parked:)?[0-9]*")
_PARKED = "parked:"  # of a cursor: it has come to those that their lane holds back


@dataclass(frozen=True, slots=True)
class Found:
    """A page of tasks, newest first, and the cursor of the next."""

    tasks: tuple[TaskInfo, ...]
    cursor: str | None

    def __iter__(self) -> Iterator[TaskInfo]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)


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


class Finding:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, uuid: str) -> TaskInfo:
        """By uuid, or by an unambiguous beginning of one."""
        record = await self._record(uuid)
        notes = await self._store.notes(record.uuid, 0, 1000)
        return as_info(record, [note for _, note in notes])

    async def _record(self, uuid: str) -> Record:
        (record,) = await self._store.get((uuid,))
        return record or await self._by_prefix(uuid)

    async def _by_prefix(self, prefix: str) -> Record:
        found = [record async for record in self.records({"uuid": prefix}, most=2)]
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
        due = [record.due async for record in self.records({"state": "ready"}, most=10_000)]
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
        where["limit"] = MANY
        found = await self.find(**where)
        uuids = [info.uuid for info in found]
        while found.cursor is not None:
            where["cursor"] = found.cursor
            found = await self.find(**where)
            uuids += [info.uuid for info in found]
        return uuids

    async def records(self, where: dict[str, str], most: int | None) -> AsyncIterator[Record]:
        cursor: str | None = None
        while most is None or most > 0:
            page = await self._store.find(where, cursor, MANY if most is None else most)
            for record in page.rows:
                yield record
            most = None if most is None else most - len(page.rows)
            cursor = page.after
            if cursor is None:
                return


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
