"""The JSON of flows, batches, streams, waiting tasks and signals; `schemas` has the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from onthedot.web.schemas import Moment, State


class FlowRow(Struct, frozen=True, kw_only=True):
    """A flow. id: the uuid of its last task, which also gives source and label."""

    id: str
    source: str
    label: str
    state: State
    done: int
    failed: int
    total: int
    started_at: Moment
    ended_at: Moment | None


class FlowNode(Struct, frozen=True, kw_only=True):
    """Tasks of a flow with one source and one place in it. uuid: of one of them."""

    id: int
    source: str
    count: int
    states: Mapping[str, int]
    uuid: str
    remark: str


class FlowLayer(Struct, frozen=True, kw_only=True):
    """The nodes of a flow that have the same number of nodes before them, by the longest path. nodes: how many."""

    nodes: int
    total: int
    done: int
    failed: int
    running: int


class FlowFailureRow(Struct, frozen=True):
    """A task of a flow that did not succeed by itself."""

    uuid: str
    source: str
    state: State
    error: str


class FlowHandlerRow(Struct, frozen=True):
    """A task that follows a flow. kind: on_failure or always."""

    kind: str
    uuid: str
    source: str
    state: State
    remark: str


class FlowChildrenRow(Struct, frozen=True):
    """Tasks that a task of a flow has added. by: the uuid of the task that runs them; null: they are spawned."""

    source: str
    count: int
    states: Mapping[str, int]
    uuid: str
    remark: str
    by: str | None


class FlowDetail(Struct, frozen=True, kw_only=True):
    """A flow in full. edges: pairs of nodes, the second waits for the first; of more than 200 nodes only the layers.

    states: of its tasks; waits, blocked_by: why the last task does not run, and why others do not end
    """

    flow: FlowRow
    states: Mapping[str, int]
    nodes: Sequence[FlowNode]
    edges: Sequence[tuple[int, int]]
    layers: Sequence[FlowLayer]
    waits: str
    blocked_by: Sequence[str]
    first_failures: Sequence[FlowFailureRow]
    handlers: Sequence[FlowHandlerRow]
    children: Sequence[FlowChildrenRow]


class BatchRow(Struct, frozen=True, kw_only=True):
    """A batch. done, failed, total: parts; items of count: what it has made; mode: of its task now."""

    id: str
    source: str
    type: str
    state: State
    done: int
    failed: int
    total: int
    items: int
    count: int
    started_at: Moment
    ended_at: Moment | None
    degraded: bool
    mode: Literal["", "frozen", "degraded"]
    reason: str


class PartRow(Struct, frozen=True):
    """A part of a batch that has ended. ms, worker: of its last run; null: there is none, or its task is not kept."""

    number: int
    uuid: str
    items: int
    refused: Mapping[str, int]
    error: str
    ended_at: Moment | None
    ms: int | None
    worker: str | None


class PartStateRow(Struct, frozen=True):
    """A part, whether it has ended or not. index: in the order of the request."""

    index: int
    uuid: str
    state: State


class BatchDetail(Struct, frozen=True, kw_only=True):
    """A batch in full. waits: why it does not go on; alive: tasks of it that have not ended.

    first_at: when the first part with items ended; eta: when the last part may end, by the speed so far, and
    eta_error_ms: its standard error; deadline: when the batch is over, whatever is missing; refused: items by reason;
    topped_up: items that top-ups have given; retries: of its parts after errors and crashes; newest: the last items as
    JSON text, oldest first
    """

    batch: BatchRow
    parts: Sequence[PartRow]
    waits: str
    alive: int
    first_at: Moment | None
    eta: Moment | None
    eta_error_ms: int | None
    deadline: Moment | None
    states: Sequence[PartStateRow]
    refused: Mapping[str, int]
    topped_up: int
    retries: int
    newest: Sequence[str]


class StreamEntryRow(Struct, frozen=True):
    """An item of a stream, or a part of a batch. cursor: continue after it; text: the exact JSON of its data."""

    cursor: str
    number: int
    kind: Literal["item", "part"]
    data: Any
    text: str = ""


class StreamList(Struct, frozen=True):
    """The next entries of a stream. cursor: of the last one; restarted: the given cursor was of a run before.

    ended: there will be no more
    """

    items: Sequence[StreamEntryRow]
    cursor: str
    restarted: bool
    ended: bool


class WaitingRow(Struct, frozen=True, kw_only=True):
    """A task that waits: for signals, or for other tasks, of which `reached` of `needed` have ended."""

    uuid: str
    short_id: str
    source: str
    label: str
    signals: Sequence[str]
    flow: str | None
    needed: int
    reached: int
    since: Moment | None
    until: Moment | None


class AwaitedSignalRow(Struct, frozen=True):
    """The kept signals under a name. waiting: how many of the listed tasks wait for it."""

    name: str
    waiting: int
    kept: int
    oldest: Moment | None


class WaitingList(Struct, frozen=True):
    """Tasks that wait, those for signals first. more: there are more than these.

    signals: at most 20 names: those for which these tasks wait; without a filter also others of kept signals
    """

    items: Sequence[WaitingRow]
    more: bool
    signals: Sequence[AwaitedSignalRow]


class SignalRow(Struct, frozen=True, kw_only=True):
    """A kept signal."""

    name: str
    id: str
    at: Moment
    payload: Any


class SignalSent(Struct, frozen=True):
    """added: False: a signal with this id is kept already."""

    added: bool
