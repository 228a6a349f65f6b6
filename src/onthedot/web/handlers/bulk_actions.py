"""Cancel or retry all tasks that match a filter: a preview with a signed token, then the action."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from onthedot.errors import ArgumentError
from onthedot.model.task import possible_uuids
from onthedot.operations.audit import AuditRecord
from onthedot.operations.bulk_actions import DEFAULT_RATE, MAX_TASKS, BulkVerb
from onthedot.web.bodies import Name, Reason
from onthedot.web.endpoints import Answer, NoBody, Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.feature_schemas import BulkActionDetail, BulkPreview
from onthedot.web.filters import FilterFields, filter_text, read_filter
from onthedot.web.handlers.tasks import task_rows

_TOKEN_AGE = timedelta(minutes=10)
_SAMPLE = 5
_MAX_UNCONFIRMED = 100
_MAX_UUIDS = 1000


class PreviewBody(Struct, frozen=True, forbid_unknown_fields=True):
    """filter: one value per filter, or q."""

    action: Literal["cancel", "retry"]
    filter: FilterFields = FilterFields()
    q: Annotated[str, Meta(max_length=2000)] = ""


class BulkBody(Struct, frozen=True, forbid_unknown_fields=True):
    """token: of a preview; confirm: its count, needed above 100 tasks. Or uuids. rate: tasks per second."""

    token: Annotated[str, Meta(max_length=10_000)] = ""
    uuids: Annotated[Sequence[Name], Meta(max_length=_MAX_UUIDS)] = ()
    confirm: int | None = None
    rate: Annotated[float, Meta(gt=0, le=10_000)] = DEFAULT_RATE
    reason: Reason = ""


class _Preview(Struct, frozen=True):
    action: BulkVerb
    filter: FilterFields
    count: int
    user: str
    expires: datetime


async def preview(call: WebCall[Query, PreviewBody]) -> BulkPreview:
    body = call.body
    given = body.filter
    if body.q:
        given = msgspec.structs.replace(given, q=f"{given.q} {body.q}".strip())
    uuids = await _matching(call, body.action, given)
    expires = datetime.now(UTC) + _TOKEN_AGE
    signed = _Preview(body.action, given, len(uuids), call.user.name, expires)
    rows = await task_rows(call.context)
    sample = await call.operations.tasks.get_many(uuids[:_SAMPLE])
    return BulkPreview(len(uuids), True, [rows.row(info) for info in sample], _sign(call, signed), expires)


async def _matching(call: WebCall[Query, object], action: BulkVerb, given: FilterFields) -> list[str]:
    where = read_filter(given, call.context.redaction)
    if not where:
        raise ApiError("invalid", "a filter is needed: source, state, group, …", field="filter")
    try:
        uuids = await call.operations.bulk_actions.matching(action, where)
    except ArgumentError as error:
        raise ApiError("invalid", str(error), field="filter") from None
    if len(uuids) > MAX_TASKS:
        raise ApiError("invalid", f"{len(uuids):,} tasks match; at most {MAX_TASKS:,} are changed at once")
    return uuids


def _sign(call: WebCall[Query, object], signed: _Preview) -> str:
    text = urlsafe_b64encode(msgspec.json.encode(signed)).decode()
    return f"{text}.{hmac.digest(call.context.key, text.encode(), 'sha256').hex()}"


def _read(call: WebCall[Query, BulkBody], action: BulkVerb) -> _Preview:
    text, _, signature = call.body.token.rpartition(".")
    good = hmac.digest(call.context.key, text.encode("utf-8", "replace"), "sha256").hex()
    if not hmac.compare_digest(signature.encode("utf-8", "replace"), good.encode()):
        raise ApiError("invalid", "this token is of no preview; ask for a new one", field="token")
    found = msgspec.json.decode(urlsafe_b64decode(text), type=_Preview)
    if found.action != action or found.user != call.user.name:
        raise ApiError("invalid", "this token is of another action or user", field="token")
    if found.expires < datetime.now(UTC):
        raise ApiError("conflict", "this preview is older than 10 minutes; ask for a new one")
    return found


async def cancel_tasks(call: WebCall[Query, BulkBody]) -> Answer:
    return await _start(call, "cancel")


async def retry_tasks(call: WebCall[Query, BulkBody]) -> Answer:
    return await _start(call, "retry")


async def _start(call: WebCall[Query, BulkBody], action: BulkVerb) -> Answer:
    body = call.body
    if bool(body.token) == bool(body.uuids):
        raise ApiError("invalid", "give the token of a preview, or uuids")
    uuids = [*possible_uuids(body.uuids)]
    text = f"{len(uuids)} uuids"
    if body.token:
        previewed = _read(call, action)
        if previewed.count > _MAX_UNCONFIRMED and body.confirm != previewed.count:
            raise ApiError("invalid", f"confirm the number of tasks, {previewed.count}", field="confirm")
        uuids = await _matching(call, action, previewed.filter)
        if len(uuids) > previewed.count * 1.1 + 10:
            raise ApiError("conflict", f"{len(uuids):,} tasks match by now; ask for a new preview")
        text = filter_text(previewed.filter)
    record = await call.operations.bulk_actions.start(call.actor, action, uuids, text, body.rate, body.reason)
    return Answer(action_detail(record), 202)


async def show_bulk_action(call: WebCall[Query, None]) -> BulkActionDetail:
    return _found(call, await call.operations.audit.get(call.path["id"]))


async def stop_bulk_action(call: WebCall[Query, NoBody]) -> BulkActionDetail:
    return _found(call, await call.operations.bulk_actions.stop(call.path["id"]))


def _found(call: WebCall[Query, object], record: AuditRecord | None) -> BulkActionDetail:
    if record is None:
        raise ApiError("not_found", f"no bulk action {call.path['id']!r}")
    return action_detail(record)


def action_detail(record: AuditRecord) -> BulkActionDetail:
    """The progress of a bulk action."""
    entry = record.entry
    return BulkActionDetail(
        id=record.id,
        action=entry.action,
        state=entry.state,
        filter=entry.filter,
        found=entry.found,
        done=entry.done,
        changed=entry.changed,
        rate=entry.rate,
        user=entry.user,
        reason=entry.reason,
        started_at=record.at,
        error=entry.error,
    )
