"""Find tasks: by uuid, by filters, page by page."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import NamedTuple, TypedDict, Unpack

from msgspec.structs import replace

from onthedot.clock.epoch import from_optional_ms
from onthedot.errors import ArgumentError, TaskNotFound
from onthedot.model.error_fingerprint import fingerprint
from onthedot.model.failures import decode_failure
from onthedot.model.stored_keys import stored_key
from onthedot.model.task import TaskInfo, TaskState, possible_uuids
from onthedot.model.task_info import decode_body, task_info
from onthedot.operations.argument_checks import check_limit, check_time
from onthedot.operations.argument_filter import check_conditions, matches
from onthedot.operations.time_limit import TimeLimit
from onthedot.stores.contract import LIVE, Note, Page, Record, State, Store

BATCH = 1000  # records per read, where all are wanted
_PAGE = 100
MAX_READS = 50  # for one page; then it is short, and its cursor continues there
_CURSOR = re.compile(r"(after:|parked:)?([0-9]+:[0-9.-]*:[0-9]*)?")
_AFTER = "after:"  # begins any other cursor, which is no page number
_PARKED = "parked:"  # begins the cursor of a page with ready tasks that are parked


@dataclass(frozen=True, slots=True)
class TaskPage:
    """A page of tasks; it has a length and can be iterated over.

    tasks: the records, in the order of `find`
    cursor: of the next page; None: this is the last
    scanned: how many tasks were looked at
    scanned_to: the time of the last of them
    """

    tasks: tuple[TaskInfo, ...]
    """The tasks; the page itself is iterable and has a length."""
    cursor: str | None
    """Continues there: ``find(cursor=page.cursor, …)``. None: this was the last page."""
    scanned: int = 0
    """How many tasks were looked at; with filters like `tag`, most of them may not match."""
    scanned_to: datetime | None = None
    """The time of the last of them, in the order of the page: when it was added, is due or has ended."""

    def __iter__(self) -> Iterator[TaskInfo]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)


class TaskFilter(TypedDict, total=False):
    """Filters of ``find``; all must match."""

    state: str
    """A `TaskState` or its name."""
    source: str
    """The name of a source."""
    tag: str
    """One of the task's tags."""
    since: datetime
    """Added at this aware datetime or later."""
    until: datetime
    """Added before this aware datetime."""
    flow: str
    """The uuid of a flow: all its tasks, without handlers."""
    error: str
    """A part of the type or the message of the error."""
    group: str
    """A group of failures, as ``failures`` returns it."""
    uuid: str
    """The first characters of its uuid, or all of them."""
    text: str
    """A part of its label or error, or the first or last characters of its uuid."""
    where: Mapping[str, object]
    """Values of arguments or metadata by path, as in ``{"customer": "acme", "order.id": 17}``."""
    limit: int
    """How many tasks at most; 100 by default."""
    cursor: str | None
    """The ``cursor`` of the page before."""


class MatchingPage(NamedTuple):
    """The uuids of tasks that match. cursor: continues there; None: these are all."""

    uuids: list[str]
    cursor: str | None


class MatchCount(NamedTuple):
    """How many tasks match. is_exact: False: at least so many."""

    number: int
    is_exact: bool


class _RecordPage(NamedTuple):
    records: list[Record]
    cursor: str | None
    scanned: int
    scanned_to: int | None


async def find_pages(store: Store, where: Mapping[str, str], size: int) -> AsyncIterator[Sequence[Record]]:
    """Yield all records that match the filter of the store, page by page; no empty page."""
    cursor: str | None = None
    while True:
        page = await store.find(where, cursor, size)
        if page.rows:
            yield page.rows
        cursor = page.after
        if cursor is None:
            return


