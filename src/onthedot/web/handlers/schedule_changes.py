"""Create, edit, pause, resume, run and delete schedules."""

from __future__ import annotations

from typing import Any

from msgspec import UnsetType
from msgspec.structs import replace

from onthedot.errors import BadSchedule
from onthedot.operations.schedule_forms import ScheduleForm
from onthedot.operations.schedule_info import ScheduleInfo
from onthedot.operations.schedules import ScheduleChanged, ScheduleConflict
from onthedot.web.bodies import NewTaskBody, ReasonBody, ScheduleBody, ScheduleEditBody
from onthedot.web.context import MakeTask
from onthedot.web.endpoints import Answer, NoBody, Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.handlers.schedules import schedule_answer
from onthedot.web.hidden_values import with_hidden_values
from onthedot.web.schemas import AddedTask

_FORM = ("rule", "tz", "overlap", "catch_up", "grace", "jitter", "start", "end")


def _task_maker(call: WebCall[Query, object]) -> MakeTask:
    found = call.context.make_task
    if found is None:
        raise ApiError("not_available", "this server cannot make tasks")
    return found


def _refusal(error: BadSchedule) -> ApiError:
    match error:
        case ScheduleChanged():
            return ApiError("precondition_failed", str(error))
        case ScheduleConflict():
            return ApiError("conflict", str(error))
        case _:
            return ApiError("invalid", str(error))


def _revision(call: WebCall[Query, object]) -> str | None:
    """That of If-Match, which `revision` and the ETag of a schedule have."""
    text = call.request.headers.get("if-match", "").strip()
    if text in ("", "*"):
        return None
    return text.removeprefix("W/").strip('"')


async def create_schedule(call: WebCall[Query, ScheduleBody]) -> Answer:
    body = call.body
    form = ScheduleForm(**{name: getattr(body, name) for name in _FORM})
    task = NewTaskBody(source=body.source, args=body.args, priority=body.priority, tags=body.tags, label=body.label)
    try:
        await call.operations.schedules.create(body.name, form, await _task_maker(call)(task))
    except BadSchedule as error:
        raise _refusal(error) from None
    call.context.shared.forget("schedules")
    return await schedule_answer(call, body.name, 201)


async def edit_schedule(call: WebCall[Query, ScheduleEditBody]) -> Answer:
    body = call.body
    name = call.path["name"]
    if "if-match" not in call.request.headers:
        raise ApiError(
            "invalid", "send If-Match with the revision that you have seen, or If-Match: *", field="If-Match"
        )
    schedules = call.operations.schedules
    info = await schedules.get(name)
    try:
        fields = {each: value for each in _FORM if not isinstance(value := getattr(body, each), UnsetType)}
        form = replace(info.form or ScheduleForm(rule="?"), **fields)
        task = None
        if not isinstance(body.source, UnsetType) or not isinstance(body.args, UnsetType):
            task = await _task_maker(call)(_edited_task(call, info))
        await schedules.edit(name, form, task, revision=_revision(call))
    except BadSchedule as error:
        raise _refusal(error) from None
    return await _changed(call)


async def _changed(call: WebCall[Query, object]) -> Answer:
    call.context.shared.forget("schedules")
    return await schedule_answer(call, call.path["name"])


def _edited_task(call: WebCall[Query, ScheduleEditBody], info: ScheduleInfo) -> NewTaskBody:
    """Its task with other arguments; what is not given stays."""
    body = call.body
    source = info.source if isinstance(body.source, UnsetType) else body.source
    args = info.args
    if not isinstance(body.args, UnsetType):
        stored: object = info.args if source == info.source else {}  # no secret of one task for another
        args = with_hidden_values(body.args, stored, call.context.redaction)
    names = ("priority", "expires", "tags", "unique", "label", "metadata")
    options: dict[str, Any] = {name: info.options[name] for name in names if name in info.options}
    return NewTaskBody(source=source, args=args, **options)


async def pause_schedule(call: WebCall[Query, ReasonBody]) -> Answer:
    reason = ": ".join(filter(None, (call.user.name, call.body.reason)))
    await call.operations.schedules.pause(call.path["name"], reason)
    return await _changed(call)


async def resume_schedule(call: WebCall[Query, ReasonBody]) -> Answer:
    await call.operations.schedules.resume(call.path["name"])
    return await _changed(call)


async def run_schedule(call: WebCall[Query, ReasonBody]) -> Answer:
    result = await call.operations.schedules.run(call.path["name"])
    return Answer(AddedTask(result.uuid, result.fresh), 201 if result.fresh else 200)


async def delete_schedule(call: WebCall[Query, NoBody]) -> Answer:
    try:
        await call.operations.schedules.delete(call.path["name"], revision=_revision(call))
    except BadSchedule as error:
        raise _refusal(error) from None
    call.context.shared.forget("schedules")
    return Answer(None, 204)
