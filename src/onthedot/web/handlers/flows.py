"""Flows: lists of them, and one in full."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta, Struct

from onthedot.errors import ArgumentError
from onthedot.model.redaction import Redaction
from onthedot.operations.bulk_actions import DEFAULT_RATE
from onthedot.operations.filters import parse_moment
from onthedot.operations.flow_list import FlowDetails, FlowFilter, FlowInfo
from onthedot.operations.flow_stages import FlowStage, flow_layers
from onthedot.operations.flows import FlowSteps
from onthedot.web.bodies import Rate, Reason, Text
from onthedot.web.endpoints import Answer, Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.flow_schemas import (
    FlowChildrenRow,
    FlowDetail,
    FlowFailureRow,
    FlowHandlerRow,
    FlowLayer,
    FlowNode,
    FlowRow,
)
from onthedot.web.handlers.bulk_actions import action_detail
from onthedot.web.rows import MAX_PREVIEW, shortened, state_name, utc
from onthedot.web.schemas import Rows

_MAX_NODES = 200  # of a graph


class FlowActionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """rate: tasks per second."""

    rate: Rate = DEFAULT_RATE
    reason: Reason = ""


class FlowQuery(Query, frozen=True, kw_only=True):
    """state: of the flows; alive: those that have not ended; source: of the last task, of batches the name of the task;
    since, until: when they were added, as a time ago or a moment.
    """

    state: str = ""
    source: Text = ""
    since: str = ""
    until: str = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


def read_moment(text: str, field: str) -> datetime | None:
    if not text:
        return None
    try:
        return parse_moment(text, datetime.now(UTC))
    except ArgumentError as error:
        raise ApiError("bad_request", str(error), field=field) from None


async def list_flows(call: WebCall[FlowQuery, None]) -> Rows[FlowRow]:
    query = call.query
    wanted = FlowFilter(
        query.state or None,
        query.source or None,
        read_moment(query.since, "since"),
        read_moment(query.until, "until"),
    )
    found = await call.operations.list_flows(query.limit, wanted)
    return Rows([_flow_row(info, call.context.redaction) for info in found])


def _flow_row(info: FlowInfo, redaction: Redaction) -> FlowRow:
    return FlowRow(
        id=info.uuid,
        source=info.source,
        label=shortened(redaction.text(info.label), MAX_PREVIEW),
        state=state_name(info.state),
        done=info.progress.done,
        failed=info.progress.failed,
        total=info.progress.total,
        started_at=info.added,
        ended_at=utc(info.ended),
    )


async def show_flow(call: WebCall[Query, None]) -> FlowDetail:
    uuid = await call.operations.tasks.complete_uuid(call.path["id"], "flow")
    # its viewers share a read that is under way, and no older one: the page asks again after the last change
    found = await call.context.shared.get(f"flow {uuid}", 0.0, lambda: call.operations.flow_details(uuid))
    redaction = call.context.redaction
    nodes, edges = _graph(found, redaction)
    return FlowDetail(
        flow=_flow_row(found.flow, redaction),
        states=found.states,
        nodes=nodes,
        edges=edges,
        layers=[_layer(stages) for stages in flow_layers(found.stages)],
        waits=found.waits,
        blocked_by=found.blocked_by,
        first_failures=[
            FlowFailureRow(each.uuid, each.source, state_name(each.state), redaction.text(each.error))
            for each in found.failures
        ],
        handlers=[
            FlowHandlerRow(each.kind, each.uuid, each.source, state_name(each.state), redaction.text(each.remark))
            for each in found.handlers
        ],
        children=[
            FlowChildrenRow(each.source, each.count, each.states, each.uuid, redaction.text(each.remark), each.by)
            for each in found.children
        ],
    )


def _graph(found: FlowDetails, redaction: Redaction) -> tuple[Sequence[FlowNode], Sequence[tuple[int, int]]]:
    """Nodes and edges; none if there are too many to be drawn."""
    if len(found.stages) > _MAX_NODES:
        return (), ()
    nodes = [
        FlowNode(
            id=stage.number,
            source=stage.source,
            count=stage.count,
            states=stage.states,
            uuid=stage.uuid,
            remark=redaction.text(stage.remark),
        )
        for stage in found.stages
    ]
    return nodes, [(before, stage.number) for stage in found.stages for before in stage.after]


def _layer(stages: Sequence[FlowStage]) -> FlowLayer:
    def number(*states: str) -> int:
        return sum(stage.states.get(state, 0) for stage in stages for state in states)

    return FlowLayer(
        nodes=len(stages),
        total=sum(stage.count for stage in stages),
        done=number("succeeded", "failed", "cancelled"),
        failed=number("failed", "cancelled"),
        running=number("running"),
    )


async def cancel_flow(call: WebCall[Query, FlowActionBody]) -> Answer:
    flow = await call.operations.tasks.complete_uuid(call.path["id"], "flow")
    reason = call.body.reason or f"by {call.user.name}"
    return await _start(call, "cancel flow", flow, await call.operations.flows.cancel_steps(flow, reason))


async def retry_flow(call: WebCall[Query, FlowActionBody]) -> Answer:
    flow = await call.operations.tasks.complete_uuid(call.path["id"], "flow")
    return await _start(call, "retry flow", flow, await call.operations.flows.retry_steps(flow))


async def _start(call: WebCall[Query, FlowActionBody], action: str, flow: str, steps: FlowSteps) -> Answer:
    record = await call.operations.bulk_actions.start_steps(
        call.actor, action, steps.uuids, f"flow:{flow}", call.body.rate, call.body.reason, steps.step
    )
    return Answer(action_detail(record, call.context.redaction), 202)
