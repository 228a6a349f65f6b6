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
from onthedot.web.feature_schemas import SignalRow, SignalSent, WaitingRow
from onthedot.web.rows import utc
from onthedot.web.schemas import Rows


class WaitingQuery(Query, frozen=True, kw_only=True):
    """signal: its name; source: of the tasks."""

    signal: str = ""
    source: str = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 200


class SignalQuery(Query, frozen=True, kw_only=True):
    """to: signals that were sent to this task only."""

    to: str = ""


async def list_waiting(call: WebCall[WaitingQuery, None]) -> Rows[WaitingRow]:
    query = call.query
    rows: list[WaitingRow] = []
    async for each in call.operations.signals.waiting(query.signal or None):
        if query.source in ("", each.source):
            rows.append(
                WaitingRow(
                    uuid=each.uuid,
                    short_id=short_id(each.uuid),
                    source=each.source,
                    signals=each.names,
                    since=utc(each.since),
                    until=utc(each.until),
                )
            )
        if len(rows) == query.limit:
            break
    return Rows(rows)


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
