"""Cancelling all that lives of a flow, and of the flows that its members have spawned or run as children."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec import Struct

from onthedot.model.batch_names import batch_task
from onthedot.model.flow_names import MemberUuids
from onthedot.operations.children import awaited_child
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
    """The passes of one cancel. A pass looks at flows of which something lived in the pass before, and at new ones.

    members: all tasks of a flow; it is slow in stores without an index
    """

    store: Store
    cancel: Callable[[Collection[str], str], Awaitable[int]]
    members: Callable[[str], AsyncIterator[Record]]
    reason: str
    found_new: bool = False  # the last pass has found tasks that no pass before had cancelled
    _requested: set[str] = field(default_factory=set[str])
    _known: set[str] = field(default_factory=set[str])
    _open: dict[str, Record] = field(default_factory=dict[str, Record])

    def begin(self, last: Record) -> None:
        self._known.add(last.uuid)
        self._open[last.uuid] = last

    async def next_pass(self) -> int:
        """Cancel what lives now, page by page, so that members add no more tasks. Return how many that were."""
        self.found_new = False
        alive: set[str] = set()
        new: list[str] = []
        queue = list(self._open.values())
        while queue:
            last = queue.pop()
            before = len(alive)
            async for records in self._pages(last):
                living = [record.uuid for record in records if record.history.ended is None]
                new += [uuid for uuid in living if uuid not in self._requested]
                self._requested.update(new)
                alive.update(living)
                if len(new) >= _AT_ONCE:
                    await self._cancel(new)
                    new = []
                found = [record for record in records if flow_size(record).members]
                for record in [*found, *await self._children(records)]:
                    if record.uuid not in self._known:
                        self.begin(record)
                        queue.append(record)
            if len(alive) == before:
                self._open.pop(last.uuid, None)
        await self._cancel(new)
        return len(alive)

    async def _children(self, records: Sequence[Record]) -> list[Record]:
        """The last tasks of the flows that these tasks run as children. Cancelled here, no worker is needed for it."""
        flows = [flow for record in records if (flow := awaited_child(record)) is not None]
        if not flows:
            return []
        return [record for record in await self.store.get(flows) if record is not None]

    async def _cancel(self, uuids: Sequence[str]) -> None:
        self.found_new = self.found_new or bool(uuids)
        for start in range(0, len(uuids), BATCH):
            await self.cancel(uuids[start : start + BATCH], self.reason)

    async def _pages(self, last: Record) -> AsyncIterator[Sequence[Record]]:
        """Members by their uuids; then what they have added, which only a search finds.

        Only a member that succeeded, or the coordinator of a batch, can have added tasks.
        """
        uuids = MemberUuids(last.uuid)
        names = [last.uuid, *(uuids.of(number) for number in range(flow_size(last).members))]
        has_added = batch_task(last.source) is not None
        for start in range(0, len(names), BATCH):
            records = [each for each in await self.store.get(names[start : start + BATCH]) if each is not None]
            has_added = has_added or any(record.state == "succeeded" for record in records)
            yield records
        if not has_added:
            return
        known = set(names)
        page: list[Record] = []
        async for record in self.members(last.uuid):
            if record.uuid not in known:
                page.append(record)
            if len(page) == BATCH:
                yield page
                page = []
        yield page
