"""Why a task waits for others: for tasks of its flow, or for the rest of its flow to be added."""

from __future__ import annotations

from typing import NamedTuple

from onthedot.model.flow_names import counter_flow, is_end_counter, is_start_signal
from onthedot.operations.humanize import plural, short_id
from onthedot.operations.start_rate import sample
from onthedot.stores.contract import Record, Store, Wait

_MAX_SHOWN = 5


class WaitReason(NamedTuple):
    """A reason and the tasks that hold the task back."""

    reason: str
    text: str
    holders: tuple[Record, ...] = ()
    missing: int = 0


async def wait_for_tasks(store: Store, wait: Wait) -> WaitReason:
    """wait: for counters of a flow."""
    name, value = wait.counters[0]
    (counter,) = await store.counters([name])
    flow = counter_flow(name)
    if flow is None:
        return WaitReason("waiting_tasks", f"it waits for the counter {name!r}")
    if is_start_signal(name):
        return WaitReason("incomplete_flow", f"its flow {short_id(flow)} is still being added")
    if is_end_counter(name):
        return WaitReason("waiting_tasks", f"it waits for the end of flow {short_id(flow)}", missing=1)
    missing = value - counter.value
    running = [each async for each in sample(store, {"flow": flow, "state": "running"}, 1000) if _raises(each, name)]
    text = f"it waits for {missing:,} of {plural(value, 'task')} of flow {short_id(flow)}"
    if running:
        first = running[0]
        worker = short_id(first.history.session or "")
        text += f": {len(running):,} run ({first.source} {short_id(first.uuid)} on {worker})"
    return WaitReason("waiting_tasks", text, tuple(running[:_MAX_SHOWN]), missing)


def _raises(record: Record, counter: str) -> bool:
    return record.links is not None and counter in record.links.increments
