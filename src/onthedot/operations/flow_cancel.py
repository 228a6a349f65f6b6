"""Cancelling all that lives of a flow, and of the flows that its members have spawned or run as children."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec import Struct

from onthedot.model.batch_names import batch_task
from onthedot.model.flow_names import MemberUuids
from onthedot.operations.children import awaited_child
from onthedot.operations.task_queries import find_pages
from onthedot.stores.contract import BATCH, Record, Store

_AT_ONCE = 200  # tasks of small flows that are cancelled together


class _LastTaskInputs(Struct):
    members: int = 0
    total: int = 1


class _LastTaskHeaders(Struct):
    inputs: _LastTaskInputs = msgspec.field(default_factory=_LastTaskInputs)


_read_headers = msgspec.json.Decoder(_LastTaskHeaders).decode


class FlowSize(NamedTuple):
    """members: tasks before the last one, joins included; total: of progress."""

    members: int
    total: int


def flow_size(last: Record) -> FlowSize:
    """From the body of the last task. A task that is no flow is one of one task."""
    try:
        inputs = _read_headers(last.body).inputs
    except msgspec.MsgspecError:
        return FlowSize(0, 1)
    return FlowSize(inputs.members, max(1, inputs.total))


@dataclass
class FlowCancel:
    """The passes of one cancel. A pass reads the tasks that may live, cancels them, and searches for what they added.

    A task that has ended is not read again, so a pass costs little after the first, and a chain of tasks that add the
    next one is caught up with.
    cancel: gets living tasks, ≤ BATCH, and returns the uuids of those that have ended by it
    """

    store: Store
    cancel: Callable[[Sequence[Record], str], Awaitable[Collection[str]]]
    reason: str
    requested: set[str] = field(default_factory=set[str])  # all tasks that lived when they were found
    _known: set[str] = field(default_factory=set[str])
    _living: dict[str, None] = field(default_factory=dict[str, None])  # known tasks that may live; an ordered set
    _opened: set[str] = field(default_factory=set[str])  # flows whose members are known
    _to_search: set[str] = field(default_factory=set[str])  # flows whose tasks may have added others
    _searched: set[str] = field(default_factory=set[str])
    _uncancelled: list[Record] = field(default_factory=list[Record])
    _has_found: bool = False  # the last pass has found tasks that no pass before had

    def begin(self, last: Record) -> None:
        self._open([last])

    @property
    def must_continue(self) -> bool:
        """Whether another pass may find tasks that nobody has asked to end."""
        return self._has_found or bool(self._to_search)

    @property
    def is_complete(self) -> bool:
        return not self.must_continue and not self._living

    async def first_pass(self) -> None:
        """Cancel the members, so that they add no more tasks. What they have added is searched when they have ended."""
        await self._read(list(self._living))

    async def next_pass(self) -> None:
        """Cancel what lives now, and search for tasks that others have added."""
        self._has_found = False
        await self._read(list(self._living))
        for flow in sorted(self._to_search):
            await self._search(flow)

    async def _read(self, uuids: list[str]) -> None:
        """Cancel these tasks and all that belongs to them, as far as they live."""
        while uuids:
            following: list[str] = []
            for start in range(0, len(uuids), BATCH):
                page = uuids[start : start + BATCH]
                records = {record.uuid: record for record in await self.store.get(page) if record is not None}
                for uuid in page:
                    if uuid not in records:
                        self._living.pop(uuid, None)
                following += await self._look_at(list(records.values()))
            uuids = following
        await self._cancel()

    async def _look_at(self, records: Sequence[Record]) -> list[str]:
        """Collect and cancel those that live. Return the uuids of tasks that belong to them and were not known."""
        for record in records:
            if record.history.ended is not None:
                self._living.pop(record.uuid, None)
            flow = _flow_of_added(record)
            if flow in self._known:  # otherwise it belongs to a flow around the one that is cancelled
                self._to_search.add(flow)
        living = [record for record in records if record.history.ended is None]
        flows = [record for record in records if flow_size(record).members]
        following = self._open([*flows, *await self._children(living)])
        self._uncancelled += [record for record in living if record.uuid not in self.requested]
        self.requested.update(record.uuid for record in living)
        if len(self._uncancelled) >= _AT_ONCE:
            await self._cancel()
        return following

    async def _cancel(self) -> None:
        for start in range(0, len(self._uncancelled), BATCH):
            self._has_found = True
            for uuid in await self.cancel(self._uncancelled[start : start + BATCH], self.reason):
                self._living.pop(uuid, None)
        self._uncancelled.clear()

    def _open(self, flows: Sequence[Record]) -> list[str]:
        """Enter the tasks of flows, by their last tasks. Return those that were not known."""
        found: dict[str, None] = {}
        for last in flows:
            if last.uuid not in self._opened:
                self._opened.add(last.uuid)
                uuids = MemberUuids(last.uuid)
                found |= dict.fromkeys([last.uuid, *map(uuids.of, range(flow_size(last).members))])
        new = [uuid for uuid in found if uuid not in self._known]
        self._known.update(new)
        self._living |= dict.fromkeys(new)
        return new

    async def _children(self, records: Sequence[Record]) -> list[Record]:
        """Parts of batches, and last tasks of the flows that these tasks run. Cancelled here, they need no worker."""
        found: list[Record] = []
        for record in records:
            if batch_task(record.source) is not None:
                async for parts in find_pages(self.store, {"flow": record.uuid}, BATCH):
                    found += parts
        flows = [flow for record in records if (flow := awaited_child(record)) is not None]
        if flows:
            found += [record for record in await self.store.get(flows) if record is not None]
        return found

    async def _search(self, flow: str) -> None:
        """Look at the tasks of a flow that have no number, newest first.

        The first search, and one that finds nothing, reads all of them. Another stops where it finds no more.
        """
        self._to_search.discard(flow)
        is_repeated = flow in self._searched
        has_found = False
        async for records in find_pages(self.store, {"flow": flow}, BATCH):
            new = [record for record in records if record.uuid not in self._known]
            if new:
                has_found = self._has_found = True
                self._known.update(record.uuid for record in new)
                self._living |= dict.fromkeys(record.uuid for record in new)
                await self._read(await self._look_at(new))
            elif has_found and is_repeated:
                self._to_search.add(flow)
                return
        self._searched.add(flow)


def _flow_of_added(record: Record) -> str | None:
    """The flow of the tasks that this one may have added: it has succeeded, or coordinates a batch."""
    if batch_task(record.source) is not None:
        return record.uuid
    if record.state != "succeeded" or record.links is None:
        return None
    return record.links.flow
