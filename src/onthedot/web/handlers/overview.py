"""The state of an app at a glance, and of this process."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from onthedot.model.redaction import Redaction
from onthedot.model.task import TaskState
from onthedot.operations import Operations
from onthedot.operations.attention import AttentionItem
from onthedot.operations.humanize import short_id
from onthedot.operations.live_view import LiveSnapshot
from onthedot.operations.series import SeriesData
from onthedot.operations.sources import SourceInfo
from onthedot.operations.workers import WorkerInfo
from onthedot.web.context import WebContext
from onthedot.web.endpoints import Query, WebCall
from onthedot.web.handlers.series import read_series, release_marks, series_detail
from onthedot.web.handlers.sources import oldest_ready, source_rows, worst_first
from onthedot.web.rows import rates_row, utc
from onthedot.web.schemas import (
    AttentionAction,
    AttentionList,
    AttentionRow,
    HolderRow,
    Overview,
    OverviewFigures,
    PausedSource,
    ReleaseMark,
    StateCount,
    StatusDetail,
    StoreStatus,
)

_MAX_SOURCES = 50
_MAX_ATTENTION = 5
_SERIES = ("done", "failed", "retried", "depth", "latency_p50", "latency_p95", "lateness_p99")
ATTENTION_AGE = 2.0  # seconds
_FLOWS_AGE = 2.0  # seconds
_STATUS_AGE = 1.0  # seconds
_MAX_PAUSED = 20


class OverviewQuery(Query, frozen=True, kw_only=True):
    """since: of the series; source: only of this one."""

    since: str = "1h"
    source: str = ""


async def show_overview(call: WebCall[OverviewQuery, None]) -> Overview:
    live = await call.context.live()
    sources = [each for each in live.sources if call.query.source in ("", each.name)]
    counts = {state.value: 0 for state in TaskState}
    for source in sources:
        for state in counts:
            counts[state] += getattr(source, state)
        counts["ready"] += source.parked
    attention, rows, oldest, (series, marks), flows = await asyncio.gather(
        read_attention(call.context, live, call.query.source),
        source_rows(call, live),
        oldest_ready(call, live),
        _series_with_marks(call),
        call.context.shared.get("alive flows", _FLOWS_AGE, call.operations.flows.count_alive),
    )
    rows = [row for row in rows if call.query.source in ("", row.name)]
    rates = live.by_source.get(call.query.source, live.rates)
    return Overview(
        now=live.at,
        counts=counts,
        rates=rates_row(rates),
        figures=OverviewFigures(
            latency_p50=_newest(series, "latency_p50"),
            latency_p95=_newest(series, "latency_p95"),
            lateness_p99=_newest(series, "lateness_p99"),
            oldest_ready=oldest.by_source.get(call.query.source) if call.query.source else oldest.of_all,
        ),
        history=live.history,
        attention=attention.attention,
        more_attention=attention.more_attention,
        sources=sorted(rows, key=worst_first)[:_MAX_SOURCES],
        series=series_detail(series),
        releases=releases_of(live.workers),
        marks=marks,
        flows=StateCount(*flows),
    )


async def _series_with_marks(call: WebCall[OverviewQuery, None]) -> tuple[SeriesData, list[ReleaseMark]]:
    series = await read_series(call, _SERIES, call.query.source, call.query.since)
    return series, await release_marks(call, series)


async def read_attention(context: WebContext, live: LiveSnapshot, source: str = "") -> AttentionList:
    """The worst conditions, as they were at most two seconds ago, for the overview and its stream."""
    operations = context.operations
    items = await context.shared.get("attention", ATTENTION_AGE, lambda: operations.attention(live.state))
    items = [item for item in items if source in ("", item.source)]
    rows = [_attention_row(item, context.redaction) for item in items[:_MAX_ATTENTION]]
    return AttentionList(rows, max(0, len(items) - _MAX_ATTENTION))


def _newest(series: SeriesData, name: str) -> float | None:
    """In seconds."""
    return next((value / 1000 for value in reversed(series.series[name]) if value is not None), None)


def releases_of(workers: Iterable[WorkerInfo]) -> list[str]:
    return sorted({each.release for each in workers if each.release})


def _attention_row(item: AttentionItem, redaction: Redaction) -> AttentionRow:
    action = None
    if item.action is not None:
        label, method, path = item.action
        action = AttentionAction(label, method, path, item.body or None)
    return AttentionRow(
        kind=item.kind,
        severity=item.severity,
        text=redaction.text(item.text),
        size=item.size,
        since=utc(item.since),
        source=item.source,
        group=item.group,
        action=action,
        holders=[
            HolderRow(uuid=each.uuid, short_id=short_id(each.uuid), worker=each.worker, started_at=utc(each.started))
            for each in item.holders
        ],
        last=utc(item.last),
        trend=item.trend,
        release=item.release,
    )


async def show_status(call: WebCall[Query, None]) -> StatusDetail:
    context = call.context
    operations = call.operations
    live = await context.live()
    store = await context.shared.get("status", _STATUS_AGE, lambda: _store_status(operations, context.app.store))
    return StatusDetail(
        app=context.app.name,
        apps=await context.app_names(),
        environment=context.settings.environment,
        version=context.app.version,
        releases=releases_of(live.workers),
        workers_by_release=Counter(each.release for each in live.workers if each.release),
        store=store,
        workers=len(live.workers),
        slots=sum(slots for each in live.workers for slots in each.concurrency.values()),
        running=sum(each.running for each in live.sources),
        failed=sum(each.failed for each in live.sources),
        user=call.user.name,
        role=call.user.role,
        features=context.features,
        trace_url=context.settings.trace_url,
        now=datetime.now(UTC),
        paused=_paused(live.sources, context.redaction),
    )


def _paused(sources: Iterable[SourceInfo], redaction: Redaction) -> list[PausedSource]:
    """The newest pauses."""
    found = [
        PausedSource(source=each.name, key=pause.key, reason=redaction.text(pause.reason), since=utc(pause.since))
        for each in sources
        for pause in (*filter(None, [each.paused]), *each.paused_keys)
    ]
    return sorted(found, key=lambda pause: -pause.since.timestamp() if pause.since else 0.0)[:_MAX_PAUSED]


async def _store_status(operations: Operations, kind: str) -> StoreStatus:
    loop = asyncio.get_running_loop()
    began = loop.time()
    server = await operations.server()
    if server is None:
        await operations.limits.list()
    round_trip = (loop.time() - began) * 1000
    if server is None:
        return StoreStatus(
            kind=kind, server=None, round_trip_ms=round_trip, clock_offset_ms=None, memory=None, memory_limit=None
        )
    offset = datetime.now(UTC).timestamp() * 1000 - server.now - round_trip / 2
    return StoreStatus(
        kind=kind,
        server=server.program,
        round_trip_ms=round(round_trip, 3),
        clock_offset_ms=round(offset, 3),
        memory=server.memory or None,
        memory_limit=server.memory_limit or None,
    )
