"""A consumer that records its tasks, and schedulers with such consumers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from onthedot import App, BaseTaskConsumer, Scheduler, Task, TaskConsumerRegistry
from onthedot.clock.manual import ManualClock
from tests.support.waits import until


class Work(BaseTaskConsumer):
    """Records starts and ends. Tasks wait at a gate, then call `do`."""

    name = "work"

    def __init__(
        self,
        name: str | None = None,
        count: int | None = None,
        gated: bool = False,
        do: Callable[[Task], Awaitable[Any]] | None = None,
    ) -> None:
        if name is not None:
            self.name = name
        if count is not None:
            self.concurrent_count = count
        self.do = do
        self.gate = asyncio.Event()
        if not gated:
            self.gate.set()
        self.started: list[Task] = []
        self.ended: list[Task] = []
        self.most = 0
        self.cancelled = 0

    async def consume(self, task: Task) -> Any:
        self.started.append(task)
        self.most = max(self.most, len(self.started) - len(self.ended))
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        result = None if self.do is None else await self.do(task)
        self.ended.append(task)
        return result

    def ran(self) -> list[Any]:
        """The argument `n` of the tasks that have started."""
        return [task.args.get("n") for task in self.started]

    def done(self) -> list[Any]:
        """The argument `n` of the tasks that have ended."""
        return [task.args.get("n") for task in self.ended]


def scheduler_of(*consumers: BaseTaskConsumer, **options: Any) -> Scheduler:
    registry = TaskConsumerRegistry()
    for consumer in consumers:
        registry.register(consumer)
    return Scheduler(registry=registry, **options)


@asynccontextmanager
async def running(
    *consumers: BaseTaskConsumer, clock: ManualClock | None = None, **options: Any
) -> AsyncIterator[Scheduler]:
    """Runs a scheduler and checks that it leaves no asyncio task behind."""
    before = asyncio.all_tasks()
    scheduler = scheduler_of(*consumers, **options)
    with scheduler.runtime.override(replace(scheduler.runtime.config, clock=clock or scheduler.runtime.clock)):
        assert await scheduler.start() is True
        try:
            yield scheduler
        finally:
            await scheduler.stop()
    assert asyncio.all_tasks() <= before


async def idle(scheduler: Scheduler) -> None:
    """Waits until the worker has nothing to do and sleeps."""
    worker = scheduler.runtime.worker
    assert worker is not None
    await asyncio.sleep(0)
    await until(worker.idle.is_set)


def status(owner: Scheduler | App[Any]) -> str:
    return str(owner.status()["status"])
