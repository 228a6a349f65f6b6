"""Sources, limits and workers."""

from __future__ import annotations

from onthedot.web.endpoints import Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.rows import limit_row, source_row, worker_row
from onthedot.web.schemas import LimitRow, Rows, SourceRow, WorkerRow

_WORKERS_AGE = 1.0  # seconds


async def list_sources(call: WebCall[Query, None]) -> Rows[SourceRow]:
    live = await call.context.live()
    return Rows([source_row(each, live.by_source.get(each.name)) for each in await call.context.sources()])


async def show_source(call: WebCall[Query, None]) -> SourceRow:
    return await source_of(call, call.path["name"])


async def source_of(call: WebCall[Query, object], name: str) -> SourceRow:
    live = await call.context.live()
    found = next((each for each in await call.context.sources() if each.name == name), None)
    if found is None:
        raise ApiError("not_found", f"no source {name!r}: it has no tasks, no limits and no worker")
    return source_row(found, live.by_source.get(name))


async def list_limits(call: WebCall[Query, None]) -> Rows[LimitRow]:
    return Rows([limit_row(each) for each in await call.operations.limits.list()])


async def list_workers(call: WebCall[Query, None]) -> Rows[WorkerRow]:
    workers = await call.context.shared.get("workers", _WORKERS_AGE, call.operations.workers)
    return Rows([worker_row(each) for each in workers])


async def show_worker(call: WebCall[Query, None]) -> WorkerRow:
    part = call.path["id"]
    rows = (await list_workers(call)).items
    found = [each for each in rows if each.id.startswith(part) or each.id.endswith(part)]
    if len(found) > 1:
        raise ApiError("ambiguous", f"{part} names several workers", candidates=[each.id for each in found])
    if not found:
        raise ApiError("not_found", f"no live worker {part}")
    return found[0]
