"""The tasks that workers run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import inf

from onthedot.clock.epoch import from_optional_ms
from onthedot.model.task import TaskInfo
from onthedot.model.task_info import decode_body
from onthedot.operations.task_queries import TaskQueries
from onthedot.operations.worker_figures import lost_workers, read_worker_minutes, with_figures
from onthedot.operations.workers import RunningTask, WorkerInfo, live_workers
from onthedot.stores.contract import BATCH, Record, Store

_LONGEST = 3  # that a worker is listed with


async def read_workers(store: Store, tasks: TaskQueries, now: float, *, with_dead: bool) -> list[WorkerInfo]:
    """See `Operations.workers`. now: ms."""
    running: defaultdict[str | None, list[Record]] = defaultdict(list)
    async for record in tasks.in_state("running"):
        running[record.history.session].append(record)
    minutes = await read_worker_minutes(store, now)
    live = await live_workers(store)
    found = [
        with_figures(
            replace(worker, running=len(running[worker.id]), longest=_longest(running[worker.id])),
            minutes.get(worker.id, {}),
            now,
        )
        for worker in live
    ]
    if with_dead:
        found += await lost_workers(store, minutes, {worker.id for worker in live}, now)
    return found


async def tasks_of_worker(tasks: TaskQueries, session: str, limit: int) -> list[TaskInfo]:
    """See `Operations.tasks_of_worker`."""
    running = [record async for record in tasks.in_state("running") if record.history.session == session]
    running.sort(key=_started)
    return await tasks.get_many([record.uuid for record in running[: min(limit, BATCH)]])


def _longest(running: list[Record]) -> tuple[RunningTask, ...]:
    running.sort(key=_started)
    return tuple(
        RunningTask(
            record.uuid, record.source, decode_body(record)[1].label or "", from_optional_ms(record.history.started)
        )
        for record in running[:_LONGEST]
    )


def _started(record: Record) -> float:
    return inf if record.history.started is None else record.history.started
