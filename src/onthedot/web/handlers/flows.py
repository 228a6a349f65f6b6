"""Flows and batches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta

from onthedot.errors import ArgumentError
from onthedot.model.redaction import Redaction
from onthedot.operations.batches import BatchInfo
from onthedot.operations.filters import parse_moment
from onthedot.operations.flow_list import FlowInfo
from onthedot.web.bodies import ReasonBody
from onthedot.web.endpoints import Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.feature_schemas import BatchDetail, BatchRow, FlowDetail, FlowFailureRow, FlowNode, FlowRow, PartRow
from onthedot.web.rows import utc
from onthedot.web.schemas import Changed, Rows

_MAX_NODES = 200
_MAX_PARTS = 1000


class FlowQuery(Query, frozen=True, kw_only=True):
    """state: of the flows; since: added since then."""

    state: str = ""
    since: str = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


def _since(text: str) -> datetime | None:
    if not text:
        return None
    try:
        return parse_moment(text, datetime.now(UTC))
    except ArgumentError as error:
        raise ApiError("bad_request", str(error), field="since") from None


async def list_flows(call: WebCall[FlowQuery, None]) -> Rows[FlowRow]:
    query = call.query
    found = await call.operations.list_flows(query.limit, query.state or None, _since(query.since))
    return Rows([_flow_row(info) for info in found])


def _flow_row(info: FlowInfo) -> FlowRow:
    return FlowRow(
        id=info.uuid,
        source=info.source,
        state=info.state,
        done=info.progress.done,
        failed=info.progress.failed,
        total=info.progress.total,
        started_at=info.added,
        ended_at=utc(info.ended),
    )


async def show_flow(call: WebCall[Query, None]) -> FlowDetail:
    uuid = await call.operations.tasks.complete_uuid(call.path["id"], "flow")
    found = await call.operations.flow_details(uuid)
    redaction = call.context.redaction
    nodes = [
        FlowNode(
            id=stage.number,
            source=stage.source,
            count=stage.count,
            states=stage.states,
            uuid=stage.uuid,
            remark=redaction.text(stage.remark),
        )
        for stage in found.stages[-_MAX_NODES:]
    ]
    shown = {node.id for node in nodes}
    edges: Sequence[tuple[int, int]] = [
        (before, stage.number) for stage in found.stages for before in stage.after if {before, stage.number} <= shown
    ]
    failures = [
        FlowFailureRow(each.uuid, each.source, each.state, redaction.text(each.error)) for each in found.failures
    ]
    return FlowDetail(
        flow=_flow_row(found.flow),
        states=found.states,
        nodes=nodes,
        edges=edges,
        waits=found.waits,
        blocked_by=found.blocked_by,
        first_failures=failures,
    )


async def cancel_flow(call: WebCall[Query, ReasonBody]) -> Changed:
    uuid = await call.operations.tasks.complete_uuid(call.path["id"], "flow")
    return Changed(await call.operations.flows.cancel(uuid, call.body.reason or f"by {call.user.name}"))


async def retry_flow(call: WebCall[Query, ReasonBody]) -> Changed:
    uuid = await call.operations.tasks.complete_uuid(call.path["id"], "flow")
    return Changed(await call.operations.flows.retry(uuid))


async def list_batches(call: WebCall[FlowQuery, None]) -> Rows[BatchRow]:
    query = call.query
    found = await call.operations.batches.newest(query.limit, state=query.state or None, since=_since(query.since))
    return Rows([_batch_row(info, call.context.redaction) for info in found])


def _batch_row(info: BatchInfo, redaction: Redaction) -> BatchRow:
    return BatchRow(
        id=info.id,
        source=info.task,
        type=info.type,
        state=info.state,
        done=info.progress.done,
        failed=info.progress.failed,
        total=info.progress.total,
        items=info.progress.items,
        count=info.progress.count,
        started_at=info.added,
        ended_at=utc(info.ended),
        degraded=info.degraded,
        reason=redaction.text(info.reason),
    )


async def show_batch(call: WebCall[Query, None]) -> BatchDetail:
    batch = await call.operations.batches.complete_id(call.path["id"])
    found = await call.operations.batch_details(batch)
    redaction = call.context.redaction
    parts = [
        PartRow(part.number, part.uuid, part.items, part.refused, redaction.text(part.error), utc(part.ended))
        for part in found.parts[:_MAX_PARTS]
    ]
    return BatchDetail(batch=_batch_row(found.batch, redaction), parts=parts, waits=found.waits)


async def cancel_batch(call: WebCall[Query, ReasonBody]) -> Changed:
    batch = await call.operations.batches.complete_id(call.path["id"])
    return Changed(await call.operations.batches.cancel(batch, call.body.reason or f"by {call.user.name}"))
