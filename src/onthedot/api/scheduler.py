"""Rows A and B: a scheduler of consumers, and the one that all modules of a process share."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any, Unpack

from onthedot.api.handles import TaskHandle
from onthedot.api.operations import AppOperations
from onthedot.api.schedules import Schedules
from onthedot.clock.durations import Duration
from onthedot.codec.untyped import decode_untyped_result
from onthedot.definitions.consumers import ConsumerDefinition, TaskConsumerRegistry
from onthedot.definitions.new_task import check_conflict
from onthedot.definitions.registry import DefinitionRegistry
from onthedot.definitions.remote import RemoteDefinition
from onthedot.model.task import Task, check_name
from onthedot.observability.logs import LogObserver
from onthedot.operations.task_queries import TaskFilter, TaskPage
from onthedot.runtime.config import RuntimeConfig, check_poll_interval, check_stop_timeout, slots_by_executor
from onthedot.runtime.runtime import Runtime
from onthedot.runtime.settings import store_url
from onthedot.stores.contract import Added, NewTask

_MANY = 1_000  # slots where no limit was said: the consumers' own counts decide

_STATUS = (
    "status", "poll_interval", "queue_count", "scheduled_count", "enabled_scheduled_count", "running_count",
    "is_executing", "current_task_id", "updated_at",
)  # fmt: skip


class Scheduler:
    """Runs the tasks of registered consumers on time, inside the event loop that starts it.

    >>> import asyncio
    >>> from onthedot import BaseTaskConsumer
    >>> class Email(BaseTaskConsumer):
    ...     name = "email"
    ...     async def consume(self, task: Task) -> None:
    ...         print("to", task.args["to"])
    >>> async def main() -> None:
    ...     registry = TaskConsumerRegistry()
    ...     registry.register(Email())
    ...     scheduler = Scheduler(registry=registry)
    ...     await scheduler.start()
    ...     handle = scheduler.add_task(Email().produce({"to": "ann"}))
    ...     while not handle.done():
    ...         await asyncio.sleep(0.001)
    ...     await scheduler.stop()
    >>> asyncio.run(main())
    to ann
    """

    def __init__(
        self,
        name: str = "onthedot",
        *,
        store: str = "memory://",
        registry: TaskConsumerRegistry | type[TaskConsumerRegistry] = TaskConsumerRegistry,
        concurrency: int | None = None,
        stop_timeout: Duration | None = None,
        poll_interval: Duration = 10,
        logger: logging.Logger | None = None,
    ) -> None:
        self.registry = registry
        config = RuntimeConfig(
            name=check_name(name, "name of the scheduler"),
            url=store_url(store),
            logs=LogObserver(logger),
            slots=slots_by_executor(_MANY if concurrency is None else concurrency),
            one_pool=True,
            poll_interval=check_poll_interval(poll_interval),
            stop_timeout=check_stop_timeout(stop_timeout),
            keep_pending_on_stop=True,
            count_from_start=True,
        )
        self._definitions = DefinitionRegistry()
        self.runtime: Runtime = Runtime(config, self._definitions)
        self.schedules: Schedules = Schedules(self.runtime)
        self.operations: AppOperations = AppOperations(self.runtime.portal)
        self._take_consumers()
        registry.watch(self._take_consumers)

    async def start(self) -> bool:
        """True: this call started it."""
        return await self.runtime.host.start()

    async def stop(self) -> bool:
        """Nothing starts from this moment; what runs is waited for. What waits is kept for the next start."""
        return await self.runtime.host.stop()

    def add_task(self, task: Task) -> TaskHandle[Any]:
        """Adds a task: before start, after stop, from any thread. Stored when this returns."""
        definition, new = self._new_task(task)
        added = self.runtime.portal.run_sync(lambda client: client.add(new, remote=definition.is_remote))
        return self._handle(definition, new, added)

    async def add(self, task: Task) -> TaskHandle[Any]:
        """The same, awaited."""
        definition, new = self._new_task(task)
        added = await self.runtime.portal.run(lambda client: client.add(new, remote=definition.is_remote))
        return self._handle(definition, new, added)

    def _handle(self, definition: ConsumerDefinition | RemoteDefinition, new: NewTask, added: Added) -> TaskHandle[Any]:
        fresh = check_conflict(new.source, definition.options, new, added)
        return TaskHandle(self.runtime.portal, added.uuid, decode_untyped_result, fresh)

    async def find(self, **where: Unpack[TaskFilter]) -> TaskPage:
        """Tasks, newest first: ``await scheduler.find(state="failed")`` is the history of failures."""
        return await self.operations.find(**where)

    async def retry(self, *uuids: str) -> list[str]:
        """Runs failed or cancelled tasks again."""
        return await self.operations.retry(*uuids)

    def status(self) -> dict[str, Any]:
        """What goes on: state, counts, what runs here, the last error. Never waits, and may be called anywhere.

        A memory store is counted at once. The counts of any other are those of the last look, and right after a start,
        a stop and what this process adds. While it has the store open, a look follows every turn of the worker and
        every status(), ten a second at most, and fewer where a look takes long: so what happens here is in them after
        0.1 s (of a slow store: after 2 s), what other processes do after `poll_interval`, or that long after the last
        status(). They get older only while the store does not answer. Stopped, with the store closed, they stay.
        """
        return self.runtime.status()

    def _new_task(self, task: Task) -> tuple[ConsumerDefinition | RemoteDefinition, NewTask]:
        if not isinstance(task, Task):
            raise TypeError(f"add_task() takes a Task, not {type(task).__name__}")
        definition = self._definitions.consumer_by_name(task.source)
        clock = self.runtime.clock
        return definition, definition.new_task_from(task, clock.now() + clock.wall_clock_jump())

    def _take_consumers(self) -> None:
        """Called when the registry changes."""
        self._definitions.replace_consumers(dict(self.registry.sources))


_shared: Scheduler | None = None
_shared_lock = threading.Lock()


def get_scheduler() -> Scheduler:
    """The scheduler of this process, always the same: the global registry, one task at a time."""
    global _shared  # noqa: PLW0603 - a singleton is what is asked for
    with _shared_lock:
        if _shared is None:
            url = os.environ.get("ONTHEDOT_STORE") or "memory://"
            _shared = Scheduler(store=url, concurrency=1, poll_interval=10, stop_timeout=5)
        return _shared


async def start_scheduler() -> bool:
    """True: this call started it."""
    return await get_scheduler().start()


async def stop_scheduler() -> bool:
    """True: this call stopped it."""
    return await get_scheduler().stop()


def get_scheduler_status() -> dict[str, Any]:
    """Nine fields, as JSON has them: what `Scheduler.status()` tells, which never waits.

    status (stopped, starting, running or stopping) · poll_interval (seconds) · queue_count (tasks that are due and
    wait) · scheduled_count (schedules, not delayed tasks) · enabled_scheduled_count (those that are not paused) ·
    running_count (tasks, in this process) · is_executing · current_task_id (the one that runs longest, or None) ·
    updated_at (ISO 8601, UTC)

    >>> get_scheduler_status()["status"]
    'stopped'
    """
    status = get_scheduler().status()
    return {name: status[name] for name in _STATUS}
