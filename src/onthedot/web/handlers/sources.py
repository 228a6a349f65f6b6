"""Sources and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from onthedot.model.task import TaskInfo
from onthedot.operations.audit import AuditRecord
from onthedot.operations.humanize import short_id
from onthedot.operations.live_view import LiveSnapshot
from onthedot.operations.oldest_ready import OldestReady
from onthedot.web.endpoints import Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.handlers.series import read_series, series_detail
from onthedot.web.rows import TaskRows, limit_row, source_row, utc
from onthedot.web.schemas import LimitRow, Rows, SourceRow
from onthedot.web.source_schemas import SourceDetail, SourceSchedule, SourceWorker

_SCHEDULES_AGE = 1.0  # seconds
_OLDEST_AGE = 1.0  # seconds
_HOURS_AGE = 5.0  # seconds; workers write every 10 s
_CHANGES_AGE = 10.0  # seconds; those of this process are seen at once
_MAX_OLDEST = 50  # sources whose next task is read
_FAILURES = 5
_SERIES = ("done", "failed", "latency_p50", "latency_p95", "depth")


class SourceQuery(Query, frozen=True, kw_only=True):
    """since: of the series."""

    since: str = "1h"


async def list_sources(call: WebCall[Query, None]) -> Rows[SourceRow]:
    return Rows(sorted(await source_rows(call, await call.context.live()), key=worst_first))


async def source_rows(call: WebCall[Query, object], live: LiveSnapshot) -> list[SourceRow]:
    context = call.context
    oldest, hours, changes = await asyncio.gather(
        oldest_ready(call, live),
        context.shared.get("source hours", _HOURS_AGE, call.operations.source_hours),
        _limit_changes(call, live),
    )
    ages = oldest.by_source
    redaction = context.redaction
    return [
        source_row(each, redaction, live.by_source.get(each.name), ages.get(each.name), hours.get(each.name), changes)
        for each in live.sources
    ]


async def oldest_ready(call: WebCall[Query, object], live: LiveSnapshot) -> OldestReady:
    """Of all sources, and of those that are first by name."""
    with_ready = [each.name for each in live.sources if each.ready + each.parked]
    operations = call.operations
    return await call.context.shared.get(
        "oldest", _OLDEST_AGE, lambda: operations.oldest_ready(with_ready[:_MAX_OLDEST])
    )


async def _limit_changes(call: WebCall[Query, object], live: LiveSnapshot) -> Mapping[str, AuditRecord]:
    """By the name of the limit. The audit log is read only if an operator has set a limit."""
    if all(limit.by == "code" for source in live.sources for limit in source.limits):
        return {}
    return await call.context.shared.get("limit changes", _CHANGES_AGE, call.operations.audit.changes_of_limits)


def worst_first(row: SourceRow) -> tuple[bool, bool, int, int, str]:
    """No worker, paused, oldest by the minute, failing: by the second, rows would change places all the time."""
    is_unserved = row.ready + row.parked > 0 and row.workers == 0
    is_paused = row.paused is not None or bool(row.paused_keys)
    return (not is_unserved, not is_paused, -int((row.oldest_ready or 0) // 60), -row.failed, row.name)


async def show_source(call: WebCall[SourceQuery, None]) -> SourceDetail:
    name = call.path["name"]
    live = await call.context.live()
    row = await source_of(call, name)
    series = await read_series(call, _SERIES, name, call.query.since)
    schedules = await call.context.shared.get("schedule list", _SCHEDULES_AGE, call.operations.schedules.list)
    failures: Sequence[TaskInfo] = ()
    if row.failed:
        failures = (await call.operations.find(state="failed", source=name, limit=_FAILURES)).tasks
    rows = TaskRows(call.context.redaction, live.sources, live.workers)
    return SourceDetail(
        **msgspec.structs.asdict(row),
        history=await call.context.history(name),
        series=series_detail(series),
        failures=[rows.row(info) for info in failures],
        schedules=[
            SourceSchedule(name=each.name, words=each.words, enabled=each.enabled, next_run=utc(each.next_run))
            for each in schedules
            if each.source == name
        ],
        known_by=[
            SourceWorker(id=each.id, short_id=short_id(each.id), host=each.host, pid=each.pid, release=each.release)
            for each in live.workers
            if name in each.sources
        ],
    )


async def source_of(call: WebCall[Query, object], name: str) -> SourceRow:
    found = next((row for row in await source_rows(call, await call.context.live()) if row.name == name), None)
    if found is None:
        raise ApiError("not_found", f"no source {name!r}: it has no tasks, no limits and no worker")
    return found


async def list_limits(call: WebCall[Query, None]) -> Rows[LimitRow]:
    return Rows([limit_row(each, call.context.redaction) for each in await call.operations.limits.list()])
