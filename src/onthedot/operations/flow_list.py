"""Flows for people: a list of them, and one of them in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from onthedot.clock.epoch import from_ms, from_optional_ms, to_ms
from onthedot.model.failures import decode_failure
from onthedot.model.task_info import public_state
from onthedot.operations.explain import explain
from onthedot.operations.flows import FlowOperations, FlowProgress
from onthedot.operations.task_queries import find_pages
from onthedot.stores.contract import Record, Store

_MAX_FAILURES = 5  # shown


@dataclass(frozen=True, slots=True)
class FlowInfo:
    """A flow by its last task. state: failed also means that a member failed and the last task did not run."""

    uuid: str
    source: str
    state: str
    progress: FlowProgress
    added: datetime
    ended: datetime | None = None


@dataclass(frozen=True, slots=True)
class FlowFailure:
    """A member that did not succeed by itself."""

    uuid: str
    source: str
    state: str
    error: str


@dataclass(frozen=True, slots=True)
class FlowDetails:
    """A flow in full: its tasks by state, the first failures, and why its last task does not run."""

    flow: FlowInfo
    states: Mapping[str, int]
    failures: tuple[FlowFailure, ...]
    waits: str


async def list_flows(
    store: Store, flows: FlowOperations, limit: int, state: str | None = None, since: datetime | None = None
) -> list[FlowInfo]:
    """Return the newest flows that match; flows that tasks of others have spawned are part of these."""
    where = {"flow": "*"}
    if since is not None:
        where["since"] = str(to_ms(since))
    found: list[FlowInfo] = []
    async for records in find_pages(store, where, 100):
        for record in records:
            if state in (None, _state(record)):
                found.append(await _info(flows, record))
            if len(found) == limit:
                return found
    return found


async def flow_details(
    store: Store, flows: FlowOperations, last: Record, now: float, zone: tzinfo | None = UTC
) -> FlowDetails:
    """zone: of the times in texts; None: local time."""
    states: Counter[str] = Counter()
    failed: list[Record] = []
    async for record in flows.members(last.uuid):
        states[public_state(record.state).value] += 1
        if record.state in ("failed", "cancelled") and record.history.reason != "upstream":
            failed.append(record)
    failed.sort(key=lambda record: record.history.ended or 0)
    waits = ""
    if last.history.ended is None:
        waits = (await explain(store, last, now, zone)).text
    failures = tuple(_failure(record) for record in failed[:_MAX_FAILURES])
    return FlowDetails(await _info(flows, last), dict(states), failures, waits)


async def _info(flows: FlowOperations, record: Record) -> FlowInfo:
    progress = await flows.progress(record.uuid)
    added = from_ms(record.added)
    return FlowInfo(record.uuid, record.source, _state(record), progress, added, from_optional_ms(record.history.ended))


def _state(record: Record) -> str:
    if record.state == "cancelled" and record.history.reason == "upstream":
        return "failed"
    return public_state(record.state).value


def _failure(record: Record) -> FlowFailure:
    failure = decode_failure(record.history.error)
    text = ""
    if failure is not None:
        text = f"{failure.type}: {failure.message}" if failure.type else failure.message
    return FlowFailure(record.uuid, record.source, record.state, text)
