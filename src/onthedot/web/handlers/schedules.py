"""Schedules and their plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from onthedot.codec.plain_json import json_value
from onthedot.errors import BadSchedule
from onthedot.model.redaction import Redaction
from onthedot.operations.schedule_forms import ScheduleForm
from onthedot.operations.schedule_info import NO_WORKER, ScheduleInfo
from onthedot.operations.schedule_preview import PlannedRun
from onthedot.operations.schedule_runs import ScheduleRun
from onthedot.operations.schedules import ScheduleDetails
from onthedot.web.bodies import Seconds
from onthedot.web.endpoints import Answer, Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.rows import utc
from onthedot.web.schedule_schemas import (
    HourLoad,
    MomentLoad,
    PlanDetail,
    PlanRow,
    ScheduleFormRow,
    ScheduleRow,
    ScheduleRunRow,
)
from onthedot.web.schemas import Moment, Rows

_AGE = 1.0  # seconds
_MAX_COUNTED = 2000  # runs among which the busiest moment is looked for
_Status = Literal["active", "paused", "orphan", "invalid", "over"]


class PlanQuery(Query, frozen=True, kw_only=True):
    """hours: how far ahead; limit: how many runs at most.

    rule, tz, jitter, start, end: of a schedule that does not exist yet, as in `POST /schedules`: its first runs
    """

    hours: Annotated[int, Meta(ge=1, le=24 * 366)] = 24
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200
    rule: Annotated[str, Meta(max_length=1000)] = ""
    tz: Annotated[str, Meta(max_length=200)] = "UTC"
    jitter: Seconds = 0
    start: Moment | None = None
    end: Moment | None = None


async def list_schedules(call: WebCall[Query, None]) -> Rows[ScheduleRow]:
    found = await call.context.shared.get("schedules", _AGE, call.operations.schedules.details)
    return Rows([schedule_row(each, call.context.redaction) for each in found])


async def show_schedule(call: WebCall[Query, None]) -> Answer:
    return await schedule_answer(call, call.path["name"])


async def schedule_answer(call: WebCall[Query, object], name: str, status: int = 200) -> Answer:
    """One schedule, with its revision as the ETag."""
    (found,) = await call.operations.schedules.details(name)
    row = schedule_row(found, call.context.redaction)
    return Answer(row, status, {"ETag": f'"{row.revision}"'})


def schedule_row(details: ScheduleDetails, redaction: Redaction) -> ScheduleRow:
    info = details.info
    late = [run.lateness for run in details.runs if run.lateness is not None]
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
        reason=redaction.text(info.reason),
        args=redaction.value(json_value(info.args)).value,
        options=redaction.value(json_value(info.options)).value,
        skipped=info.skipped,
        next=[run.at for run in details.coming],
        words=info.words,
        revision=info.revision,
        runs=[_run_row(run) for run in details.runs],
        lateness_ms=round(max(late) * 1000, 3) if late else None,
        form=None if info.form is None else _form_row(info.form),
        status=_status(info),
    )


def _status(info: ScheduleInfo) -> _Status:
    if info.rule == "?":
        return "invalid"
    if not info.enabled:
        return "paused"
    if info.orphan and not info.reason.endswith(NO_WORKER):
        return "orphan"
    return "over" if info.next_run is None else "active"


def _run_row(run: ScheduleRun) -> ScheduleRunRow:
    lateness = None if run.lateness is None else round(run.lateness * 1000, 3)
    return ScheduleRunRow(at=run.at, uuid=run.uuid, state=run.state or "none", lateness_ms=lateness)  # type: ignore[arg-type]


def _form_row(form: ScheduleForm) -> ScheduleFormRow:
    return ScheduleFormRow(
        rule=form.rule,
        tz=form.tz,
        overlap=form.overlap,
        catch_up=form.catch_up,
        grace=form.grace,
        jitter=form.jitter,
        start=utc(form.start),
        end=utc(form.end),
    )


async def show_plan(call: WebCall[PlanQuery, None]) -> PlanDetail:
    query = call.query
    schedules = call.operations.schedules
    name = call.path.get("name")
    if query.rule:
        return _preview(call)
    runs = await schedules.plan(name, hours=query.hours, limit=max(query.limit, _MAX_COUNTED))
    load = await schedules.load(name, hours=min(query.hours, 24 * 7))
    return PlanDetail(
        items=_plan_rows(runs[: query.limit]),
        load=[HourLoad(at, count) for at, count in load],
        busiest=_busiest(runs),
    )


def _preview(call: WebCall[PlanQuery, None]) -> PlanDetail:
    query = call.query
    form = ScheduleForm(rule=query.rule, tz=query.tz, jitter=query.jitter, start=query.start, end=query.end)
    try:
        runs = call.operations.schedules.preview(form, min(query.limit, 50))
        return PlanDetail(_plan_rows(runs), [], form.words())
    except BadSchedule as error:
        raise ApiError("bad_request", str(error), field="rule") from None


def _plan_rows(runs: Sequence[PlannedRun]) -> list[PlanRow]:
    return [PlanRow(run.name, run.at, run.wall.isoformat(), run.due, run.mark) for run in runs]


def _busiest(runs: Sequence[PlannedRun]) -> MomentLoad | None:
    """The moment at which most runs begin together; None: no two do."""
    if not runs:
        return None
    ((at, count),) = Counter(run.at for run in runs).most_common(1)
    return MomentLoad(at, count) if count > 1 else None
