"""Read tasks: lists, one in full, its explanation and its result."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from onthedot.codec.plain_json import json_value
from onthedot.errors import ArgumentError, TaskNotFound
from onthedot.model.task import TaskState, possible_uuids
from onthedot.operations.task_queries import TaskFilter
from onthedot.operations.time_limit import TimeLimit
from onthedot.web.context import WebContext
from onthedot.web.endpoints import Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.filters import MAX_UUIDS, TaskQuery, read_filter
from onthedot.web.rows import TaskRows, json_text, utc
from onthedot.web.schemas import Rows, StateCount, TaskList
from onthedot.web.task_details import (
    explanation_detail,
    related_tasks,
    release_of,
    task_contents,
    timeline_segments,
    waits_for,
)
from onthedot.web.task_schemas import ExplanationDetail, RelatedTasks, Segment, StepRow, TaskDetail

_MAX_CANDIDATES = 5
MAX_RESULT = 8 * 2**20  # bytes
_BUDGET = 0.15  # seconds for a list; then it is short and has a cursor
MAX_COUNTED = 1000  # tasks of a state, for its tab
COUNT_BUDGET = 0.05  # seconds for the tabs of a filter
COUNT_AGE = 1.0  # seconds
_COUNT_REST = 20  # the tabs of a filter are counted at most 5 % of the time
_PARTS = ("explain", "timeline", "related")


class DetailQuery(Query, frozen=True, kw_only=True):
    """include: explain, timeline and related, separated by commas."""

    include: str = ""


async def task_rows(context: WebContext) -> TaskRows:
    live = await context.live()
    return TaskRows(context.redaction, live.sources, live.workers)


async def list_tasks(call: WebCall[TaskQuery, None]) -> TaskList:
    rows = await task_rows(call.context)
    if call.query.uuids:
        return await _list_uuids(call, rows)
    where = read_filter(call.query, call.context.redaction)
    where["limit"] = call.query.limit
    if call.query.cursor:
        where["cursor"] = call.query.cursor
    try:
        page = await call.operations.tasks.find_within(TimeLimit(_BUDGET), where)
    except ArgumentError as error:
        raise ApiError("bad_request", str(error)) from None
    counts: dict[str, StateCount] | None = None
    if call.query.counts:
        counts = await count_states(call, where)
    return TaskList(
        items=[rows.row(info) for info in page],
        cursor=page.cursor,
        scanned=page.scanned,
        scanned_to=page.scanned_to,
        counts=counts,
    )


async def _list_uuids(call: WebCall[TaskQuery, None], rows: TaskRows) -> TaskList:
    uuids = [uuid for uuid in call.query.uuids.split(",") if uuid]
    if len(uuids) > MAX_UUIDS:
        raise ApiError("bad_request", f"more than {MAX_UUIDS} uuids", field="uuids")
    items = [rows.row(info) for info in await call.operations.tasks.get_many(possible_uuids(uuids))]
    return TaskList(items=items, cursor=None, scanned=len(items), scanned_to=None)


async def count_states(call: WebCall[TaskQuery, None], where: TaskFilter) -> dict[str, StateCount]:
    """Of each state, how many tasks match: from the tally, or counted within bounds if other filters are given."""
    by_source = await call.context.shared.get("by_source", 0.5, call.operations.by_source)
    source = where.get("source")
    found = {state.value: 0 for state in TaskState}
    for name, counts in by_source.items():
        if source in (None, name):
            for state, number in counts.items():
                found[state] += number
    filters: TaskFilter = {**where}
    filters.pop("state", None)
    filters.pop("limit", None)
    filters.pop("cursor", None)
    if filters.keys() <= {"source"}:
        return {state: StateCount(number, True) for state, number in found.items()}
    tasks = call.operations.tasks
    counted = await call.context.shared.get(
        f"state counts {_without_page(call.query)}",
        COUNT_AGE,
        lambda: tasks.count_states(filters, found, MAX_COUNTED, COUNT_BUDGET),
        rest=_COUNT_REST,
    )
    return {state: StateCount(counted[state].number, counted[state].is_exact) for state in found}


def _without_page(query: TaskQuery) -> str:
    """The filters as they were sent: a time such as "1h" is another moment in each request."""
    return json_text(msgspec.structs.replace(query, state="", cursor="", limit=1))


async def whole_uuid(call: WebCall[Query, object]) -> str:
    """The uuid of the path, of which the first or last characters are enough."""
    part = call.path["uuid"]
    try:
        return await call.operations.tasks.complete_uuid(part)
    except TaskNotFound as error:
        where: TaskFilter = {"uuid": part, "limit": _MAX_CANDIDATES}
        if not possible_uuids([part]):
            raise
        candidates = [info.uuid for info in await call.operations.find(**where)]
        if len(candidates) < 2:
            raise
        raise ApiError("ambiguous", str(error), candidates=candidates) from None


async def show_task(call: WebCall[DetailQuery, None]) -> TaskDetail:
    include = [part for part in call.query.include.split(",") if part]
    for part in include:
        if part not in _PARTS:
            raise ApiError("bad_request", f"include is one of {', '.join(_PARTS)}, not {part!r}", field="include")
    uuid = await whole_uuid(call)
    info = await call.operations.get(uuid)
    rows = await task_rows(call.context)
    explain: ExplanationDetail | UnsetType | None = UNSET
    timeline: list[Segment] | UnsetType = UNSET
    related: RelatedTasks | UnsetType = UNSET
    if "explain" in include:
        explain = None
        if not info.state.ended or info.reason:  # that of a cancel, or of an end without a run
            explain = explanation_detail(await call.operations.explain(uuid), call.context.redaction)
    if "timeline" in include:
        timeline = await timeline_segments(call.context, uuid)
    if "related" in include:
        related = await related_tasks(call.context, info)
    return TaskDetail(
        **rows.fields(info),
        **task_contents(info, call.context.redaction),
        steps=[
            StepRow(step.name, step.size, utc(step.since), utc(step.until), step.signal)
            for step in await call.operations.steps(uuid)
        ],
        items_saved=await call.operations.streamed(uuid),
        trace_id=await call.operations.trace_id(uuid),
        release=await release_of(call.context, info),
        waits_for=await waits_for(call.context, info),
        explain=explain,
        timeline=timeline,
        related=related,
    )


async def show_timeline(call: WebCall[Query, None]) -> Rows[Segment]:
    return Rows(await timeline_segments(call.context, await whole_uuid(call)))


async def explain_task(call: WebCall[Query, None]) -> ExplanationDetail:
    found = await call.operations.explain(await whole_uuid(call))
    return explanation_detail(found, call.context.redaction)


async def show_result(call: WebCall[Query, None]) -> Response:
    """The result as JSON, to be saved as a file."""
    info = await call.operations.get(await whole_uuid(call))
    if info.result_status != "stored":
        raise ApiError("not_found", f"task {info.uuid} has no stored result: {info.result_status}")
    shown = call.context.redaction.value(json_value(info.result)).value
    data = json_text(shown).encode()
    if len(data) > MAX_RESULT:
        raise ApiError(
            "too_large",
            f"the result of task {info.uuid} takes {len(data):,} bytes, the limit is {MAX_RESULT:,}; read it in code: "
            "app.get(uuid)",
        )
    headers = {"Content-Disposition": f'attachment; filename="{info.uuid}.json"'}
    return Response(data, 200, headers, "application/json")
