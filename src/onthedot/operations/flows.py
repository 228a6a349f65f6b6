"""Flows at run time: progress, cancel, retry, and the first failure. No user code is needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from onthedot.model.batch_names import batch_task
from onthedot.model.flow_names import JOIN, is_child_flow
from onthedot.operations.audit import Recorded
from onthedot.operations.flow_cancel import CancelFound, FlowCancel, cancel_place, flow_size
from onthedot.operations.flow_retry import retry_order, revive_dependants, revive_flow
from onthedot.operations.task_queries import BATCH, TaskFilter, TaskPage, TaskQueries, find_pages
from onthedot.stores.contract import NOT_STARTED, Record, Store

CANCEL_TIME = 5.0  # seconds in which a cancel repeats its passes
_MAX_COUNTED = 200  # flows
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


class FlowSteps(NamedTuple):
    """A change of a flow in steps, for `BulkActions.start_steps`.

    uuids: of the tasks that it changes, in their order
    step: changes the next ones of them, and returns how many have changed
    """

    uuids: Sequence[str]
    step: Callable[[Sequence[str]], Awaitable[int]]


class FlowOperations(Recorded):
    """Reads and changes flows of one store."""

    def __init__(
        self,
        store: Store,
        queries: TaskQueries,
        cancel: CancelFound,
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

    async def count_alive(self, most: int = _MAX_COUNTED) -> tuple[int, bool]:
        """Return how many of the newest flows have not ended, and whether these are all. most: that are read."""
        alive = 0
        read = 0
        async for records in find_pages(self._store, {"flow": "*"}, most):
            alive += sum(record.history.ended is None and batch_task(record.source) is None for record in records)
            read += len(records)
            if read >= most:
                return alive, False
        return alive, True

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
        async with self._recorder.change("cancel flow", flow, reason) as note:
            note.changed = await self._cancel_in_passes(flow, self._cancel, reason)
        return note.changed

    async def _cancel_in_passes(self, flow: str, cancel: CancelFound, reason: str) -> int:
        passes = FlowCancel(self._store, cancel, reason)
        passes.begin(flow)
        now = asyncio.get_running_loop().time
        deadline = now() + CANCEL_TIME
        lived = await passes.next_pass()
        found = lived
        while not passes.is_complete and (found or now() < deadline):
            await asyncio.sleep(_PAUSE)
            found = await passes.next_pass()
        return lived

    async def cancel_steps(self, flow: str, reason: str) -> FlowSteps:
        """Return the tasks that live, and the step that cancels them.

        The last step also cancels what members have added meanwhile, in passes as `cancel`; these are counted, too.
        """
        await self._queries.record(flow)
        alive: list[tuple[tuple[bool, int], str]] = []  # without their bodies: there may be a hundred thousand

        async def collect(records: Sequence[Record], _: str) -> Collection[str]:
            alive.extend((cancel_place(record), record.uuid) for record in records)
            return {record.uuid for record in records}  # as if they had ended: the search waits for none of them

        search = FlowCancel(self._store, collect, reason)
        search.begin(flow)
        await search.next_pass()
        uuids = [uuid for _, uuid in sorted(alive)]
        known = frozenset(uuids)

        async def step(part: Sequence[str]) -> int:
            found = await self._store.get(part)
            living = [record for record in found if record is not None and record.history.ended is None]
            await self._cancel(living, reason)
            changed = len(living)
            if part[-1] == uuids[-1]:
                changed += await self._cancel_added(flow, known, reason)
            return changed

        return FlowSteps(uuids, step)

    async def _cancel_added(self, flow: str, known: Collection[str], reason: str) -> int:
        """Cancel what still lives. Return how many of these tasks were not known."""
        added: set[str] = set()

        async def cancel(records: Sequence[Record], reason: str) -> Collection[str]:
            added.update(record.uuid for record in records if record.uuid not in known)
            return await self._cancel(records, reason)

        await self._cancel_in_passes(flow, cancel, reason)
        return len(added)

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
        ended = await self._without_success(flow)
        async with self._recorder.change("retry flow", flow) as note:
            note.changed = await revive_flow(self._store, ended)
        return note.changed

    async def retry_steps(self, flow: str) -> FlowSteps:
        """Return the failed and cancelled tasks, in the order of `retry`, and the step that runs them again."""
        uuids = [record.uuid for record in retry_order(await self._without_success(flow))]

        async def step(part: Sequence[str]) -> int:
            found = await self._store.get(part)
            return await revive_flow(self._store, [record for record in found if record is not None])

        return FlowSteps(uuids, step)

    async def _without_success(self, flow: str) -> list[Record]:
        await self._queries.record(flow)
        return [record async for record in self.members(flow) if record.state in ("failed", "cancelled")]

    async def retry_parts(self, batch: str) -> None:
        """Run the parts of a batch again that did not succeed, before its coordinator runs again."""
        ended = await self._without_success(batch)
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
