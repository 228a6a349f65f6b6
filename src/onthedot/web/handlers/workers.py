"""Workers, and the tasks that they run."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from onthedot.model.redaction import Redaction
from onthedot.model.task import TaskInfo
from onthedot.operations.humanize import short_id
from onthedot.operations.workers import WorkerInfo
from onthedot.web.endpoints import Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.rows import MAX_PREVIEW, TaskRows, shortened, utc
from onthedot.web.schemas import Rows
from onthedot.web.worker_schemas import LostTasksRow, RunningRow, WorkerDetail, WorkerRow

_AGE = 1.0  # seconds
_MAX_TASKS = 200


async def list_workers(call: WebCall[Query, None]) -> Rows[WorkerRow]:
    operations = call.operations
    workers = await call.context.shared.get("workers", _AGE, lambda: operations.workers(with_dead=True))
    return Rows([_row(each, call.context.redaction) for each in workers])


async def show_worker(call: WebCall[Query, None]) -> WorkerDetail:
    part = call.path["id"]
    rows = (await list_workers(call)).items
    found = [each for each in rows if each.id.startswith(part) or each.id.endswith(part)]
    if len(found) > 1:
        raise ApiError("ambiguous", f"{part} names several workers", candidates=[each.id for each in found])
    if not found:
        raise ApiError("not_found", f"no worker {part} lives, or died in the last ten minutes")
    (row,) = found
    tasks: Sequence[TaskInfo] = ()
    if row.alive and row.running:
        tasks = await call.operations.tasks_of_worker(row.id, _MAX_TASKS)
    live = await call.context.live()
    task_rows = TaskRows(call.context.redaction, live.sources, live.workers)
    return WorkerDetail(**msgspec.structs.asdict(row), tasks=[task_rows.row(info) for info in tasks])


def _row(info: WorkerInfo, redaction: Redaction) -> WorkerRow:
    return WorkerRow(
        id=info.id,
        short_id=short_id(info.id),
        host=info.host,
        pid=info.pid,
        version=info.version,
        release=info.release,
        since=utc(info.started),
        slots=info.concurrency,
        running=info.running,
        longest=[
            RunningRow(
                uuid=each.uuid,
                short_id=short_id(each.uuid),
                source=each.source,
                label=shortened(redaction.text(each.label), MAX_PREVIEW),
                started_at=utc(each.started),
            )
            for each in info.longest
        ],
        sources=info.sources,
        schedules=info.schedules,
        data_lost=utc(info.data_lost),
        seen=utc(info.seen),
        done_per_minute=info.done_per_minute,
        done=info.done,
        rss=info.rss,
        loop_lag_ms=info.loop_lag,
        clock_offset_ms=info.clock_offset,
        lost=None if info.lost is None else LostTasksRow(info.lost.requeued, info.lost.failed, info.lost.held),
        alive=info.alive,
    )
