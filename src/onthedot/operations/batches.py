"""Batches at run time: lists of them, their parts, and whether a task accepts new ones. No user code is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from msgspec import Raw

from onthedot.clock.epoch import from_ms, from_optional_ms, to_ms
from onthedot.codec.body import Undecodable
from onthedot.codec.untyped import decode_untyped_result
from onthedot.errors import TaskNotFound
from onthedot.model.batch_names import batch_task, coordinator_source
from onthedot.model.failures import decode_failure
from onthedot.model.flow_names import MemberUuids
from onthedot.model.stored_batches import (
    BatchRequest,
    StoredPart,
    batch_counts,
    count_items,
    decode_items,
    read_part,
    read_request,
)
from onthedot.model.stored_keys import stored_key
from onthedot.model.task_info import public_state
from onthedot.operations.audit import Recorded
from onthedot.operations.explain import explain
from onthedot.operations.flow_list import ALIVE
from onthedot.operations.flows import FlowOperations
from onthedot.operations.humanize import plural
from onthedot.operations.modes import Mode, ModeOperations, wait_until_drained
from onthedot.operations.streams import item_reader, read_stream
from onthedot.operations.task_queries import BATCH, TaskQueries, find_pages
from onthedot.operations.workers import live_workers
from onthedot.stores.contract import Record, Store

_MAX_NEWEST = 20  # items that are shown
_PAGE = 100  # flows and batches per read
_UNREADABLE = BatchRequest(count=0, sizes=(), call=Raw(b"{}"), digest="")


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """How far a batch is."""

    done: int
    """How many of its parts have ended."""
    failed: int
    """How many of these failed."""
    total: int
    """How many parts it has; top-ups are counted when they have ended."""
    items: int
    """How many items it has so far."""
    count: int
    """How many items it was asked for."""


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """A batch, as a list shows it."""

    id: str
    task: str
    type: str
    state: str
    progress: BatchProgress
    added: datetime
    ended: datetime | None = None
    degraded: bool = False
    """It has one part, because its task was degraded when it was added."""
    reason: str = ""
    """Why it was cancelled or has failed."""


@dataclass(frozen=True, slots=True)
class PartInfo:
    """A part that has ended.

    number: in the order of the ends, from 1
    index: in the order of the request, from 0; top-ups follow
    uuid: of its task
    ms: how long its last run took; None: it has not run, runs again, or its task is not kept
    worker: the session of that run
    """

    number: int
    index: int
    uuid: str
    items: int
    refused: Mapping[str, int]
    error: str
    ended: datetime | None
    ms: int | None = None
    worker: str | None = None


@dataclass(frozen=True, slots=True)
class PartState:
    """A part, whether it has ended or not. index: in the order of the request; uuid: of its task."""

    index: int
    uuid: str
    state: str


@dataclass(frozen=True, slots=True)
class BatchDetails:
    """A batch in full.

    waits: why its coordinator does not run
    deadline: when the batch is over, whatever is missing
    states: of all parts that are known, also of those that are not added yet
    newest: the last items, as plain JSON values, oldest first
    topped_up: items that top-ups have given
    retries: of its parts after errors and crashes, as far as their tasks are kept
    """

    batch: BatchInfo
    parts: tuple[PartInfo, ...]
    waits: str
    deadline: datetime | None = None
    states: tuple[PartState, ...] = ()
    newest: tuple[object, ...] = ()
    topped_up: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True)
class ModeInfo:
    """A task that accepts no batches, or only degraded ones. live: batches that have not ended."""

    task: str
    mode: Mode
    live: int


class BatchOperations(Recorded):
    """Reads and changes the batches of one store."""

    def __init__(
        self,
        store: Store,
        queries: TaskQueries,
        flows: FlowOperations,
        modes: ModeOperations,
    ) -> None:
        self._store = store
        self._queries = queries
        self._flows = flows
        self._modes = modes

    # -- batches

    async def newest(
        self,
        limit: int,
        task: str | None = None,
        state: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[BatchInfo]:
        """Return the newest batches, of one task or of all. state: ALIVE: all that have not ended.

        since: added at this moment or later; until: added before this one
        """
        where = {"flow": "*"}
        if task is not None:
            where["source"] = stored_key(coordinator_source(task), "task", "newest()")
        if since is not None:
            where["since"] = str(to_ms(since))
        if until is not None:
            where["until"] = str(to_ms(until))
        unread = await self._count_kept(where.get("source"))
        found: list[BatchInfo] = []
        async for records in find_pages(self._store, where, _PAGE):
            coordinators = [record for record in records if batch_task(record.source) is not None]
            for record in coordinators:
                if state in (None, public_state(record.state).value) or (state == ALIVE and _lives(record)):
                    found.append(await self._info(record))
                if len(found) == limit:
                    return found
            unread -= len(coordinators)
            if unread <= 0:
                break  # the rest are flows
        return found

    async def details(self, batch: str, now: float, zone: tzinfo | None = UTC) -> BatchDetails:
        """Return a batch in full. zone: of the times in texts; None: local time."""
        record = await self.record(batch)
        waits = ""
        if record.history.ended is None:
            waits = (await explain(self._store, record, now, zone)).text
        parts = await read_parts(self._store, batch)
        info = _batch_info(record, parts)
        request = _request(record)
        deadline = None
        if request.deadline is not None:
            deadline = from_ms(record.added + request.deadline)
        tasks = await self._part_tasks(batch, info.progress.total, parts)
        return BatchDetails(
            info,
            tuple(_part_info(number, part, tasks[part.index]) for number, part in enumerate(parts, 1)),
            waits,
            deadline,
            _part_states(tasks, parts),
            newest_items(parts, _MAX_NEWEST),
            sum(count_items(part) for part in parts if part.index >= len(request.sizes)),
            sum(task.record.history.retries + task.record.history.crashes for task in tasks if task.record is not None),
        )

    async def _part_tasks(self, batch: str, total: int, parts: Sequence[StoredPart]) -> list[_PartTask]:
        """Of all parts that are known, by their index, also of those that are not added yet."""
        uuids = MemberUuids(batch)
        indexes = range(max(total, *(part.index + 1 for part in parts)) if parts else total)
        found: list[_PartTask] = []
        for start in range(0, len(indexes), BATCH):
            page = [uuids.of(index) for index in indexes[start : start + BATCH]]
            found += map(_PartTask, page, await self._store.get(page))
        return found

    async def progress(self, batch: str) -> BatchProgress:
        """Return how far a batch is."""
        record = await self.record(batch)
        return _progress(read_request(record), await read_parts(self._store, batch))

    async def record(self, batch: str) -> Record:
        """Return the coordinator. Raises TaskNotFound."""
        record = await self._queries.record(batch, "batch")
        if batch_task(record.source) is None:
            raise TaskNotFound(f"{batch} is a task of {record.source} and no batch")
        return record

    async def complete_id(self, part: str) -> str:
        """Return the id of the only task whose uuid is, begins or ends with this text. Raises TaskNotFound."""
        return await self._queries.complete_uuid(part, "batch")

    async def cancel(self, batch: str, reason: str = "cancelled") -> int:
        """Cancel the batch and its parts, in passes until nothing lives or 5 s are over. Return how many lived."""
        await self.record(batch)
        async with self._recorder.change("cancel batch", batch, reason) as note:
            note.changed = await self._flows.cancel(batch, reason)
        return note.changed

    async def _info(self, record: Record) -> BatchInfo:
        return _batch_info(record, await read_parts(self._store, record.uuid))

    async def _count_kept(self, coordinator: str | None) -> int:
        """coordinator: the source that is counted; None: those of all tasks."""
        tally = await self._store.tally()
        return sum(
            count
            for (source, _), count in tally.items()
            if source == coordinator or (coordinator is None and batch_task(source) is not None)
        )

    # -- modes

    async def tasks(self) -> list[str]:
        """Return the names of tasks that have batches, a mode or a worker."""
        names = {source for source, _ in await self._store.tally()}
        names |= {limit.name for limit in await self._store.limits() if limit.mode}
        names |= {source for worker in await live_workers(self._store) for source in worker.sources}
        return sorted(task for task in map(batch_task, names) if task is not None)

    async def modes(self) -> list[ModeInfo]:
        """Return the tasks that are frozen or degraded."""
        found: list[ModeInfo] = []
        for limit in sorted(await self._store.limits(), key=lambda limit: limit.name):
            task = batch_task(limit.name)
            if task is not None and limit.owner == "operator" and limit.mode:
                found.append(ModeInfo(task, limit.mode, await self._modes.live(limit.name)))
        return found

    async def recent_mode(self, task: str) -> Mode:
        """Return the mode as it was at most one second ago."""
        return await self._modes.recent.of(coordinator_source(task))

    async def mode(self, task: str) -> Mode:
        """Return whether new batches of a task are refused ("frozen") or run in one part ("degraded")."""
        return await self._modes.of(coordinator_source(task))

    async def freeze(self, task: str) -> Mode:
        """Accept no new batches of a task; running ones finish. Return its mode before, which this replaces."""
        return await self._set_mode("freeze", task, "frozen")

    async def degrade(self, task: str) -> Mode:
        """Run new batches of a task in one part, by its fallback. Return its mode before, which this replaces."""
        return await self._set_mode("degrade", task, "degraded")

    async def _set_mode(self, action: str, task: str, mode: Mode) -> Mode:
        async with self._recorder.change(action, coordinator_source(task)) as note:
            before = await self._modes.set(coordinator_source(task), mode)
            note.changed = int(before != mode)
        return before

    async def _end_mode(self, action: str, task: str, mode: Mode) -> bool:
        async with self._recorder.change(action, coordinator_source(task)) as note:
            had_mode = await self._modes.end(coordinator_source(task), mode)
            note.changed = int(had_mode)
        return had_mode

    async def thaw(self, task: str) -> bool:
        """Accept batches again. Return whether the task was frozen."""
        return await self._end_mode("thaw", task, "frozen")

    async def restore(self, task: str) -> bool:
        """Split new batches again. Return whether the task was degraded."""
        return await self._end_mode("restore", task, "degraded")

    async def drain(self, task: str, timeout: float | None = None) -> Mode:
        """Freeze a task, then wait until all its batches have ended. Return its mode before.

        Raises TimeoutError; it stays frozen.
        """
        async with self._recorder.change("drain", coordinator_source(task)) as note:
            before = await self._modes.set(coordinator_source(task), "frozen")
            note.changed = 1
            await wait_until_drained(
                lambda: self._modes.live(coordinator_source(task)),
                timeout,
                lambda left: f"{task} has {plural(left, 'batch that has', 'batches that have')} not ended",
            )
        return before


async def read_parts(store: Store, batch: str) -> list[StoredPart]:
    """The parts that a batch has streamed, in the order of their ends."""
    saved = await read_stream(item_reader(store, batch))
    return [read_part(item) for item in saved.items()]


def newest_items(parts: Sequence[StoredPart], limit: int) -> tuple[object, ...]:
    """The last items that the parts have kept, oldest first."""
    found: list[object] = []
    for part in reversed(parts):
        found[:0] = plain_items(part)
        if len(found) >= limit:
            break
    return tuple(found[-limit:])


def plain_items(part: StoredPart) -> list[object]:
    """The items of a part without the code of its task: objects come as dicts."""
    try:
        return decode_items(part, decode_untyped_result)
    except Undecodable as error:
        return [f"<{error}>"]


def _lives(record: Record) -> bool:
    return record.history.ended is None


def _request(record: Record) -> BatchRequest:
    try:
        return read_request(record)
    except Undecodable:
        return _UNREADABLE


def _batch_info(record: Record, parts: Sequence[StoredPart]) -> BatchInfo:
    request = _request(record)
    return BatchInfo(
        record.uuid,
        batch_task(record.source) or "",
        request.type,
        public_state(record.state).value,
        _progress(request, parts),
        from_ms(record.added),
        from_optional_ms(record.history.ended),
        request.degraded,
        _reason(record),
    )


def _reason(record: Record) -> str:
    failure = decode_failure(record.history.error)
    if failure is None or record.state not in ("failed", "cancelled"):
        return ""
    return f"{failure.type}: {failure.message}" if failure.type else failure.message


def _progress(request: BatchRequest, parts: Sequence[StoredPart]) -> BatchProgress:
    counts = batch_counts(request, parts)
    return BatchProgress(counts.done, counts.failed, counts.total, counts.items, request.count)


class _PartTask(NamedTuple):
    """The task of a part. record: None: it is not added yet, or not kept any more."""

    uuid: str
    record: Record | None


def _part_states(tasks: Sequence[_PartTask], parts: Sequence[StoredPart]) -> tuple[PartState, ...]:
    """A part that has ended keeps its state when its task is not kept any more."""
    ended = {part.index: "succeeded" if part.error is None else part.error.state for part in parts}
    found: list[PartState] = []
    for index, task in enumerate(tasks):
        state = ended.get(index, "waiting")
        if task.record is not None:
            state = public_state(task.record.state).value
        found.append(PartState(index, task.uuid, state))
    return tuple(found)


def _part_info(number: int, part: StoredPart, task: _PartTask) -> PartInfo:
    error = ""
    if part.error is not None:
        error = f"{part.error.type}: {part.error.message}" if part.error.type else part.error.message
    ms: int | None = None
    worker: str | None = None
    record = task.record
    if record is not None and record.attempt == part.attempt and record.history.started is not None:  # no later run
        worker = record.history.session
        if record.history.ended is not None:
            ms = record.history.ended - record.history.started
    return PartInfo(
        number,
        part.index,
        task.uuid,
        count_items(part),
        part.refused,
        error,
        from_optional_ms(part.ended),
        ms,
        worker,
    )
