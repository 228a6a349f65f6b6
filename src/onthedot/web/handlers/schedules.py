"""Schedules and their plan."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Annotated

from msgspec import Meta

from onthedot.codec.plain_json import json_value
from onthedot.errors import BadSchedule
from onthedot.model.redaction import Redaction
from onthedot.operations.schedules import ScheduleInfo
from onthedot.web.endpoints import Query, WebCall
from onthedot.web.rows import utc
from onthedot.web.schemas import HourLoad, PlanDetail, PlanRow, Rows, ScheduleRow

_NEXT = 3
_NEXT_HOURS = 24 * 400


class PlanQuery(Query, frozen=True, kw_only=True):
    """hours: how far ahead; limit: how many runs at most."""

    hours: Annotated[int, Meta(ge=1, le=24 * 366)] = 24
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


async def list_schedules(call: WebCall[Query, None]) -> Rows[ScheduleRow]:
    infos = await call.operations.schedules.list()
    runs = await call.operations.schedules.next_runs()
    coming: defaultdict[str, list[datetime]] = defaultdict(list)
    for run in runs:
        coming[run.name].append(run.at)
    return Rows([schedule_row(info, coming[info.name], call.context.redaction) for info in infos])


async def show_schedule(call: WebCall[Query, None]) -> ScheduleRow:
    name = call.path["name"]
    info = await call.operations.schedules.get(name)
    coming: list[datetime] = []
    try:
        runs = await call.operations.schedules.plan(name, hours=_NEXT_HOURS, limit=_NEXT)
        coming = [run.at for run in runs]
    except BadSchedule:  # its rule is custom or invalid: `reason` says so
        if info.next_run is not None:
            coming = [info.next_run]
    return schedule_row(info, coming, call.context.redaction)


def schedule_row(info: ScheduleInfo, coming: list[datetime], redaction: Redaction) -> ScheduleRow:
    return ScheduleRow(
        name=info.name,
        source=info.source,
        rule=info.rule,
        enabled=info.enabled,
        next_run=utc(info.next_run),
        last_run=utc(info.last_run),
        run_count=info.run_count,
        owner=info.owner,
        orphan=info.orphan,
        reason=info.reason,
        args=redaction.value(json_value(info.args)).value,
        options=redaction.value(json_value(info.options)).value,
        skipped=info.skipped,
        next=[found for at in coming if (found := utc(at)) is not None],
    )


async def show_plan(call: WebCall[PlanQuery, None]) -> PlanDetail:
    schedules = call.operations.schedules
    name = call.path.get("name")
    runs = await schedules.plan(name, hours=call.query.hours, limit=call.query.limit)
    load = await schedules.load(name, hours=min(call.query.hours, 24 * 7))
    return PlanDetail(
        items=[PlanRow(run.name, run.at, run.wall.isoformat(), run.due, run.mark) for run in runs],
        load=[HourLoad(at, count) for at, count in load],
    )
