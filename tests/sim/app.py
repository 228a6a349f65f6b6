"""The app that every node runs: one task per behaviour that the invariants are about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from onthedot import App, AtMost, IntervalSchedule, TaskContext, TaskFunction, current_task
from onthedot.engine.suspension import Suspension

LANE_CAP = 2
CAPS = {"limited": 2, "single": 1}
RATE = 5.0  # of `rated`, per second, and its burst
UNSTORABLE = "a result that the store cannot keep"
SLOTS = 8
BURST_SLOTS = 40
"""With `--bursts`: so many that short tasks are claimed ahead of the slots."""
INTERVAL = 1.0  # seconds between two windows of `tick`


class Boom(Exception):
    """Raised by tasks that are made to fail."""


@dataclass(frozen=True)
class RunEvents:
    """Receives the start and the end of every run, for the run log."""

    began: Callable[[TaskContext], None]
    ended: Callable[[TaskContext, bool], None]  # True: it has raised an error, or waits


Tasks = dict[str, TaskFunction[..., Any, Any]]


def new_app(lease: float, slots: int, events: RunEvents) -> tuple[App, Tasks]:  # noqa: C901 -- one function per task
    app = App(
        "sim",
        store="memory://",
        concurrency=slots,
        poll_interval=5,
        stop_timeout=2,
        defaults={"max_crashes": 1000, "keep": timedelta(days=1)},
    )
    app.runtime.use(replace(app.runtime.config, has_events=False))  # events are not simulated yet

    @app.task
    async def short(number: int) -> int:
        return number

    @app.task
    async def long(number: int) -> None:
        await asyncio.sleep(3 * lease)

    @app.task(limits=[AtMost(LANE_CAP, by="key")])
    async def laned(key: str) -> None:
        await asyncio.sleep(0.4)

    @app.task(concurrency=CAPS["limited"])
    async def limited(number: int) -> None:
        await asyncio.sleep(0.3)

    @app.task(rate_limit=f"{RATE:g}/s")
    async def rated(number: int) -> None:
        pass

    @app.task(unique="{key}", expires=1.5, concurrency=CAPS["single"])
    async def single(key: str) -> None:
        await asyncio.sleep(0.8)

    @app.task
    async def child(number: int) -> None:
        pass

    @app.task
    async def parent(number: int) -> None:
        await asyncio.sleep(0.05)
        current_task().spawn(child.s(number))

    @app.task(max_retries=5, backoff=[0.2])
    async def flaky(number: int) -> None:
        if current_task().attempt < 3:
            raise Boom(number)

    @app.task
    async def failing(number: int) -> None:
        raise Boom(number)

    @app.task
    async def unstorable(number: int) -> str:
        return UNSTORABLE

    @app.task
    async def unreadable(number: int) -> None:
        pass

    schedule = IntervalSchedule(INTERVAL, overlap="allow", catch_up="all", grace=3600)

    @app.task(schedule=schedule)
    async def tick() -> None:
        pass

    @app.around
    async def logged(task: TaskContext, call: Callable[[], Awaitable[object]]) -> object:
        events.began(task)
        raised = False
        try:
            return await call()
        except (Exception, Suspension):
            raised = True
            raise
        finally:
            events.ended(task, raised)

    tasks: Any = [
        short,
        long,
        laned,
        limited,
        rated,
        single,
        child,
        parent,
        flaky,
        failing,
        unstorable,
        unreadable,
        tick,
    ]
    if slots == BURST_SLOTS:
        tasks.append(app.task(brief))
    return app, {task.name: task for task in tasks}


async def brief(number: int) -> None:
    await asyncio.sleep(0.001)
