"""One task for the HTTP API: its contents, its attempts, its explanation and its related tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onthedot.codec.plain_json import json_value
from onthedot.codec.task_failure import TaskFailure
from onthedot.errors import StoreError
from onthedot.model.batch_names import batch_task
from onthedot.model.error_fingerprint import fingerprint
from onthedot.model.limits import lane_rule
from onthedot.model.redaction import Redaction
from onthedot.model.task import TaskInfo, TaskState, possible_uuids
from onthedot.operations.explain import Explanation, ExplanationReason, Holder
from onthedot.operations.explain_actions import ReasonAction
from onthedot.operations.filters import TEXT_FILTERS, TIME_FILTERS
from onthedot.operations.time_limit import TimeLimit
from onthedot.web.context import WebContext
from onthedot.web.rows import json_text, shortened, utc
from onthedot.web.task_schemas import (
    ActionRow,
    AttemptRow,
    ExplanationDetail,
    ExplanationText,
    HeldByRow,
    PausedPart,
    RelatedTasks,
    SameRow,
    Segment,
    WaitsForRow,
)

_MAX_TRACEBACK = 32 * 1024
_MAX_RESULT = 64 * 1024  # characters
_COUNT_TIME = 0.03  # seconds for a count of tasks with the same argument
_COUNT_AGE = 10.0  # seconds for which it is used again
_SCHEDULE_KEY = "schedule:"  # begins the unique key of a window


def task_contents(info: TaskInfo, redaction: Redaction) -> dict[str, Any]:
    """Fields of a `TaskDetail`: arguments, result and attempts without secrets."""
    args = redaction.value(json_value(info.args))
    metadata = redaction.value(json_value(info.metadata))
    result = redaction.value(json_value(info.result))
    paths = [
        *(f"args.{path}" for path in args.paths),
        *(f"metadata.{path}" for path in metadata.paths),
        *(f"result.{path}" for path in result.paths),
    ]
    result_text = json_text(result.value) if info.result_status == "stored" else ""
    is_cut = len(result_text) > _MAX_RESULT
    return {
        "args": args.value,
        "args_text": json_text(args.value),
        "metadata": metadata.value,
        "metadata_text": json_text(metadata.value),
        "unique": info.unique,
        "crashes": info.crashes,
        "retries": info.retries,
        "result": None if is_cut else result.value,
        "result_text": result_text[:_MAX_RESULT],
        "result_size": len(result_text),
        "result_cut": is_cut,
        "result_status": info.result_status,
        "errors": [
            AttemptRow(
                attempt=error.attempt,
                type=error.type,
                message=shortened(redaction.text(error.message), _MAX_TRACEBACK),
                traceback=redaction.text(error.traceback)[-_MAX_TRACEBACK:],
                started_at=utc(error.started_at),
                ended_at=utc(error.ended_at),
                worker=error.worker or None,
            )
            for error in _errors_of_attempts(info)
        ],
        "redacted": paths,
    }


def _errors_of_attempts(info: TaskInfo) -> Sequence[TaskFailure]:
    """The journal has those of the attempts that were repeated; the last one is in the record."""
    if info.error is None or any(error.attempt == info.error.attempt for error in info.errors):
        return info.errors
    return (*info.errors, info.error)


async def release_of(context: WebContext, info: TaskInfo) -> str | None:
    """The code release of the worker that runs or last ran the task; None: it does not live, or has none."""
    live = await context.live()
    return next((worker.release for worker in live.workers if worker.id == info.worker), None) or None


async def waits_for(context: WebContext, info: TaskInfo) -> WaitsForRow | None:
    """The present wait."""
    if info.state is not TaskState.WAITING:
        return None
    found = await context.operations.signals.waiting_task(info.uuid)
    if found is None:
        return None
    return WaitsForRow(
        signals=found.names, flow=found.flow, needed=found.needed, reached=found.reached, until=utc(found.until)
    )


# -- timeline and explanation


async def timeline_segments(context: WebContext, uuid: str) -> list[Segment]:
    """The recorded parts of a task's life."""
    redaction = context.redaction
    return [
        Segment(
            each.begin,
            each.end,
            each.kind,
            each.attempt,
            each.worker,
            redaction.text(each.text),
            [PausedPart(pause.begin, pause.end, pause.user, redaction.text(pause.reason)) for pause in each.paused],
        )
        for each in await context.operations.timeline(uuid)
    ]


