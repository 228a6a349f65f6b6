"""Finding tasks: by uuid, by what they are, page by page."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, Unpack

from onthedot.clock.epoch import to_ms
from onthedot.codec.untyped import decode_untyped_result
from onthedot.errors import ArgumentError, TaskNotFound
from onthedot.model.error_fingerprint import fingerprint
from onthedot.model.failures import decode_failure, read_result
from onthedot.model.task import TaskInfo, TaskState
from onthedot.model.task_info import decode_body, task_info
from onthedot.operations.argument_filter import check, has
from onthedot.stores.contract import Page, Record, State, Store

MANY = 1000  # records a read, where all are wanted
PENDING: tuple[State, ...] = ("scheduled", "ready", "parked")
_PAGE = 100
_READS = 50  # of the store, for one page; then it is short, and its cursor goes on
_CURSOR = re.compile(r"(parked:)?[0-9]*")
_PARKED = "parked:"  # of a cursor: it has come to those that their lane holds back


@dataclass(frozen=True, slots=True)
class TaskPage:
    """A page of tasks, newest first, and the cursor of the next."""

    tasks: tuple[TaskInfo, ...]
    cursor: str | None

    def __iter__(self) -> Iterator[TaskInfo]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)


class TaskFilter(TypedDict, total=False):
    """Filters of ``find``.

    error: a part of the error's type or message; group: as ``failures`` shows it; where: values of arguments or
    metadata by path, as in ``{"customer": "acme", "order.id": 17}``, all of which must be so.
    """

    state: str
    source: str
    tag: str
    since: datetime
    error: str
    group: str
    where: Mapping[str, object]
    limit: int
    cursor: str | None


class TaskQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, uuid: str) -> TaskInfo:
        """By uuid, or by an unambiguous beginning of one."""
        record = await self._record(uuid)
        notes = await self._store.notes(record.uuid, 0, 1000)
        return task_info(record, [note for _, note in notes])

    async def _record(self, uuid: str) -> Record:
        (record,) = await self._store.get((uuid,))
        return record or await self._by_prefix(uuid)

    async def result(self, uuid: str) -> Any:
        """Of a task that has succeeded, as plain values. ResultExpired, ResultNotStored: there is none to show."""
        (record,) = await self._store.get((uuid,))
        if record is None:
            raise TaskNotFound(f"no task {uuid}: never added here, or no longer kept")
        return read_result(record, decode_untyped_result)

    async def _by_prefix(self, prefix: str) -> Record:
        found = [record async for record in self.records({"uuid": prefix}, most=2)]
        if not found:
            raise TaskNotFound(f"no task {prefix}: never added here, or no longer kept")
        if len(found) > 1:
            raise TaskNotFound(
                f"{prefix} is the beginning of several uuids, {found[0].uuid} and {found[1].uuid} among them"
            )
        return found[0]

    async def find(self, **where: Unpack[TaskFilter]) -> TaskPage:
        """Newest first. A page may be short and still have a cursor: each looks at a bounded number of tasks."""
        records, cursor = await self._find(where)
        return TaskPage(tuple([await self._with_errors(record) for record in records]), cursor)

    async def _with_errors(self, record: Record) -> TaskInfo:
        """With those of the attempts before, if there were any."""
        notes = await self._store.notes(record.uuid, 0, MANY) if record.attempt > 1 else ()
        return task_info(record, [note for _, note in notes])

    async def _find(self, where: TaskFilter) -> tuple[list[Record], str | None]:
        limit, cursor = where.get("limit", _PAGE), where.get("cursor")
        if cursor is not None and not _CURSOR.fullmatch(cursor):
            raise ArgumentError(f"cursor {cursor!r} is not one that an earlier page ended with")
        check(where.get("where", {}))
        said, picky = _for_store(where), not where.keys().isdisjoint(("error", "group", "where"))
        rows: list[Record] = []
        for _ in range(_READS):
            before, size = cursor, MANY if picky else limit - len(rows)
            page = await self._page(said, before, size)
            cursor = page.after
            for used, record in enumerate(page.rows, 1):
                if not picky or _wanted(record, where):
                    rows.append(record)
                if len(rows) == limit and used < len(page.rows):  # the next page begins in the middle of this one
                    return rows, (await self._page(said, before, used)).after
            if cursor is None or len(rows) >= limit:
                break
        return rows, cursor

    async def _page(self, where: dict[str, str], cursor: str | None, size: int) -> Page:
        """Ready, as people say it: first those that are, then those that their lane holds back."""
        if cursor is not None and cursor.startswith(_PARKED):
            page = await self._store.find(where | {"state": "parked"}, cursor.removeprefix(_PARKED) or None, size)
            return Page(page.rows, None if page.after is None else _PARKED + page.after)
        page = await self._store.find(where, cursor, size)
        return Page(page.rows, _PARKED) if page.after is None and where.get("state") == "ready" else page

    async def matching(self, **where: Unpack[TaskFilter]) -> list[str]:
        """The uuids of all that fit, whatever their number."""
        where["limit"] = MANY
        uuids: list[str] = []
        while True:
            records, cursor = await self._find(where)
            uuids += [record.uuid for record in records]
            if cursor is None:
                return uuids
            where["cursor"] = cursor

    async def counted(self, state: State, source: str | None = None) -> AsyncIterator[Record]:
        """All of a state. How many there are is known, so that nobody looks through the whole past for the last one."""
        tally = (await self._store.tally()).items()
        most = sum(number for (name, each), number in tally if each == state and source in (None, name))
        where: dict[str, str] = {"state": state} | ({} if source is None else {"source": source})
        async for record in self.records(where, most):
            yield record

    async def records(self, where: dict[str, str], most: int | None) -> AsyncIterator[Record]:
        cursor: str | None = None
        while most is None or most > 0:
            page = await self._store.find(where, cursor, MANY if most is None else min(most, MANY))
            for record in page.rows:
                yield record
            most = None if most is None else most - len(page.rows)
            cursor = page.after
            if cursor is None:
                return


def _for_store(where: TaskFilter) -> dict[str, str]:
    _check(where)
    plain = (("state", where.get("state")), ("source", where.get("source")), ("tag", where.get("tag")))
    said = {name: str(value) for name, value in plain if value is not None}
    if "since" in where:
        said["since"] = str(to_ms(where["since"]))
    return said


def _check(where: TaskFilter) -> None:
    """A filter that is not known would match everything, and a state that is none nothing."""
    unknown = where.keys() - TaskFilter.__annotations__.keys()
    if unknown:
        there = ", ".join(TaskFilter.__annotations__)
        raise ArgumentError(f"find(): no filter {', '.join(map(repr, sorted(unknown)))}; there are {there}")
    states = [state.value for state in TaskState]
    if (state := where.get("state")) is not None and state not in states:
        raise ArgumentError(f"find(state={state!r}): no such state; there are {', '.join(states)}")


def _wanted(record: Record, where: TaskFilter) -> bool:
    text, group, wanted = where.get("error"), where.get("group"), where.get("where")
    if text is not None or group is not None:
        error = None if record.state == "succeeded" else decode_failure(record.history.error)
        if error is None or not error.type:  # a reason, such as of a cancel, is no error
            return False
        if text is not None and text not in error.type and text not in error.message:
            return False
        if group is not None and fingerprint(record.source, error) != group:
            return False
    if not wanted:
        return True
    arguments, headers = decode_body(record)
    return has(wanted, arguments, headers.metadata or {})
