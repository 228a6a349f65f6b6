"""Agents, and the resume handles that wait for events."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from onthedot.clock.epoch import from_ms, from_optional_ms
from onthedot.model.redaction import Redaction
from onthedot.operations.agents import AgentInfo
from onthedot.operations.outbox import HandleInfo
from onthedot.web.endpoints import Query, WebCall
from onthedot.web.event_schemas import AgentList, AgentRow, ArrivalRow, ExpectedEvents, HandleRow
from onthedot.web.handlers.events import outbox_status
from onthedot.web.rows import pause_row, rates_row, utc
from onthedot.web.schemas import Rows, SourceRates

_AGE = 2.0  # seconds


class HandleQuery(Query, frozen=True, kw_only=True):
    """correlation: the id that events carry; status: pending, complete, resumed or expired."""

    correlation: Annotated[str, Meta(min_length=1, max_length=500)]
    status: str = ""


async def list_agents(call: WebCall[Query, None]) -> AgentList:
    outbox = await outbox_status(call)
    found = await call.context.shared.get("agents", _AGE, call.operations.agents)
    live = await call.context.live()
    rows: list[AgentRow] = []
    for each in found:
        rates = live.by_source.get(each.source.name)
        rows.append(_row(each, None if rates is None else rates_row(rates), call.context.redaction))
    return AgentList(rows, {str(status): number for status, number in outbox.handles.items()})


def _row(info: AgentInfo, rates: SourceRates | None, redaction: Redaction) -> AgentRow:
    source = info.source
    return AgentRow(
        agent=info.id,
        source=source.name,
        in_flight=info.in_flight,
        running=source.running,
        lag=info.lag,
        members=info.members,
        rates=rates,
        done=info.done,
        failed=info.failed,
        retried=info.retried,
        workers=[each.id for each in info.workers],
        paused=None if source.paused is None else pause_row(source.paused, redaction),
    )


async def list_handles(call: WebCall[HandleQuery, None]) -> Rows[HandleRow]:
    await outbox_status(call)
    found = await call.operations.outbox.find_handles(call.query.correlation)
    return Rows([_handle_row(each) for each in found if call.query.status in ("", each.handle.status)])


def _handle_row(info: HandleInfo) -> HandleRow:
    handle = info.handle
    return HandleRow(
        id=handle.id,
        correlation_id=handle.correlation_id,
        status=handle.status,
        expected=[ExpectedEvents(types, number) for types, number in handle.expected],
        received=info.received,
        total=sum(number for _, number in handle.expected),
        resumes=handle.target,
        created_at=from_ms(handle.created),
        expires_at=from_ms(handle.expires_at),
        ended_at=utc(from_optional_ms(handle.ended)),
        arrived=[ArrivalRow(each.event_id, each.type, utc(from_optional_ms(each.at))) for each in info.arrivals],
    )