def explanation_detail(found: Explanation, redaction: Redaction) -> ExplanationDetail:
    """Why a task is not running."""
    return ExplanationDetail(
        uuid=found.uuid,
        state=found.state.value,
        reason=found.reason,
        text=redaction.text(found.text),
        until=utc(found.until),
        ahead=found.ahead,
        estimated_start=utc(found.estimated_start),
        more=[_explanation_text(each, redaction) for each in found.also],
        holders=[each.uuid for each in found.by if each.uuid is not None],
        action=_action_row(found.action),
        held_by=[_holder_row(each) for each in found.by],
        held_by_count=found.by_count,
    )


def _explanation_text(found: ExplanationReason, redaction: Redaction) -> ExplanationText:
    return ExplanationText(
        found.reason,
        redaction.text(found.text),
        utc(found.until),
        _action_row(found.action),
        [_holder_row(each) for each in found.by],
    )


def _action_row(action: ReasonAction | None) -> ActionRow | None:
    if action is None:
        return None
    return ActionRow(action.label, action.method, action.path, dict(action.body))


def _holder_row(holder: Holder) -> HeldByRow:
    return HeldByRow(holder.uuid, holder.source, holder.worker, holder.where, utc(holder.since))


# -- related tasks


async def related_tasks(context: WebContext, info: TaskInfo) -> RelatedTasks:
    """Tasks that belong together with one, and filters of those that have something in common with it."""
    operations = context.operations
    parent = await operations.parent(info.uuid)
    group = None
    if info.error is not None and info.error.type:
        group = fingerprint(info.source, info.error)
    flow = info.flow
    batch = info.uuid if batch_task(info.source) is not None else None
    if batch is None and flow is not None:
        found = await operations.tasks.get_many(possible_uuids([flow]))
        if found and batch_task(found[0].source) is not None:
            batch = flow
    same = [await _same_error(context, group), await _same_argument(context, info), _same_schedule(info)]
    return RelatedTasks(
        parent=None if parent is None else parent.uuid,
        flow=None if batch else flow,
        batch=batch,
        group=group,
        same=[each for each in same if each is not None],
    )


async def _same_error(context: WebContext, group: str | None) -> SameRow | None:
    """As the page Failed counts them."""
    if group is None:
        return None
    counted = await context.operations.failure_counts.look(patience=0)
    number = next((each.count for each in counted.groups if each.group == group), None)
    is_exact = counted.counted_to is None
    return SameRow(kind="error", name="", value="", q=f"group:{group}", n=number, exact=is_exact)


async def _same_argument(context: WebContext, info: TaskInfo) -> SameRow | None:
    """The argument by which the source is limited: a customer, a tenant."""
    rule = lane_rule(await context.operations.limits.stored(), info.source)
    if rule is None or rule.by is None or rule.by in (*TEXT_FILTERS, *TIME_FILTERS):
        return None
    name = rule.by
    value = info.args.get(name)
    if not isinstance(value, str | int) or isinstance(value, bool) or context.redaction.covers(name):
        return None
    text = str(value)
    if context.redaction.text(text) != text or len(text) > 200:
        return None
    number, is_exact = await context.shared.get(
        f"same {info.source} {name} {text}", _COUNT_AGE, lambda: _count(context, info.source, {name: value})
    )
    q = f"source:{info.source} {name}:{_quoted(text)}"
    return SameRow(kind="argument", name=name, value=text, q=q, n=number, exact=is_exact)


async def _count(context: WebContext, source: str, where: Mapping[str, object]) -> tuple[int | None, bool]:
    try:
        found = await context.operations.tasks.matching_within(
            TimeLimit(_COUNT_TIME), {"source": source, "where": dict(where)}
        )
    except StoreError:
        return None, False
    return len(found.uuids), found.cursor is None


def _same_schedule(info: TaskInfo) -> SameRow | None:
    if info.unique is None or not info.unique.startswith(_SCHEDULE_KEY):
        return None
    name = info.unique.removeprefix(_SCHEDULE_KEY)
    return SameRow(kind="schedule", name=name, value="", q="", n=None, exact=False)


def _quoted(text: str) -> str:
    """As a value in the filter box.

    >>> _quoted("acme"), _quoted('a "b"')
    ('acme', '"a \\\\"b\\\\""')
    """
    if text and not any(character in ' \t\n"\\' for character in text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
