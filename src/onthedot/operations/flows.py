"""Flows at run time: progress, cancel, retry, and the first failure. No user code is needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from onthedot.model.flow_names import JOIN, is_child_flow
from onthedot.operations.audit import Recorded
from onthedot.operations.flow_cancel import FlowCancel, flow_size
from onthedot.operations.flow_retry import revive_dependants, revive_flow
from onthedot.operations.task_queries import BATCH, TaskFilter, TaskPage, TaskQueries, find_pages
from onthedot.stores.contract import NOT_STARTED, Record, Store

CANCEL_TIME = 5.0  # seconds in which a cancel repeats its passes
_PAUSE = 0.05  # seconds between two passes, while running members end


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """How far a flow is. Handlers and joins of groups are not counted."""

    done: int
    """How many of its tasks have ended: succeeded, failed or cancelled."""
    failed: int
    """How many of these did not succeed: failed or cancelled, also because a task before them did not succeed."""
    total: int
    """How many tasks it has; of a batch, whose parts are added one after another, at least those that have ended."""


class FlowOperations(Recorded):
    """Reads and changes flows of one store."""

    def __init__(
        self,
        store: Store,
        queries: TaskQueries,
        cancel: Callable[[Sequence[Record], str], Awaitable[Collection[str]]],
    ) -> None:
        """cancel: gets living tasks as they were read, ≤ BATCH, and returns the uuids of those that it has ended."""
        self._store = store
        self._queries = queries
        self._cancel = cancel

    async def progress(self, flow: str) -> FlowProgress:
        """Count the tasks that have ended, by the counter of the flow."""
        last = await self._queries.record(flow)
        (counter,) = await self._store.counters([flow])
        is_counted = last.source != JOIN and last.history.ended is not None
        done = counter.value + is_counted
        failed = counter.failed + (is_counted and last.state != "succeeded")
        return FlowProgress(done, failed, max(flow_size(last).total, done))

    async def tasks(self, flow: str, state: str | None = None, cursor: str | None = None) -> TaskPage:
        """Return a page of its tasks, newest first, the last task included."""
        where: TaskFilter = {"flow": flow}
        if state is not None:
            where["state"] = state
        if cursor is not None:
            where["cursor"] = cursor
        page = await self._queries.find(**where)
        return TaskPage(tuple(task for task in page if not is_child_flow(task.uuid)), page.cursor)

    async def members(self, flow: str) -> AsyncIterator[Record]:
        """Yield all tasks that belong to the flow, the last one included, and the tasks that members have added."""
        (last,) = await self._store.get([flow])
        is_listed = last is None or (last.links is not None and last.links.flow == flow)
        if last is not None and not is_listed:
            yield last  # it is listed under the flow whose member has spawned it
        async for record in self._queries.records({"flow": flow}):
            if not is_child_flow(record.uuid):  # of the last task, not a member
                yield record

    async def first_failure(self, flow: str) -> Record | None:
        """Return the member that failed first; else the one that was cancelled first, unless because of others."""
        failed = await self.first_failed(flow)
        return failed or await first_ended(self._store, flow, "cancelled")

    async def first_failed(self, flow: str) -> Record | None:
        """Return the member that failed first."""
        return await first_ended(self._store, flow, "failed")

    async def cancel(self, flow: str, reason: str = "cancelled") -> int:
        """Cancel all that lives, in passes. Return how many lived at first.

        After 5 s the tasks that run, and have been asked to cancel, are left to end by themselves. Tasks that members
        have added meanwhile are cancelled at any time.
        """
        await self._queries.record(flow)
        passes = FlowCancel(self._store, self._cancel, reason)
        passes.begin(flow)
        now = asyncio.get_running_loop().time
        async with self._recorder.change("cancel flow", flow, reason) as note:
            deadline = now() + CANCEL_TIME
            lived = await passes.next_pass()
            found = lived
            while not passes.is_complete and (found or now() < deadline):
                await asyncio.sleep(_PAUSE)
                found = await passes.next_pass()
            note.changed = lived
        return lived

    async def stop(self, flow: str, reason: str) -> int:
        """Cancel the members that have not started, after one has failed."""
        stopped = 0
        async for records in find_pages(self._store, {"flow": flow}, BATCH):
            found = [record for record in records if record.state in NOT_STARTED and record.history.started is None]
            if found:
                await self._cancel(found, reason)
            stopped += len(found)
        return stopped

    async def retry(self, flow: str) -> int:
        """Run failed tasks again, then those that were cancelled. Return how many left an ended state."""
        await self._queries.record(flow)
        ended = [record async for record in self.members(flow) if record.state in ("failed", "cancelled")]
        async with self._recorder.change("retry flow", flow) as note:
            note.changed = await revive_flow(self._store, ended)
        return note.changed

    async def retry_parts(self, batch: str) -> None:
        """Run the parts of a batch again that did not succeed, before its coordinator runs again."""
        ended = [record async for record in self.members(batch) if record.state in ("failed", "cancelled")]
        await revive_flow(self._store, [record for record in ended if record.uuid != batch])

    async def retry_dependants(self, revived: Sequence[Record]) -> int:
        """Run what was cancelled because of these tasks, which run again. Return how many tasks that were."""
        return await revive_dependants(self._store, self._cancelled, revived)

    async def _cancelled(self, flow: str) -> AsyncIterator[Record]:
        found: set[str] = set()
        async for record in self._queries.records({"flow": flow, "state": "cancelled"}):
            found.add(record.uuid)
            yield record
        (last,) = await self._store.get([flow])
        if last is not None and last.state == "cancelled" and flow not in found:
            yield last  # it is listed under the flow whose member has spawned it

    async def flow_of(self, uuid: str) -> str | None:
        """Return the flow that a task is linked into, or whose last task it is; None: it is in no flow."""
        return _flow_of(await self._queries.record(uuid))

    async def not_succeeded(self, uuids: Sequence[str]) -> dict[str, int]:
        """The flows of these tasks, and how many tasks of each have ended and did not succeed, without the last one."""
        records = [record for record in await self._store.get(uuids) if record is not None]
        flows = sorted({flow for record in records if (flow := _flow_of(record)) is not None})
        if not flows:
            return {}
        counters = await self._store.counters(flows)
        return {flow: counter.failed for flow, counter in zip(flows, counters, strict=True)}


def _flow_of(record: Record) -> str | None:
    """The flow that a task is linked into; a task that a member has spawned is linked to nothing."""
    if flow_size(record).members or is_child_flow(record.uuid):
        return record.uuid
    if record.links is None or not record.links.increments:
        return None
    return record.links.flow


async def first_ended(store: Store, flow: str, state: Literal["failed", "cancelled"]) -> Record | None:
    """The member that ended first in this state, unless because of others."""
    first: Record | None = None
    async for records in find_pages(store, {"flow": flow, "state": state}, BATCH):
        for record in records:
            ended = record.history.ended
            if ended is None or record.history.reason == "upstream" or is_child_flow(record.uuid):
                continue
            if first is None or (ended, record.seq) < (first.history.ended or 0, first.seq):
                first = record
    return first
