"""The outbox: what is unsent, and failed events."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from msgspec import Meta

from onthedot.events.header_json import decode_headers
from onthedot.operations.outbox import EventInfo, OutboxStatus, event_info
from onthedot.web.bodies import GivenReason, ReasonBody, TopicPauseBody, TopicResumeBody
from onthedot.web.endpoints import Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.event_schemas import EventDetail
from onthedot.web.feature_schemas import EventList, EventRow, GroupRow, OutboxDetail, RelayRow, TopicRow
from onthedot.web.payloads import payload_text
from onthedot.web.rows import pause_row, utc
from onthedot.web.schemas import Changed

_MAX_FAILED = 50


class EventQuery(Query, frozen=True, kw_only=True):
    """Events in the order of publishing. correlation: their correlation id."""

    status: Literal["", "pending", "sent", "failed", "discarded"] = ""
    topic: str = ""
    correlation: str = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: Annotated[str, Meta(pattern="^[0-9]{0,18}$")] = ""


async def outbox_status(call: WebCall[Query, object]) -> OutboxStatus:
    """ApiError: the store has no outbox, or the app uses another one: its own would show, and take, events in vain."""
    if call.context.app.is_outbox_apart:
        raise ApiError(
            "not_available",
            "the events of this app are in another database, that of Events(outbox=…), which this server does not "
            "read: onthedot outbox status --store URL shows it",
        )
    found = await call.operations.outbox.find_status()
    if found is None:
        raise ApiError("not_available", "this store keeps no events: SQLite and Postgres do")
    return found


async def show_outbox(call: WebCall[Query, None]) -> OutboxDetail:
    found = await outbox_status(call)
    redaction = call.context.redaction
    failed = await call.operations.outbox.events(status="failed", limit=_MAX_FAILED) if found.failed else ()
    return OutboxDetail(
        pending=found.pending,
        failed=found.failed,
        topics=[
            TopicRow(
                topic=each.topic,
                pending=each.pending,
                oldest=utc(each.oldest),
                sent_per_minute=each.sent_per_minute,
                failed=each.failed,
                blocked_keys=each.blocked_keys,
                error=redaction.text(each.error),
                paused=None if each.paused is None else pause_row(each.paused, redaction),
            )
            for each in found.topics
        ],
        relays=[
            RelayRow(
                id=each.id, host=each.host, pid=each.pid, since=utc(each.started), bus=each.bus, buckets=each.buckets
            )
            for each in found.relays
        ],
        groups=[GroupRow(each.group, each.lag, each.members) for each in found.groups],
        paused=None if found.paused is None else pause_row(found.paused, redaction),
        handles={str(status): number for status, number in found.handles.items()},
        failed_events=[_event_row(each, call) for each in failed],
    )


async def list_events(call: WebCall[EventQuery, None]) -> EventList:
    await outbox_status(call)
    query = call.query
    found = await call.operations.outbox.events(
        status=query.status or None,
        topic=query.topic or None,
        correlation_id=query.correlation or None,
        after=int(query.cursor or 0),
        limit=query.limit,
    )
    cursor = str(found[-1].number) if len(found) == query.limit else None
    return EventList([_event_row(each, call) for each in found], cursor)


async def show_event(call: WebCall[Query, None]) -> EventDetail:
    await outbox_status(call)
    found = await call.operations.outbox.stored(call.path["id"])
    if found is None:
        raise ApiError("not_found", f"there is no event {call.path['id']!r}")
    event = found.event
    value = event.raw if event.raw is not None else event.payload or b"null"
    payload = await asyncio.to_thread(
        payload_text, value, decode_headers(event.headers).headers, call.context.redaction
    )
    return EventDetail(_event_row(event_info(found), call), payload)


def _event_row(info: EventInfo, call: WebCall[Query, object]) -> EventRow:
    return EventRow(
        id=info.id,
        number=info.number,
        topic=info.topic,
        key=info.key,
        type=info.type,
        status=info.status,
        occurred_at=info.occurred_at,
        sent_at=utc(info.sent_at),
        correlation_id=info.correlation_id,
        attempts=info.attempts,
        error=call.context.redaction.text(info.error),
    )


async def retry_event(call: WebCall[Query, ReasonBody]) -> Changed:
    await outbox_status(call)
    return Changed(len(await call.operations.outbox.retry(call.path["id"])))


async def discard_event(call: WebCall[Query, GivenReason]) -> Changed:
    await outbox_status(call)
    reason = f"{call.user.name}: {call.body.reason}"
    return Changed(len(await call.operations.outbox.discard(call.path["id"], reason=reason)))


async def pause_outbox(call: WebCall[Query, TopicPauseBody]) -> Changed:
    await outbox_status(call)
    was_paused = await call.operations.outbox.pause(call.body.topic, f"{call.user.name}: {call.body.reason}")
    return Changed(int(not was_paused))


async def resume_outbox(call: WebCall[Query, TopicResumeBody]) -> Changed:
    await outbox_status(call)
    return Changed(int(await call.operations.outbox.resume(call.body.topic)))
