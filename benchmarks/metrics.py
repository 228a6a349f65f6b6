"""The cost of counting and tracing: plain tasks with and without the meter, and with and without spans."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import time
from dataclasses import replace

from benchmarks.measures import countdown
from benchmarks.report import Figure
from onthedot import App


def meter_memory(scale: float) -> list[Figure]:
    """CPU time of no-op tasks on the memory store, the store on which a task is cheapest."""
    return [_figure("memory://", int(20_000 * scale), "memory, no meter", 0.95)]


def meter_sqlite(scale: float) -> list[Figure]:
    """The same on SQLite."""
    with tempfile.TemporaryDirectory() as folder:
        return [_figure(f"sqlite:///{folder}/tasks.db", int(10_000 * scale), "SQLite, no meter", 0.98)]


def _figure(store: str, count: int, against: str, target: float) -> Figure:
    """Tasks per second of CPU time, the best of eight; alternating, so that a slow second affects both."""
    rates: dict[bool, float] = {True: 0.0, False: 0.0}
    for metered in (False, True, True, False) * 4:
        rates[metered] = max(rates[metered], asyncio.run(_drain(store, count, metered=metered)))
    return Figure(rates[True], rates[False], "tasks/CPU s", against, target, least=True)


async def _drain(store: str, count: int, *, metered: bool) -> float:
    app = App("bench", store=store, concurrency=100)
    if not metered:
        app.runtime.use(replace(app.runtime.config, meter=None))
    counted, done = countdown(count)
    task = app.task(counted)
    async with app:
        await task.enqueue_many([{}] * count)
        gc.collect()
        began = time.process_time()
        async with app.running():
            await done.wait()
            return count / (time.process_time() - began)


def tracing_memory(scale: float) -> list[Figure]:
    """CPU time of no-op tasks whose runs have spans that are exported nowhere; it is shown and has no target."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    trace.set_tracer_provider(TracerProvider())
    rates = {"link": 0.0, "off": 0.0}
    for mode in ("off", "link", "link", "off") * 2:
        os.environ["ONTHEDOT_TRACE"] = mode
        rates[mode] = max(rates[mode], asyncio.run(_drain("memory://", int(10_000 * scale), metered=True)))
    return [Figure(rates["link"], rates["off"], "tasks/CPU s", "memory, no spans", 0.0, least=True)]


MEASURES = [meter_memory, meter_sqlite, tracing_memory]
