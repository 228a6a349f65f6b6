"""Pause, freeze, degrade and limit sources."""

from __future__ import annotations

from types import EllipsisType
from typing import TypeVar

from msgspec import UNSET, UnsetType

from onthedot.model.batch_names import batch_task
from onthedot.web.bodies import GivenReason, LimitBody, PauseBody, ReasonBody, ResumeBody
from onthedot.web.endpoints import Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.handlers.sources import source_of
from onthedot.web.rows import limit_row
from onthedot.web.schemas import LimitRow, SourceRow

T = TypeVar("T")


async def _changed(call: WebCall[Query, object]) -> SourceRow:
    call.context.shared.forget()
    return await source_of(call, call.path["name"])


async def pause_source(call: WebCall[Query, PauseBody]) -> SourceRow:
    name = call.path["name"]
    await call.operations.pause(name, call.body.key, f"{call.user.name}: {call.body.reason}")
    return await _changed(call)


async def resume_source(call: WebCall[Query, ResumeBody]) -> SourceRow:
    await call.operations.resume(call.path["name"], call.body.key)
    return await _changed(call)


async def freeze_source(call: WebCall[Query, GivenReason]) -> SourceRow:
    await call.operations.freeze(call.path["name"])
    return await _changed(call)


async def thaw_source(call: WebCall[Query, ReasonBody]) -> SourceRow:
    await call.operations.thaw(call.path["name"])
    return await _changed(call)


def _batch_task(call: WebCall[Query, object]) -> str:
    """The task whose batches a source coordinates: only these can be degraded."""
    found = batch_task(call.path["name"])
    if found is None:
        raise ApiError("invalid", f"{call.path['name']} has no batches, and only these can be degraded")
    return found


async def degrade_source(call: WebCall[Query, GivenReason]) -> SourceRow:
    await call.operations.batches.degrade(_batch_task(call))
    return await _changed(call)


async def restore_source(call: WebCall[Query, ReasonBody]) -> SourceRow:
    await call.operations.batches.restore(_batch_task(call))
    return await _changed(call)


async def put_limit(call: WebCall[Query, LimitBody]) -> LimitRow:
    name = call.path["name"]
    body = call.body
    if body.cap is UNSET and body.rate is UNSET and body.burst is UNSET:
        raise ApiError("invalid", "give cap, rate or burst; null is the value of the code")
    info = await call.operations.limits.set(
        name, body.key, cap=_or_kept(body.cap), rate=_or_kept(body.rate), burst=_or_kept(body.burst)
    )
    call.context.shared.forget()
    return limit_row(info, call.context.redaction)


def _or_kept(value: T | UnsetType) -> T | EllipsisType:
    return ... if isinstance(value, UnsetType) else value
