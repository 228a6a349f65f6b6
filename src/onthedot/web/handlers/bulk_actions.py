"""Cancel or retry all tasks that match a filter: a preview with a signed token, then the action."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from onthedot.model.redaction import Redaction
from onthedot.model.task import possible_uuids
from onthedot.operations.audit import AuditRecord
from onthedot.operations.bulk_actions import DEFAULT_RATE, MAX_TASKS, BulkVerb, MatchPosition
from onthedot.operations.task_queries import TaskFilter
from onthedot.operations.time_limit import TimeLimit
from onthedot.web.bodies import Name, Rate, Reason
from onthedot.web.endpoints import Answer, NoBody, Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.feature_schemas import BulkActionDetail, BulkPreview
from onthedot.web.filters import FilterFields, filter_text, read_filter
from onthedot.web.handlers.tasks import task_rows

_TOKEN_AGE = timedelta(minutes=10)
_SAMPLE = 5
_BUDGET = 0.15  # seconds
S = TypeVar("S", bound=Struct)
_MAX_UNCONFIRMED = 100
_MAX_UUIDS = 1000


class PreviewBody(Struct, frozen=True, forbid_unknown_fields=True):
    """filter: one value per filter, or q. cursor: of a preview that has not seen all tasks: continues it."""

    action: Literal["cancel", "retry"]
    filter: FilterFields = FilterFields()
    q: Annotated[str, Meta(max_length=2000)] = ""
    cursor: Annotated[str, Meta(max_length=10_000)] | None = None


class BulkBody(Struct, frozen=True, forbid_unknown_fields=True):
    """token: of a preview; confirm: its count, needed above 100 tasks. Or uuids. rate: tasks per second."""

    token: Annotated[str, Meta(max_length=10_000)] = ""
    uuids: Annotated[Sequence[Name], Meta(max_length=_MAX_UUIDS)] = ()
    confirm: int | None = None
    rate: Rate = DEFAULT_RATE
    reason: Reason = ""


class _Preview(Struct, frozen=True):
    action: BulkVerb
    filter: FilterFields
    count: int
    user: str
    expires: datetime


class _Counted(Struct, frozen=True):
    """A preview so far, for the request that continues it."""

    action: BulkVerb = "retry"
    filter: FilterFields = FilterFields()
    user: str = ""
    count: int = 0
    state: int = 0
    position: str | None = None
    sample: Sequence[str] = ()


async def preview(call: WebCall[Query, PreviewBody]) -> BulkPreview:
    body = call.body
    given = body.filter
    if body.q:
        given = msgspec.structs.replace(given, q=f"{given.q} {body.q}".strip())
    before = _Counted()
    if body.cursor is not None:
        before = _unseal(call, body.cursor, _Counted)
        if (before.action, before.filter, before.user) != (body.action, given, call.user.name):
            raise ApiError("invalid", "this cursor is of another preview", field="cursor")
    begin = MatchPosition(before.state, before.position)
    part = await call.operations.bulk_actions.matching_within(
        TimeLimit(_BUDGET), body.action, _filter(call, given), begin
    )
    count = before.count + len(part.uuids)
    check_count(count)
    example = [*before.sample, *part.uuids][:_SAMPLE]
    expires = datetime.now(UTC) + _TOKEN_AGE
    cursor = None
    token = ""
    if part.rest is None:
        token = _seal(call, _Preview(body.action, given, count, call.user.name, expires))
    else:
        rest = part.rest
        counted = _Counted(body.action, given, call.user.name, count, rest.state, rest.cursor, example)
        cursor = _seal(call, counted)
    rows = await task_rows(call.context)
    sample = await call.operations.tasks.get_many(example)
    return BulkPreview(count, part.rest is None, [rows.row(info) for info in sample], token, expires, cursor)


def _filter(call: WebCall[Query, object], given: FilterFields) -> TaskFilter:
    where = read_filter(given, call.context.redaction)
    if not where:
        raise ApiError("invalid", "a filter is needed: source, state, group, …", field="filter")
    return where


def check_count(count: int) -> None:
    if count > MAX_TASKS:
        raise ApiError("invalid", f"more than {MAX_TASKS:,} tasks match; at most so many are changed at once")


async def _matching(call: WebCall[Query, object], action: BulkVerb, given: FilterFields) -> list[str]:
    uuids = await call.operations.bulk_actions.matching(action, _filter(call, given))
    check_count(len(uuids))
    return uuids


def _seal(call: WebCall[Query, object], value: Struct) -> str:
    """A value that comes back as it was: every web process with these credentials accepts it."""
    text = urlsafe_b64encode(msgspec.json.encode(value)).decode()
    return f"{text}.{hmac.digest(call.context.key, _signed(call, type(value), text), 'sha256').hex()}"


def _unseal(call: WebCall[Query, object], sealed: str, kind: type[S]) -> S:
    text, _, signature = sealed.rpartition(".")
    good = hmac.digest(call.context.key, _signed(call, kind, text), "sha256").hex()
    if not hmac.compare_digest(signature.encode("utf-8", "replace"), good.encode()):
        raise ApiError("invalid", "this is of no preview; ask for a new one", field="token")
    return msgspec.json.decode(urlsafe_b64decode(text), type=kind)


def _signed(call: WebCall[Query, object], kind: type[Struct], text: str) -> bytes:
    """With the app: a preview of one app starts nothing in another."""
    return f"{call.context.app.name}.{kind.__name__}.{text}".encode("utf-8", "replace")


def _read(call: WebCall[Query, BulkBody], action: BulkVerb) -> _Preview:
    found = _unseal(call, call.body.token, _Preview)
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
    return Answer(action_detail(record, call.context.redaction), 202)


async def show_bulk_action(call: WebCall[Query, None]) -> BulkActionDetail:
    return _found(call, await call.operations.audit.get(call.path["id"]))


async def stop_bulk_action(call: WebCall[Query, NoBody]) -> BulkActionDetail:
    return _found(call, await call.operations.bulk_actions.stop(call.path["id"]))


def _found(call: WebCall[Query, object], record: AuditRecord | None) -> BulkActionDetail:
    if record is None:
        raise ApiError("not_found", f"no bulk action {call.path['id']!r}")
    return action_detail(record, call.context.redaction)


def action_detail(record: AuditRecord, redaction: Redaction) -> BulkActionDetail:
    """The progress of a bulk action."""
    entry = record.entry
    return BulkActionDetail(
        id=record.id,
        action=entry.action,
        state=entry.state,
        filter=redaction.text(entry.filter),
        found=entry.found,
        done=entry.done,
        changed=entry.changed,
        rate=entry.rate,
        user=entry.user,
        reason=redaction.text(entry.reason),
        started_at=record.at,
        error=redaction.text(entry.error),
    )