class TaskQueries:
    """Reads tasks of one store."""

    def __init__(self, store: Store, result_decoder: Callable[[str], Callable[[bytes], object]]) -> None:
        """result_decoder: by source, as far as this process knows the code."""
        self._store = store
        self._result_decoder = result_decoder

    async def get(self, uuid: str) -> TaskInfo:
        """Return a task by its whole uuid."""
        record = await self.record(uuid)
        return self._info(record, await self._reports(uuid))

    async def get_many(self, uuids: Sequence[str]) -> list[TaskInfo]:
        """Return those of these tasks that exist, without progress and the errors of earlier attempts."""
        return [self._info(record) for record in await self._store.get(uuids) if record is not None]

    async def _reports(self, uuid: str) -> list[Note]:
        """Errors and progress. Steps and items are left out: there may be many, and they may be large."""
        errors = await self._store.notes(uuid, 0, BATCH, "error")
        progress = await self._store.notes(uuid, 0, BATCH, "progress")
        return [note for _, note in (*errors, *progress)]

    def _info(self, record: Record, notes: Sequence[Note] = ()) -> TaskInfo:
        return task_info(record, notes, self._result_decoder(record.source))

    async def record(self, uuid: str, what: str = "task") -> Record:
        """Return a task by its whole uuid. Raises TaskNotFound. what: as in `complete_uuid`."""
        if not possible_uuids((uuid,)):
            raise _not_found(uuid, what)
        (record,) = await self._store.get((uuid,))
        if record is None:
            raise _not_found(uuid, what)
        return record

    async def complete_uuid(self, part: str, what: str = "task") -> str:
        """Return the uuid of the only task whose uuid is, begins or ends with this text. For people: code has uuids.

        what: the word for it in the message of TaskNotFound
        """
        if not possible_uuids((part,)):
            raise _not_found(part, what)
        (whole,) = await self._store.get((part,))
        if whole is not None:
            return part
        found = [record async for record in self.records({"uuid": part}, limit=2)]
        if not found:
            found = [record async for record in self.records({"uuid_end": part}, limit=2)]
        if not found:
            raise _not_found(part, what)
        if len(found) > 1:
            raise TaskNotFound(
                f"{part} is the beginning or end of several uuids, {found[0].uuid} and {found[1].uuid} among them"
            )
        return found[0].uuid

    async def find(self, **where: Unpack[TaskFilter]) -> TaskPage:
        """Return a page. It may be short and have a cursor: a call reads a bounded number of tasks."""
        return await self.find_within(TimeLimit(), where)

    async def find_within(self, time_limit: TimeLimit, where: TaskFilter) -> TaskPage:
        """Return a page, short if it takes longer. It reads at least once."""
        page = await self._find(where, time_limit)
        tasks = tuple([await self._with_errors(record) for record in page.records])
        return TaskPage(tasks, page.cursor, page.scanned, from_optional_ms(page.scanned_to))

    async def _with_errors(self, record: Record) -> TaskInfo:
        """Add the errors of earlier attempts."""
        if record.attempt <= 1:
            return self._info(record)
        return self._info(record, await self._reports(record.uuid))

    async def _find(self, where: TaskFilter, time_limit: TimeLimit) -> _RecordPage:
        limit = check_limit("find", where.get("limit", _PAGE))
        cursor = where.get("cursor")
        if cursor is not None and not _CURSOR.fullmatch(cursor):
            raise ArgumentError(f"cursor {cursor!r} is not one that an earlier page ended with")
        if cursor is not None:
            cursor = cursor.removeprefix(_AFTER)
        check_conditions(where.get("where", {}))
        store_filter = _store_filter(where)
        must_decode = not where.keys().isdisjoint(("error", "group", "text", "where"))
        records: list[Record] = []
        scanned = 0
        scanned_to: int | None = None
        for _ in range(MAX_READS):
            before = cursor
            try:
                page = await self._read(store_filter, before, BATCH if must_decode else limit - len(records))
            except ValueError as error:  # the cursor belongs to other filters
                raise ArgumentError(str(error)) from None
            matching = [used for used, record in enumerate(page.rows, 1) if not must_decode or _matches(record, where)]
            wanted = matching[: limit - len(records)]
            records += [page.rows[used - 1] for used in wanted]
            if len(wanted) < len(matching):  # the next page begins in the middle of this one
                page = await self._read(store_filter, before, wanted[-1])
            scanned += page.scanned
            scanned_to = page.scanned_to or scanned_to
            cursor = page.after
            if cursor is None or len(records) >= limit or time_limit.is_over:
                break
        return _RecordPage(records, _public(cursor), scanned, scanned_to)

    async def _read(self, where: dict[str, str], cursor: str | None, size: int) -> Page:
        """Read a page of the store. The state ready includes parked tasks, which come after the others."""
        if cursor is not None and cursor.startswith(_PARKED):
            page = await self._store.find(where | {"state": "parked"}, cursor.removeprefix(_PARKED) or None, size)
            if page.after is None:
                return page
            return replace(page, after=_PARKED + page.after)
        page = await self._store.find(where, cursor, size)
        if page.after is None and where.get("state") == "ready":
            return replace(page, after=_PARKED)
        return page

    async def holder(self, source: str, unique: str) -> str | None:
        """Return the uuid of the living task with this unique key."""
        for state in LIVE:
            page = await self._store.find({"source": source, "unique": unique, "state": state}, None, 1)
            if page.rows:
                return page.rows[0].uuid
        return None

    async def matching(self, **where: Unpack[TaskFilter]) -> list[str]:
        """Return the uuids of all tasks that match."""
        return (await self.matching_within(TimeLimit(), where)).uuids

    async def matching_within(self, time_limit: TimeLimit, where: TaskFilter) -> MatchingPage:
        """Return the uuids of tasks that match, as many as the time allows; at least one read."""
        where = where | {"limit": BATCH}
        uuids: list[str] = []
        while True:
            page = await self._find(where, time_limit)
            uuids += [record.uuid for record in page.records]
            if page.cursor is None or time_limit.is_over:
                return MatchingPage(uuids, page.cursor)
            where["cursor"] = page.cursor

    async def count_states(
        self, where: TaskFilter, known: Mapping[str, int], most: int, seconds: float
    ) -> dict[str, MatchCount]:
        """Count the tasks that match by state: up to `most` of each, and for so many seconds in all.

        known: tasks by state that may match, of the tally. The state with the fewest is counted first, and one without
        any costs nothing. What could not be counted is not exact.
        """
        time_limit = TimeLimit(seconds)
        found: dict[str, MatchCount] = {}
        for state in sorted(known, key=known.__getitem__):
            if not known[state]:
                found[state] = MatchCount(0, True)
            elif time_limit.is_over:
                found[state] = MatchCount(0, False)
            else:
                chosen: TaskFilter = {**where, "state": state, "limit": most}
                page = await self._find(chosen, time_limit)
                found[state] = MatchCount(len(page.records), page.cursor is None)
        return found

    async def in_state(self, state: State, source: str | None = None) -> AsyncIterator[Record]:
        """Yield all tasks in a state. The tally bounds the search, so that it ends at the last one."""
        tally = (await self._store.tally()).items()
        limit = sum(number for (name, each), number in tally if each == state and source in (None, name))
        where: dict[str, str] = {"state": state}
        if source is not None:
            where["source"] = source
        async for record in self.records(where, limit):
            yield record

    async def records(self, where: dict[str, str], limit: int | None = None) -> AsyncIterator[Record]:
        """Yield the records that match the filter of the store."""
        remaining = inf if limit is None else limit
        cursor: str | None = None
        while remaining > 0:
            page = await self._store.find(where, cursor, int(min(remaining, BATCH)))
            for record in page.rows:
                yield record
            remaining -= len(page.rows)
            cursor = page.after
            if cursor is None:
                return


