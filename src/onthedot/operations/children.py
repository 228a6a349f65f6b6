"""Children of tasks: which of them live, and the task that cancels them when their parent is cancelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onthedot.codec.annotations import write
from onthedot.codec.body import StoredBody
from onthedot.definitions.new_task import AGING
from onthedot.model.batch_names import batch_task
from onthedot.model.flow_names import STOP, counter_flow, is_child_flow, is_end_counter
from onthedot.operations.task_queries import BATCH, find_pages
from onthedot.stores.contract import Effects, NewTask, Policy, Record, Store

_POLICY = Policy(priority=10, boost=10 * AGING)


def stop_task(uuid: str, flow: str, **arguments: str) -> NewTask:
    """A task of the built-in source that stops a flow. arguments: why, by name."""
    return NewTask(uuid, STOP, write(StoredBody({"flow": flow, **arguments})), policy=_POLICY)


async def living_children(store: Store, parent: str) -> list[str]:
    """The flows that a task has run as children and that have not ended. Slow in stores without an index."""
    return [
        record.uuid
        async for records in find_pages(store, {"flow": parent}, BATCH)
        for record in records
        if is_child_flow(record.uuid) and record.history.ended is None
    ]


async def parent_of(store: Store, uuid: str) -> str | None:
    """The task that has run this one as a child, alone or as part of a flow; None: no kept task has."""
    child: str | None = uuid
    if not is_child_flow(uuid):
        child = await _flow_of(store, uuid)
    if child is None or not is_child_flow(child):
        return None
    return await _flow_of(store, child)  # the last task of a child is listed under its parent


async def _flow_of(store: Store, uuid: str) -> str | None:
    (record,) = await store.get([uuid])
    return None if record is None or record.links is None else record.links.flow


def awaited_child(record: Record) -> str | None:
    """The child that a task waits for; None: it waits for none."""
    wait = record.history.wait
    if record.state != "waiting" or wait is None:  # a handler, too, waits for the end of a flow, but by its links
        return None
    name, _ = wait.counters[0]
    return counter_flow(name) if is_end_counter(name) else None


async def effects_of_cancel(
    store: Store, cancelled: Sequence[Record], before: Mapping[str, Record], new_uuid: Callable[[], str]
) -> dict[str, Effects]:
    """The tasks that the ends of cancelled tasks add, by uuid: they cancel children and parts that live.

    before: the same tasks as they were just before. A record that is unchanged since then needs no search.
    """
    found: dict[str, Effects] = {}
    for record in cancelled:
        if record.history.started is None:
            continue
        known = before.get(record.uuid)
        if batch_task(record.source) is not None:
            flows = [record.uuid]  # its parts
        elif known is None or known.history.settled_fence != record.history.settled_fence:
            flows = await living_children(store, record.uuid)
        else:
            child = awaited_child(known)
            flows = [] if child is None else [child]
        if flows:
            parent = f"{record.source} {record.uuid}"
            found[record.uuid] = Effects(tuple(stop_task(new_uuid(), flow, parent=parent) for flow in flows))
    return found
