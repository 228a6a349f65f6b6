"""Tasks that wait for signals, and the signals themselves."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from onthedot.codec.plain_json import json_value
from onthedot.errors import ArgumentError, DeclarationError
from onthedot.flows.signals import KEEP, check_signal_name, new_signal
from onthedot.operations.humanize import short_id
from onthedot.web.bodies import SignalBody
from onthedot.web.endpoints import Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.flow_schemas import AwaitedSignalRow, SignalRow, SignalSent, WaitingList, WaitingRow
from onthedot.web.rows import MAX_PREVIEW, shortened, utc
from onthedot.web.schemas import Rows

WAITING_AGE = 0.5  # seconds
_REST = 5  # times as long as a list took: it can look at 20,000 tasks


class WaitingQuery(Query, frozen=True, kw_only=True):
    """signal: its name; source: of the tasks; flow: its whole id."""

    signal: str = ""
    source: str = ""
    flow: str = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 200


class SignalQuery(Query, frozen=True, kw_only=True):
    """to: signals that were sent to this task only."""

    to: str = ""


async def list_waiting(call: WebCall[WaitingQuery, None]) -> WaitingList:
    query = call.query
    name = f"waiting {query.signal} {query.source} {query.flow} {query.limit}"
    return await call.context.shared.get(name, WAITING_AGE, lambda: _find_waiting(call), rest=_REST)


async def _find_waiting(call: WebCall[WaitingQuery, None]) -> WaitingList:
    query = call.query
    signals = call.operations.signals
    tasks, has_more = await signals.waiting_tasks(
        query.limit, query.signal or None, query.flow or None, query.source or None
    )
    redaction = call.context.redaction
    rows = [
        WaitingRow(
            uuid=each.uuid,
            short_id=short_id(each.uuid),
            source=each.source,
            label=shortened(redaction.text(each.label), MAX_PREVIEW),
            signals=each.names,
            flow=each.flow,
            needed=each.needed,
            reached=each.reached,
            since=utc(each.since),
            until=utc(each.until),
        )
        for each in tasks
    ]
    has_filter = bool(query.signal or query.source or query.flow)
    awaited = [
        AwaitedSignalRow(each.name, each.waiting, each.kept, utc(each.oldest))
        for each in await signals.awaited(tasks, others=not has_filter)
    ]
    return WaitingList(rows, has_more, awaited)


def _checked_name(name: str) -> str:
    try:
        return check_signal_name(name)
    except ArgumentError as error:
        raise ApiError("invalid", str(error), field="name") from None


async def list_signals(call: WebCall[SignalQuery, None]) -> Rows[SignalRow]:
    name = _checked_name(call.path["name"])
    to = None
    if call.query.to:
        to = await call.operations.tasks.complete_uuid(call.query.to)
    redaction = call.context.redaction
    return Rows(
        [
            SignalRow(name=each.name, id=each.id, at=each.at, payload=redaction.value(json_value(each.payload)).value)
            for each in await call.operations.signals.kept(name, to)
        ]
    )


async def send_signal(call: WebCall[Query, SignalBody]) -> SignalSent:
    name = _checked_name(call.path["name"])
    body = call.body
    to = None
    if body.to is not None:
        to = await call.operations.tasks.complete_uuid(body.to)
    try:
        signal = new_signal(name, body.payload, body.id, KEEP if body.keep is None else body.keep, to)
    except (ArgumentError, DeclarationError) as error:
        raise ApiError("invalid", str(error)) from None
    return SignalSent(await call.operations.signals.send(signal))
