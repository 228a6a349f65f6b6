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
from onthedot.errors import ArgumentError
from onthedot.model.task import Task, check_name
from onthedot.observability.logs import LogObserver
from onthedot.operations.audit import system_user
from onthedot.operations.task_queries import TaskFilter, TaskPage
from onthedot.runtime.config import RuntimeConfig, check_poll_interval, check_stop_timeout, slots_by_executor
from onthedot.runtime.runtime import Runtime
from onthedot.runtime.settings import store_url
from onthedot.stores.contract import Added, NewTask

_MANY = 1_000  # slots without a limit: the consumers' own counts decide

_STATUS = (
    "status", "poll_interval", "queue_count", "scheduled_count", "enabled_scheduled_count", "running_count",
    "is_executing", "current_task_id", "updated_at",
)  # fmt: skip


class Scheduler:
    """Runs the tasks of registered consumers on time, inside the event loop that starts it.

    `operations` finds and changes tasks, `schedules` schedules. `runtime` is for the packages of this project and may
    change in any release.

    Args:
        name: Separates apps and schedulers that share a store.
        store: URL of the store.
        registry: The consumers; by default the global registry.
        concurrency: How many tasks run at once; None: as many as the consumers' ``concurrent_count`` allow.
        stop_timeout: How long running tasks may go on at a stop; then they are cancelled and run again later. None:
            without a limit.
        poll_interval: How often the scheduler looks at the store without being notified.
        logger: Takes all log lines, instead of the loggers ``onthedot.…``.

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
            has_events=False,
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
        self._verbs: AppOperations = AppOperations(self.runtime.portal, lambda: self.runtime.outbox_portal)
        self.operations: AppOperations = self._verbs.acting_as(system_user())
        self._take_consumers()
        registry.watch(self._take_consumers)

    async def start(self) -> bool:
        """Starts running tasks on this event loop. Returns whether this call started it."""
        return await self.runtime.host.start()

    async def stop(self) -> bool:
        """Starts no more tasks and waits for running ones. Pending tasks are kept for the next start."""
        return await self.runtime.host.stop()

    def add_task(self, task: Task) -> TaskHandle[Any]:
        """Adds a task, also before the start, after the stop and from any thread. It is stored when this returns.

        Args:
            task: The task, as ``produce()`` of its consumer returns it.
        """
        definition, new = self._new_task(task)
        added = self.runtime.portal.run_sync(lambda client: client.add(new, remote=definition.is_remote), adds=new)
        return self._handle(definition, new, added)

    async def add(self, task: Task) -> TaskHandle[Any]:
        """Adds a task, for async code.

        Args:
            task: The task, as ``produce()`` of its consumer returns it.
        """
        definition, new = self._new_task(task)
        added = await self.runtime.portal.run(lambda client: client.add(new, remote=definition.is_remote), adds=new)
        return self._handle(definition, new, added)

    def _handle(self, definition: ConsumerDefinition | RemoteDefinition, new: NewTask, added: Added) -> TaskHandle[Any]:
        fresh = check_conflict(new.source, definition.options, new, added)
        return TaskHandle(self.runtime.portal, added.uuid, decode_untyped_result, fresh)

    async def find(self, **where: Unpack[TaskFilter]) -> TaskPage:
        """Returns a page of tasks: ``find(state="failed")`` is the history of failures, the last end first.

        Args:
            where: See `TaskFilter`.
        """
        return await self.operations.find(**where)

    async def retry(self, *uuids: str) -> list[str]:
        """Runs failed or cancelled tasks again. Returns the uuids of those that are alive now.

        Args:
            uuids: The ids of the tasks.
        """
        return await self._verbs.retry(*uuids)

    def status(self) -> dict[str, Any]:
        """Returns state, counts, running tasks of this process and the last error. Never waits; callable anywhere.

        A memory store is counted at once. For other stores the counts are those of the last read, exact after a start,
        a stop and an add of this process. While the store is open, it is read again after every turn of the worker and
        every ``status()``, at most ten times per second, less often where a read takes long. So changes of this process
        appear after 0.1 s (slow stores: 2 s), those of other processes after `poll_interval`, or as long after the last
        ``status()``. The counts are older only while the store does not answer, or is closed.
        """
        return self.runtime.status()

    def _new_task(self, task: Task) -> tuple[ConsumerDefinition | RemoteDefinition, NewTask]:
        if not isinstance(task, Task):
            raise ArgumentError(f"add_task() takes a Task, not {type(task).__name__}")
        definition = self._definitions.consumer_by_name(task.source)
        clock = self.runtime.clock
        return definition, definition.new_task_from(task, clock.now() + clock.wall_clock_jump())

    def _take_consumers(self) -> None:
        """Called when the registry changes."""
        self._definitions.replace_consumers(dict(self.registry.sources))


shared: Scheduler | None = None  # of this process; tests replace it
_shared_lock = threading.Lock()


def get_scheduler() -> Scheduler:
    """Returns the scheduler of this process, always the same: the global registry, one task at a time."""
    global shared  # noqa: PLW0603 - a singleton is what is asked for
    with _shared_lock:
        if shared is None:
            url = os.environ.get("ONTHEDOT_STORE") or "memory://"
            shared = Scheduler(store=url, concurrency=1, poll_interval=10, stop_timeout=5)
        return shared


async def start_scheduler() -> bool:
    """Starts the scheduler of this process. Returns whether this call started it."""
    return await get_scheduler().start()


async def stop_scheduler() -> bool:
    """Stops the scheduler of this process. Returns whether this call stopped it."""
    return await get_scheduler().stop()


def get_scheduler_status() -> dict[str, Any]:
    """Returns nine fields of `Scheduler.status()` as JSON values, without waiting.

    status (stopped, starting, running or stopping) · poll_interval (seconds) · queue_count (due tasks that wait) ·
    scheduled_count (schedules, not delayed tasks) · enabled_scheduled_count (schedules that are not paused) ·
    running_count (tasks in this process) · is_executing · current_task_id (the task that runs longest, or None) ·
    updated_at (ISO 8601, UTC)

    >>> get_scheduler_status()["status"]
    'stopped'
    """
    status = get_scheduler().status()
    return {name: status[name] for name in _STATUS}
