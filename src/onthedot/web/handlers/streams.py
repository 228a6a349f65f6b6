"""The items of a stream, page by page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from msgspec import Meta

from onthedot.codec.body import Undecodable
from onthedot.codec.plain_json import json_value
from onthedot.codec.untyped import decode_untyped_result
from onthedot.errors import ArgumentError
from onthedot.web.endpoints import Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.flow_schemas import StreamEntryRow, StreamList
from onthedot.web.handlers.tasks import whole_uuid
from onthedot.web.rows import json_text


class StreamQuery(Query, frozen=True, kw_only=True):
    """after: the cursor of an entry."""

    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


async def list_items(call: WebCall[StreamQuery, None]) -> StreamList:
    info = await call.operations.get(await whole_uuid(call))
    redaction = call.context.redaction

    def shown(data: bytes) -> object:
        return redaction.value(json_value(decode_untyped_result(data))).value

    return await stream_list(call, info.uuid, "item", shown, has_ended=info.state.ended)


async def stream_list(
    call: WebCall[StreamQuery, None],
    uuid: str,
    kind: Literal["item", "part"],
    shown: Callable[[bytes], object],
    *,
    has_ended: bool,
) -> StreamList:
    """shown: of a stored entry. has_ended: read before the entries, so that the last one is not missed."""
    query = call.query
    try:
        found = await call.operations.stream_after(uuid, query.after, query.limit)
    except ArgumentError as error:
        raise ApiError("bad_request", str(error), field="after") from None
    rows: list[StreamEntryRow] = []
    for cursor, data in found.entries:
        try:
            value = shown(data)
        except Undecodable as error:
            value = f"<{error}>"
        rows.append(StreamEntryRow(str(cursor), cursor.number, kind, value, json_text(value)))
    last = rows[-1].cursor if rows else query.after
    return StreamList(rows, last, found.has_restarted, has_ended and len(rows) < query.limit)
