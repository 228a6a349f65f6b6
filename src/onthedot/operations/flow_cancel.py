"""Cancelling all that lives of a flow, and of the flows that its members have spawned or run as children."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from onthedot.model.batch_names import batch_task
from onthedot.model.flow_names import MemberUuids
from onthedot.operations.children import awaited_child
from onthedot.operations.task_queries import find_pages
from onthedot.stores.contract import BATCH, Record, Store

CancelFound: TypeAlias = Callable[[Sequence[Record], str], Awaitable[Collection[str]]]
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


def cancel_place(record: Record) -> tuple[bool, int]:
    """The place of a living task in an order in which the end of one lets no other one run.

    Batches and tasks that wait for a child come first, before their parts and children. Of the others, a task comes
    before those that it follows: the last task of a flow is the first one.
    """
    if awaited_child(record) is not None or batch_task(record.source) is not None:
        return (False, record.seq)
    return (True, -record.seq)


@dataclass
class FlowCancel:
    """The passes of one cancel. A task that has ended is read once; the next passes read what is asked to end.

    cancel: gets living tasks as they were read, ≤ BATCH, and returns the uuids of those that it has ended
    """

    store: Store
    cancel: CancelFound
    reason: str
    _seqs: dict[str, int] = field(default_factory=dict[str, int])  # of all tasks that are known, by uuid
    _requested: dict[str, None] = field(default_factory=dict[str, None])  # tasks that run, and are asked to cancel
    _unread: list[str] = field(default_factory=list[str])
    _to_search: dict[str, None] = field(default_factory=dict[str, None])  # flows to which their tasks may have added
    _found: list[Record] = field(default_factory=list[Record])  # living tasks that are not cancelled yet

    def begin(self, uuid: str) -> None:
        """uuid: of the last task of the flow."""
        self._unread.append(uuid)

    @property
    def is_complete(self) -> bool:
        """Whether all that is known has ended."""
        return not self._requested

    async def next_pass(self) -> int:
        """Cancel what lives, page by page, so that it adds no more tasks. Return how many of them were not known."""
        found = await self._read(list(self._requested))
        while self._unread or self._to_search:
            unread = self._unread
            self._unread = []
            found += await self._read(unread)
            flows = list(self._to_search)
            self._to_search.clear()
            for flow in flows:
                found += await self._search(flow)
        await self._cancel()
        return found

    async def _read(self, uuids: Sequence[str]) -> int:
        found = 0
        for start in range(0, len(uuids), BATCH):
            page = uuids[start : start + BATCH]
            records = {record.uuid: record for record in await self.store.get(page) if record is not None}
            for uuid in page:
                if uuid not in records:
                    self._requested.pop(uuid, None)
            found += await self._look_at(list(records.values()))
        return found

    async def _search(self, flow: str) -> int:
        """Look at what was added to a flow after its last task, or by a task that runs children: newest first."""
        found = 0
        async for records in find_pages(self.store, {"flow": flow}, BATCH):
            added = [record for record in records if record.seq > self._seqs[flow]]
            found += await self._look_at(added)
            if len(added) < len(records):
                break
        return found

    async def _look_at(self, records: Sequence[Record]) -> int:
        """Collect those that live and were not known, and all that belongs to them. Return how many live."""
        new = [record for record in records if record.uuid not in self._seqs]
        self._seqs.update((record.uuid, record.seq) for record in new)
        for record in records:
            if record.uuid in self._requested and record.history.ended is not None:
                del self._requested[record.uuid]
                self._note_added(record)
        for record in new:
            self._note_added(record)
            self._open(record)
        living = [record for record in new if record.history.ended is None]
        self._found += living
        if len(self._found) >= _AT_ONCE:
            await self._cancel()
        self._unread += [flow for each in records if (flow := awaited_child(each)) and flow not in self._seqs]
        return len(living)

    def _note_added(self, record: Record) -> None:
        """Only a task that succeeded, or the coordinator of a batch, can have added tasks."""
        if batch_task(record.source) is not None:
            self._to_search[record.uuid] = None
        elif record.state == "succeeded" and record.links is not None and record.links.flow in self._seqs:
            self._to_search[record.links.flow] = None

    def _open(self, record: Record) -> None:
        """The members of a flow, if it is the last task of one, are read by their uuids."""
        uuids = MemberUuids(record.uuid)
        self._unread += [
            uuid for number in range(flow_size(record).members) if (uuid := uuids.of(number)) not in self._seqs
        ]

    async def _cancel(self) -> None:
        found = self._found
        self._found = []
        for start in range(0, len(found), BATCH):
            page = found[start : start + BATCH]
            ended = await self.cancel(page, self.reason)
            self._requested |= dict.fromkeys(record.uuid for record in page if record.uuid not in ended)
