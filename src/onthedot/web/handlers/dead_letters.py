"""Dead letters: events that an agent could not handle, and their replays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta, Struct

from onthedot.clock.epoch import from_optional_ms
from onthedot.errors import ArgumentError, StoreRefused
from onthedot.events.bus import BusError
from onthedot.events.dead_letter_queue import DeadLetterQueue, FoundLetter, LetterFilter, NewestLetters
from onthedot.operations.bulk_actions import DEFAULT_RATE
from onthedot.operations.filters import parse_moment
from onthedot.web.bodies import Name, Rate, Reason
from onthedot.web.endpoints import Answer, Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.event_schemas import DeadLetterDetail, DeadLetterList, DeadLetterRow
from onthedot.web.handlers.bulk_actions import action_detail
from onthedot.web.handlers.events import outbox_status
from onthedot.web.payloads import payload_text
from onthedot.web.rows import utc
from onthedot.web.schemas import ErrorText

_AGE = 2.0  # seconds
_REST = 20  # times as long as a list took: reading all dead letters
_MAX_IDS = 1000
_MAX_MESSAGE = 2000  # characters in a list
_MAX_TRACEBACK = 65_536  # characters


class DeadLetterQuery(Query, frozen=True, kw_only=True):
    """topic: that the event came from; error: a part of its type or message; since: a time ago or a moment."""

    topic: str = ""
    agent: str = ""
    error: Annotated[str, Meta(max_length=500)] = ""
    since: str = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class ReplayBody(Struct, frozen=True, forbid_unknown_fields=True):
    """ids: of dead letters; again: also those that were replayed before; rate: events per second."""

    ids: Annotated[Sequence[Name], Meta(min_length=1, max_length=_MAX_IDS)]
    again: bool = False
    rate: Rate = DEFAULT_RATE
    reason: Reason = ""


@asynccontextmanager
async def _queue(call: WebCall[Query, object]) -> AsyncGenerator[DeadLetterQueue, None]:
    await outbox_status(call)
    if call.context.dead_letters is None:
        raise ApiError("not_available", "this server does not read the bus of the app")
    try:
        async with call.context.dead_letters() as letters:
            yield letters
    except StoreRefused as error:  # the relays send to another bus
        raise ApiError("not_available", str(error)) from None
    except BusError as error:
        raise ApiError("bus_unavailable", str(error)) from None


async def list_dead_letters(call: WebCall[DeadLetterQuery, None]) -> DeadLetterList:
    query = call.query
    since = None
    if query.since:
        try:
            since = parse_moment(query.since, datetime.now(UTC)).timestamp() * 1000
        except ArgumentError as error:
            raise ApiError("bad_request", str(error), field="since") from None
    wanted = LetterFilter(query.topic or None, (), since, query.error or None, query.agent or None)

    async def read() -> NewestLetters:
        async with _queue(call) as letters:
            return await letters.newest(wanted, query.limit)

    async def read_rows() -> DeadLetterList:  # without payloads, since they are kept for a while
        found = await call.context.letter_scans.run(read)
        return DeadLetterList([_row(each, call) for each in found.letters], found.others)

    key = f"dlt {query.topic} {query.agent} {query.error} {query.since} {query.limit}"
    return await call.context.shared.get(key, _AGE, read_rows, rest=_REST)


def _row(found: FoundLetter, call: WebCall[Query, object]) -> DeadLetterRow:
    letter = found.letter
    redaction = call.context.redaction
    return DeadLetterRow(
        id=found.id,
        event_id=letter.event_id,
        at=utc(from_optional_ms(found.at)),
        topic=found.topic,
        agent=letter.agent,
        type=letter.type,
        correlation_id=letter.correlation_id,
        error=ErrorText(letter.error_type, redaction.beginning(letter.error_message, _MAX_MESSAGE)),
        attempts=letter.attempts,
        replay=letter.replay,
        task=letter.task,
    )


async def show_dead_letter(call: WebCall[Query, None]) -> DeadLetterDetail:

    async def read() -> list[FoundLetter]:
        async with _queue(call) as letters:
            return await letters.named([call.path["id"]])

    named = await call.context.letter_scans.run(read, rested=False)
    if not named:
        raise ApiError("not_found", f"there is no dead letter {call.path['id']!r}")
    (found,) = named
    message = found.record.message
    payload = await asyncio.to_thread(payload_text, message.value, message.headers, call.context.redaction)
    return DeadLetterDetail(
        _row(found, call), payload, call.context.redaction.beginning(found.letter.traceback, _MAX_TRACEBACK)
    )


async def replay_dead_letters(call: WebCall[Query, ReplayBody]) -> Answer:
    body = call.body
    async with _queue(call) as letters:
        found = {each.id: each for each in await letters.named(body.ids)}

    async def publish(ids: Sequence[str]) -> int:
        result = await letters.publish([found[each] for each in ids], again=body.again)
        return len(result.replayed)

    names = f"{len(found)} of {len(body.ids)} dead letters"
    record = await call.operations.bulk_actions.start_steps(
        call.actor, "replay dead letters", list(found), names, body.rate, body.reason, publish
    )
    call.context.shared.forget()
    call.context.letter_scans.end_rest()
    return Answer(action_detail(record, call.context.redaction), 202)
