"""Why a task waits for others: for tasks of its flow, or for the rest of its flow to be added."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from onthedot.model.batch_names import batch_task
from onthedot.model.flow_names import (
    MAX_MEMBERS,
    MemberUuids,
    counter_flow,
    is_child_flow,
    is_end_counter,
    is_start_signal,
)
from onthedot.operations.flow_cancel import flow_size
from onthedot.operations.humanize import plural, short_id
from onthedot.operations.start_rate import sample
from onthedot.stores.contract import Record, State, Store, Wait

_MAX_SHOWN = 5
_MAX_SAMPLE = 1000  # living tasks of a flow that are read, per state
_MAX_BLOCKERS = 3  # explained, each of another source or state
_PROBES = 16  # members looked for at once, to count those that are added
_LIVING: tuple[State, ...] = ("running", "scheduled", "ready", "parked", "waiting")


class WaitReason(NamedTuple):
    """A reason, the tasks that the task waits for, and those that hold it back, directly or through others."""

    reason: str
    text: str
    holders: tuple[Record, ...] = ()
    missing: int = 0
    blockers: tuple[Record, ...] = ()


async def wait_for_tasks(store: Store, wait: Wait, moment: Callable[[float], str]) -> WaitReason:
    """wait: for counters of a flow. moment: the text of a time."""
    name, value = wait.counters[0]
    flow = counter_flow(name)
    if flow is None:
        return WaitReason("waiting_tasks", f"it waits for the counter {name!r}")
    if is_start_signal(name):
        return WaitReason("incomplete_flow", await _incomplete(store, flow))
    if is_end_counter(name):
        found = await store.get([flow])
        last = tuple(record for record in found if record is not None)
        text = f"it waits for the end of flow {short_id(flow)}"
        if last and is_child_flow(flow):
            text = f"it waits for its child {_name(last[0])}"
        return WaitReason("waiting_tasks", text, last, 1, last)
    (counter,) = await store.counters([name])
    missing = value - counter.value
    living = _Living([each for state in _LIVING async for each in sample(store, _of(flow, state), _MAX_SAMPLE)])
    before = living.raising(name)
    text = f"it waits for {missing:,} of {plural(value, 'task')} of flow {short_id(flow)}"
    if await _is_batch(store, flow):
        text = f"it waits for the next of {plural(len(before), 'part')} of its batch"
    parts = _parts(before, moment)
    if parts:
        text += f": {', '.join(parts)}"
    return WaitReason("waiting_tasks", text, tuple(before[:_MAX_SHOWN]), missing, living.blockers(name))


async def _is_batch(store: Store, flow: str) -> bool:
    """Whether the last task of a flow is the coordinator of a batch, which waits for one part after the other."""
    (record,) = await store.get([flow])
    return record is not None and batch_task(record.source) is not None


def _of(flow: str, state: State) -> dict[str, str]:
    return {"flow": flow, "state": state}


def _parts(records: Sequence[Record], moment: Callable[[float], str]) -> list[str]:
    """The activities of the tasks: those that run first, then those that do not."""
    by_state: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_state["ready" if record.state == "parked" else record.state].append(record)
    parts: list[str] = []
    if running := by_state["running"]:
        first = running[0]
        worker = short_id(first.history.session or "")
        since = moment(first.history.started or 0)
        parts.append(f"{_number(running, 'runs', 'run')} ({_name(first)} on {worker} since {since})")
    if scheduled := by_state["scheduled"]:
        due = moment(min(record.due for record in scheduled))
        parts.append(f"{_number(scheduled, 'is', 'are')} not due before {due}")
    if ready := by_state["ready"]:
        parts.append(f"{_number(ready, 'is', 'are')} ready ({_name(ready[0])})")
    if waiting := by_state["waiting"]:
        parts.append(f"{_number(waiting, 'waits', 'wait')} ({_name(waiting[0])})")
    return parts


def _number(records: Sequence[Record], one: str, several: str) -> str:
    if len(records) >= _MAX_SAMPLE:
        return f"{len(records):,} or more {several}"
    return plural(len(records), one, several)


def _name(record: Record) -> str:
    return f"{record.source} {short_id(record.uuid)}"


class _Living:
    """The tasks of a flow that have not ended, by the counters that their ends increment."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._by_counter: defaultdict[str, list[Record]] = defaultdict(list)
        for record in records:
            for counter in () if record.links is None else record.links.increments:
                self._by_counter[counter].append(record)

    def raising(self, counter: str) -> list[Record]:
        return self._by_counter[counter]

    def blockers(self, counter: str) -> tuple[Record, ...]:
        """The tasks at which the flow is now: they run, or wait for something else than tasks of this flow.

        Tasks that do not run come first: a person may have to act.
        """
        found: dict[tuple[str, str], Record] = {}
        seen = {counter}
        queue = [counter]
        while queue:
            for record in self._by_counter[queue.pop()]:
                names = [] if record.wait is None else [name for name, _ in record.wait.counters]
                inner = [name for name in names if self._by_counter.get(name)]
                if not inner:
                    found.setdefault((record.source, record.state), record)
                queue += [name for name in inner if name not in seen]
                seen.update(inner)
        ordered = sorted(found.values(), key=lambda record: record.state == "running")
        return tuple(ordered[:_MAX_BLOCKERS])


async def _incomplete(store: Store, flow: str) -> str:
    text = f"its flow {short_id(flow)} is still being added"
    (last,) = await store.get([flow])
    if last is None:
        return f"{text} ({plural(await _added(store, flow), 'task')} so far)"
    size = flow_size(last).members + 1
    return f"{text}: all {size:,} tasks are stored, and the signal that starts them is not sent yet"


async def _added(store: Store, flow: str) -> int:
    """Count the members that are stored. They are added in the order of their numbers, so a search needs few reads."""
    uuids = MemberUuids(flow)
    low = 0
    high = MAX_MEMBERS + 1
    while high - low > 1:
        counts = range(low + 1, high, max(1, (high - low) // _PROBES))
        records = await store.get([uuids.of(count - 1) for count in counts])
        for count, record in zip(counts, records, strict=True):
            if record is None:
                high = min(high, count)
            else:
                low = max(low, count)
    return low
