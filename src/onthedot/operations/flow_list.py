"""Flows for people: a list of them, and one of them in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import NamedTuple

from onthedot.clock.epoch import from_ms, from_optional_ms, to_ms
from onthedot.model.batch_names import batch_task
from onthedot.model.flow_names import MemberUuids, is_child_flow
from onthedot.model.stored_keys import stored_key
from onthedot.model.task_info import decode_body, public_state
from onthedot.operations.explain import explain
from onthedot.operations.flow_cancel import flow_size
from onthedot.operations.flow_stages import FlowShape, FlowStage, SimilarTasks, failure_text, remark
from onthedot.operations.flows import FlowOperations, FlowProgress
from onthedot.operations.humanize import moment_text
from onthedot.operations.task_queries import find_pages
from onthedot.stores.contract import Record, Store

ALIVE = "alive"
_MAX_FAILURES = 5  # shown
_MAX_PARENTS = 20  # tasks whose children are looked for
_PAGE = 100


class FlowFilter(NamedTuple):
    """Filters of a list of flows; all must match.

    state: ALIVE: all that have not ended; failed: also those whose last task did not run for a failure
    source: of the last task
    since: added at this moment or later; until: added before this one
    """

    state: str | None = None
    source: str | None = None
    since: datetime | None = None
    until: datetime | None = None


ALL_FLOWS = FlowFilter()


@dataclass(frozen=True, slots=True)
class FlowInfo:
    """A flow by its last task. state: failed also means that a member failed and the last task did not run.

    label: of the last task
    """

    uuid: str
    source: str
    state: str
    progress: FlowProgress
    added: datetime
    ended: datetime | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class FlowFailure:
    """A member that did not succeed by itself."""

    uuid: str
    source: str
    state: str
    error: str


@dataclass(frozen=True, slots=True)
class FlowHandler:
    """A task that follows the flow. kind: on_failure or always."""

    kind: str
    uuid: str
    source: str
    state: str
    remark: str


@dataclass(frozen=True, slots=True)
class FlowChildren:
    """Tasks and flows, by their last task, that a task of the flow has added: spawned with its end, or run by it.

    uuid and remark: of one of them, which failed or has not ended, if there is one
    by: the uuid of the task that runs them, or has run them; None: spawned
    """

    source: str
    count: int
    states: Mapping[str, int]
    uuid: str
    remark: str
    by: str | None = None


@dataclass(frozen=True, slots=True)
class FlowDetails:
    """A flow in full: its tasks by state and stage, the first failures, and why its last task does not run."""

    flow: FlowInfo
    states: Mapping[str, int]
    failures: tuple[FlowFailure, ...]
    waits: str
    blocked_by: tuple[str, ...]
    """Why the tasks do not end that the last task waits for, directly or through others."""
    stages: tuple[FlowStage, ...]
    handlers: tuple[FlowHandler, ...]
    children: tuple[FlowChildren, ...]


async def list_flows(store: Store, flows: FlowOperations, limit: int, wanted: FlowFilter = ALL_FLOWS) -> list[FlowInfo]:
    """Return the newest flows that match; flows that tasks of others have spawned are part of these."""
    state = wanted.state
    where = {"flow": "*"}
    if wanted.source is not None:
        where["source"] = stored_key(wanted.source, "source", "list_flows()")
    if wanted.since is not None:
        where["since"] = str(to_ms(wanted.since))
    if wanted.until is not None:
        where["until"] = str(to_ms(wanted.until))
    found: list[FlowInfo] = []
    async for records in find_pages(store, where, _PAGE):
        for record in records:
            if batch_task(record.source) is not None or (state == ALIVE and record.history.ended is not None):
                continue
            shown = await _state(flows, record)
            if state in (None, ALIVE, shown):
                found.append(await _info(flows, record, shown))
            if len(found) == limit:
                return found
    return found


async def flow_details(
    store: Store, flows: FlowOperations, last: Record, now: float, zone: tzinfo | None = UTC
) -> FlowDetails:
    """zone: of the times in texts; None: local time."""
    moment = partial(moment_text, zone=zone)
    uuids = MemberUuids(last.uuid)
    states: Counter[str] = Counter()
    failed: list[Record] = []
    spawned: dict[str, SimilarTasks] = {}
    shape = FlowShape(last)
    async for record in flows.members(last.uuid):
        states[public_state(record.state).value] += 1
        if record.state in ("failed", "cancelled") and record.history.reason != "upstream":
            failed.append(record)
        if record.uuid == last.uuid or uuids.number(record.uuid) is not None:
            shape.add(record)
        elif not is_child_flow(record.uuid):
            spawned.setdefault(record.source, SimilarTasks.of(record)).add(record)
    failed.sort(key=lambda record: (record.state != "failed", record.history.ended or 0))
    stages = shape.stages(moment)
    children = [_children(tasks, moment) for tasks in spawned.values()]
    for stage in stages[-_MAX_PARENTS:]:
        children += await _run_by(store, stage, moment)
    waits = ""
    blocked_by: tuple[str, ...] = ()
    if last.history.ended is None:
        found = await explain(store, last, now, zone)
        waits = found.text
        blocked_by = tuple(each.text for each in found.also)
    failures = tuple(
        FlowFailure(record.uuid, record.source, record.state, failure_text(record)) for record in failed[:_MAX_FAILURES]
    )
    handlers = [handler async for handler in _handlers(store, last, moment)]
    info = await _info(flows, last, await _state(flows, last))
    return FlowDetails(info, dict(states), failures, waits, blocked_by, stages, tuple(handlers), tuple(children))


async def _run_by(store: Store, stage: FlowStage, moment: Callable[[float], str]) -> list[FlowChildren]:
    """The flows that the only task of a stage runs, or has run, as its children."""
    if stage.count != 1:
        return []
    found: dict[str, SimilarTasks] = {}
    async for records in find_pages(store, {"flow": stage.uuid}, _PAGE):
        for record in records:
            if is_child_flow(record.uuid) and record.uuid != stage.uuid:
                found.setdefault(record.source, SimilarTasks.of(record)).add(record)
    return [_children(tasks, moment, stage.uuid) for tasks in found.values()]


def _children(tasks: SimilarTasks, moment: Callable[[float], str], by: str | None = None) -> FlowChildren:
    example = tasks.example
    count = tasks.states.total()
    return FlowChildren(tasks.source, count, dict(tasks.states), example.uuid, remark(example, moment), by)


async def _handlers(store: Store, last: Record, moment: Callable[[float], str]) -> AsyncIterator[FlowHandler]:
    """Their numbers follow those of the members. One that was not needed is not kept."""
    uuids = MemberUuids(last.uuid)
    first = flow_size(last).members
    while True:
        records = await store.get([uuids.of(number) for number in range(first, first + _PAGE)])
        for record in records:
            if record is not None and record.links is not None and record.links.waits is not None:
                kind = "on_failure" if record.links.waits.requires == "failure" else "always"
                state = public_state(record.state).value
                yield FlowHandler(kind, record.uuid, record.source, state, remark(record, moment))
        if not any(records):
            return
        first += _PAGE


async def _info(flows: FlowOperations, record: Record, state: str) -> FlowInfo:
    progress = await flows.progress(record.uuid)
    added = from_ms(record.added)
    _, headers = decode_body(record)
    ended = from_optional_ms(record.history.ended)
    return FlowInfo(record.uuid, record.source, state, progress, added, ended, headers.label)


async def _state(flows: FlowOperations, record: Record) -> str:
    """Of a flow whose last task was cancelled, the reason is a failure of a member, or a person."""
    if record.state == "cancelled" and (
        record.history.reason == "upstream" or await flows.first_failed(record.uuid) is not None
    ):
        return "failed"
    return public_state(record.state).value
