"""Batches: lists of them, and one in full."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from math import sqrt
from typing import Any, NamedTuple

from onthedot.codec.plain_json import json_value
from onthedot.model.redaction import Redaction
from onthedot.model.stored_batches import read_part
from onthedot.operations.batches import BatchInfo, PartInfo, plain_items
from onthedot.web.bodies import ReasonBody
from onthedot.web.endpoints import Query, WebCall
from onthedot.web.flow_schemas import BatchDetail, BatchRow, PartRow, PartStateRow, StreamList
from onthedot.web.handlers.flows import FlowQuery, read_moment
from onthedot.web.handlers.streams import StreamQuery, stream_list
from onthedot.web.rows import MAX_PREVIEW, json_text, shortened, state_name, utc
from onthedot.web.schemas import Changed, Rows

_MAX_PARTS = 1000
_LIVING = ("scheduled", "ready", "running", "waiting")


async def list_batches(call: WebCall[FlowQuery, None]) -> Rows[BatchRow]:
    query = call.query
    found = await call.operations.batches.newest(
        query.limit,
        query.source or None,
        query.state or None,
        read_moment(query.since, "since"),
        read_moment(query.until, "until"),
    )
    return Rows([await _batch_row(call, info) for info in found])


async def _batch_row(call: WebCall[Any, Any], info: BatchInfo) -> BatchRow:
    return BatchRow(
        id=info.id,
        source=info.task,
        type=info.type,
        state=state_name(info.state),
        done=info.progress.done,
        failed=info.progress.failed,
        total=info.progress.total,
        items=info.progress.items,
        count=info.progress.count,
        started_at=info.added,
        ended_at=utc(info.ended),
        degraded=info.degraded,
        mode=await call.operations.batches.recent_mode(info.task),
        reason=call.context.redaction.text(info.reason),
    )


async def show_batch(call: WebCall[Query, None]) -> BatchDetail:
    batch = await call.operations.batches.complete_id(call.path["id"])
    found = await call.context.shared.get(f"batch {batch}", 0.0, lambda: call.operations.batch_details(batch))
    redaction = call.context.redaction
    parts = [_part_row(part, redaction) for part in found.parts[:_MAX_PARTS]]
    refused: Counter[str] = Counter()
    for part in found.parts:
        refused.update(part.refused)
    has_ended = found.batch.ended is not None
    end = None if has_ended else estimated_end(found.batch, datetime.now(UTC))
    return BatchDetail(
        batch=await _batch_row(call, found.batch),
        parts=parts,
        waits=found.waits,
        alive=sum(state.state in _LIVING for state in found.states) + (not has_ended),
        first_at=min((part.ended for part in found.parts if part.items and part.ended is not None), default=None),
        eta=None if end is None else end.at,
        eta_error_ms=None if end is None else round(end.error / timedelta(milliseconds=1)),
        deadline=found.deadline,
        states=[PartStateRow(each.index, each.uuid, state_name(each.state)) for each in found.states[:_MAX_PARTS]],
        refused=refused,
        topped_up=found.topped_up,
        retries=found.retries,
        newest=[_item_text(item, redaction) for item in found.newest],
    )


def _part_row(part: PartInfo, redaction: Redaction) -> PartRow:
    return PartRow(
        part.number,
        part.uuid,
        part.items,
        part.refused,
        redaction.text(part.error),
        utc(part.ended),
        part.ms,
        part.worker,
    )


class EstimatedEnd(NamedTuple):
    """When the last part may end. error: the standard error of that."""

    at: datetime
    error: timedelta


def estimated_end(batch: BatchInfo, now: datetime) -> EstimatedEnd | None:
    """None before the first part has ended. The ends of n parts give a speed with a relative error of 1/√n."""
    progress = batch.progress
    if not progress.done or progress.done >= progress.total:
        return None
    left = (now - batch.added) / progress.done * (progress.total - progress.done)
    return EstimatedEnd(now + left, left / sqrt(progress.done))


def _item_text(item: object, redaction: Redaction) -> str:
    """Text as it is, any other value as JSON."""
    shown = redaction.value(json_value(item)).value
    return shortened(shown if isinstance(shown, str) else json_text(shown), MAX_PREVIEW)


async def list_parts(call: WebCall[StreamQuery, None]) -> StreamList:
    batch = await call.operations.batches.complete_id(call.path["id"])
    record = await call.operations.batches.record(batch)
    redaction = call.context.redaction

    def shown(data: bytes) -> object:
        part = read_part(data)
        error = None if part.error is None else redaction.text(f"{part.error.type}: {part.error.message}")
        items = redaction.value(json_value(plain_items(part))).value
        return {"index": part.index, "items": items, "refused": part.refused, "error": error}

    return await stream_list(call, batch, "part", shown, has_ended=record.history.ended is not None)


async def cancel_batch(call: WebCall[Query, ReasonBody]) -> Changed:
    batch = await call.operations.batches.complete_id(call.path["id"])
    return Changed(await call.operations.batches.cancel(batch, call.body.reason or f"by {call.user.name}"))