def _public(cursor: str | None) -> str | None:
    if cursor is None or cursor.startswith(_PARKED):
        return cursor
    return _AFTER + cursor


def _not_found(uuid: str, what: str = "task") -> TaskNotFound:
    return TaskNotFound(f"no {what} {uuid}: never added here, or no longer kept")


def _store_filter(where: TaskFilter) -> dict[str, str]:
    _check(where)
    plain = (
        ("state", where.get("state")),
        ("source", where.get("source")),
        ("tag", where.get("tag")),
        ("flow", where.get("flow")),
        ("uuid", where.get("uuid")),
    )
    found = {name: stored_key(str(value), name, "find()") for name, value in plain if value is not None}
    times = (("since", where.get("since")), ("until", where.get("until")))
    return found | {name: str(check_time("find", name, value)) for name, value in times if value is not None}


def _check(where: TaskFilter) -> None:
    """An unknown filter would match everything, and an unknown state nothing."""
    unknown = where.keys() - TaskFilter.__annotations__.keys()
    if unknown:
        known = ", ".join(TaskFilter.__annotations__)
        raise ArgumentError(f"find(): no filter {', '.join(map(repr, sorted(unknown)))}; there are {known}")
    states = [state.value for state in TaskState]
    if (state := where.get("state")) is not None and state not in states:
        raise ArgumentError(f"find(state={state!r}): no such state; there are {', '.join(states)}")


def _matches(record: Record, where: TaskFilter) -> bool:
    """The filters that need a decoded record."""
    text = where.get("error")
    group = where.get("group")
    if text is not None or group is not None:
        error = decode_failure(record.history.error)
        if record.state == "succeeded" or error is None or not error.type:  # without a type it is a reason of a cancel
            return False
        if text is not None and text not in error.type and text not in error.message:
            return False
        if group is not None and fingerprint(record.source, error) != group:
            return False
    conditions = where.get("where")
    words = where.get("text")
    if not conditions and not words:
        return True
    arguments, headers = decode_body(record)
    if words and not _has_text(record, headers.label, words):
        return False
    return matches(conditions or {}, arguments, headers.metadata or {})


def _has_text(record: Record, label: str, text: str) -> bool:
    if text in label or record.uuid.startswith(text) or record.uuid.endswith(text):
        return True
    error = decode_failure(record.history.error)
    return error is not None and (text in error.type or text in error.message)
