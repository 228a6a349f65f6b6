"""Pause, resume, run and delete schedules."""

from __future__ import annotations

from onthedot.errors import BadSchedule
from onthedot.operations.schedules import ScheduleInfo
from onthedot.web.bodies import ReasonBody
from onthedot.web.endpoints import Answer, NoBody, Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.handlers.schedules import schedule_row
from onthedot.web.schemas import AddedTask, ScheduleRow


def _row(call: WebCall[Query, object], info: ScheduleInfo) -> ScheduleRow:
    coming = [] if info.next_run is None else [info.next_run]
    return schedule_row(info, coming, call.context.redaction)


async def pause_schedule(call: WebCall[Query, ReasonBody]) -> ScheduleRow:
    reason = ": ".join(filter(None, (call.user.name, call.body.reason)))
    return _row(call, await call.operations.schedules.pause(call.path["name"], reason))


async def resume_schedule(call: WebCall[Query, ReasonBody]) -> ScheduleRow:
    return _row(call, await call.operations.schedules.resume(call.path["name"]))


async def run_schedule(call: WebCall[Query, ReasonBody]) -> Answer:
    result = await call.operations.schedules.run(call.path["name"])
    return Answer(AddedTask(result.uuid, result.fresh), 201 if result.fresh else 200)


async def delete_schedule(call: WebCall[Query, NoBody]) -> Answer:
    try:
        await call.operations.schedules.delete(call.path["name"])
    except BadSchedule as error:
        raise ApiError("conflict", str(error)) from None
    return Answer(None, 204)
