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


def _shown(name: str, key: str | None) -> str:
    return name if key is None else f"{name} for {key}"


async def pause_source(call: WebCall[Query, PauseBody]) -> SourceRow:
    name = call.path["name"]
    async with call.audited("pause", _shown(name, call.body.key), call.body.reason) as note:
        await call.operations.pause(name, call.body.key, f"{call.user.name}: {call.body.reason}")
        note.changed = 1
    return await _changed(call)


async def resume_source(call: WebCall[Query, ResumeBody]) -> SourceRow:
    name = call.path["name"]
    async with call.audited("resume", _shown(name, call.body.key), call.body.reason) as note:
        await call.operations.resume(name, call.body.key)
        note.changed = 1
    return await _changed(call)


async def freeze_source(call: WebCall[Query, GivenReason]) -> SourceRow:
    async with call.audited("freeze", call.path["name"], call.body.reason) as note:
        await call.operations.freeze(call.path["name"])
        note.changed = 1
    return await _changed(call)


async def thaw_source(call: WebCall[Query, ReasonBody]) -> SourceRow:
    async with call.audited("thaw", call.path["name"], call.body.reason) as note:
        await call.operations.thaw(call.path["name"])
        note.changed = 1
    return await _changed(call)


def _batch_task(call: WebCall[Query, object]) -> str:
    """The task whose batches a source coordinates: only these can be degraded."""
    found = batch_task(call.path["name"])
    if found is None:
        raise ApiError("invalid", f"{call.path['name']} has no batches, and only these can be degraded")
    return found


async def degrade_source(call: WebCall[Query, GivenReason]) -> SourceRow:
    task = _batch_task(call)
    async with call.audited("degrade", task, call.body.reason) as note:
        await call.operations.batches.degrade(task)
        note.changed = 1
    return await _changed(call)


async def restore_source(call: WebCall[Query, ReasonBody]) -> SourceRow:
    task = _batch_task(call)
    async with call.audited("restore", task, call.body.reason) as note:
        await call.operations.batches.restore(task)
        note.changed = 1
    return await _changed(call)


async def put_limit(call: WebCall[Query, LimitBody]) -> LimitRow:
    name = call.path["name"]
    body = call.body
    if body.cap is UNSET and body.rate is UNSET and body.burst is UNSET:
        raise ApiError("invalid", "give cap, rate or burst; null is the value of the code")
    async with call.audited("limit", _shown(name, body.key), body.reason) as note:
        info = await call.operations.limits.set(
            name, body.key, cap=_or_kept(body.cap), rate=_or_kept(body.rate), burst=_or_kept(body.burst)
        )
        note.changed = 1
    call.context.shared.forget()
    return limit_row(info)


def _or_kept(value: T | UnsetType) -> T | EllipsisType:
    return ... if isinstance(value, UnsetType) else value
