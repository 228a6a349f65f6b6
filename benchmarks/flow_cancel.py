"""The time of cancelling a large flow and of running it again, and its CPU time in client and server together."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.cpu_times import children_cpu
from benchmarks.flow_stores import STORES
from benchmarks.measures import noop
from benchmarks.report import Figure
from onthedot import App, group

_COUNT = 10_000
_PROMISED = 5.0  # seconds of a cancel


@dataclass(frozen=True)
class Effort:
    """Of one call for a whole flow, in seconds."""

    cpu: float
    wall: float


async def _effort(call: Callable[[], Awaitable[int]], tasks: int) -> Effort:
    began = time.perf_counter()
    cpu = time.process_time() + children_cpu(besides=os.getpid())
    assert await call() == tasks
    used = time.process_time() + children_cpu(besides=os.getpid()) - cpu
    return Effort(used, time.perf_counter() - began)


async def _cancel_and_retry(app: App, members: int) -> tuple[Effort, Effort]:
    task = app.task(noop)

    @app.task
    async def joined(results: list[None]) -> None: ...

    async with app:
        flow = await (group([task.s() for _ in range(members)]) | joined).enqueue()
        cancel = await _effort(flow.cancel, members + 1)
        return cancel, await _effort(flow.retry, members + 1)


def flow_cancel(scale: float) -> list[Figure]:
    """cancel() and retry() of a flow of 10,000 that has not started, on each store."""
    members = max(1100, int(_COUNT * scale))
    figures: list[Figure] = []
    for name, stores in STORES.items():
        with stores() as new_store:
            cancel, retry = asyncio.run(_cancel_and_retry(App("bench", store=new_store()), members))
        for verb, effort in (("cancel", cancel), ("retry", retry)):
            against = f"{name}: {verb}() of 10,000"
            figures.append(Figure(effort.wall, 1, "s", against, _PROMISED, least=False))
            figures.append(Figure(effort.cpu, 1, "s", f"{against}, CPU", _PROMISED, least=False))
    return figures


MEASURES = [flow_cancel]
