"""Rows A and B: a scheduler of consumers, and the one that all modules of a process share."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

from onthedot.codec import encode_open
from onthedot.consumer import ConsumerSource, TaskConsumerRegistry
from onthedot.core import Core, slots
from onthedot.declared import headers, policy_of
from onthedot.clock import to_ms
from onthedot.codec import decode_open_result
from onthedot.engine.firing import Plan
from onthedot.handle import TaskHandle
from onthedot.observe.logs import Logs
from onthedot.options import Seconds, resolve
from onthedot.retry import seconds
from onthedot.schedule import as_schedule
from onthedot.settings import store_url
from onthedot.stores.contract import NewTask, Policy
from onthedot.task import Task, check_name

_MOST = 1_000  # slots where no limit was said: the consumers' own counts decide

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
        stop_timeout: Seconds | None = None,
        poll_interval: Seconds = 10,
        logger: logging.Logger | None = None,
    ) -> None:
        self.registry = registry
        self._core = Core(
            check_name(name, "name of the scheduler"),
            store_url(store),
            Logs(logger),
            slots(_MOST if concurrency is None else concurrency, None, None, None),
            None if stop_timeout is None else seconds(stop_timeout, "stop_timeout"),
            seconds(poll_interval, "poll_interval"),
            one_pool=True,
            keeps_waiting=True,
        )
        self._policies: dict[str, dict[object, Policy]] = {}
        self._consumers: dict[str, ConsumerSource] = {}
        self._take_consumers()
        registry.watch(self._take_consumers)

    async def start(self) -> bool:
        """True: this call started it."""
        for name, source in self._consumers.items():
            schedule = getattr(source.consumer, "schedule", None)
            if schedule is not None:
                rule = as_schedule(schedule)
                self._core.plans[name] = Plan(name, rule, self._new(source.consumer.produce(rule.args), timed=False))
        return await self._core.service.start()

    async def stop(self) -> bool:
        """Nothing starts from this moment; what runs is waited for. What waits is kept for the next start."""
        return await self._core.service.stop()

    def add_task(self, task: Task) -> TaskHandle[Any]:
        """Adds a task: before start, after stop, from any thread. Stored when this returns."""
        new = self._new(task)
        added = self._core.bridge.call(lambda link: link.add(new))
        return TaskHandle(self._core.bridge, added.uuid, decode_open_result, added.fresh)

    async def add(self, task: Task) -> TaskHandle[Any]:
        """The same, awaited."""
        new = self._new(task)
        added = await self._core.bridge.do(lambda link: link.add(new))
        return TaskHandle(self._core.bridge, added.uuid, decode_open_result, added.fresh)

    def status(self) -> dict[str, Any]:
        """What goes on: state, counts, what runs here, the last error."""
        return self._core.status()

    def _new(self, task: Task, *, timed: bool = True) -> NewTask:
        if not isinstance(task, Task):
            raise TypeError(f"add_task() takes a Task, not {type(task).__name__}")
        source = self._consumers.get(task.source)
        options = source.options if source is not None else resolve(task.source)
        lane, cost = (None, 1.0) if source is None else source.lane(task.args)
        policy = policy_of(self._policies.setdefault(task.source, {}), options, {}, self._core.client, cost)
        head = headers({"at": task.schedule_at} if timed else {}, "")
        body = encode_open(task.args, head, name=task.source)
        return NewTask(task.uuid, task.source, body, to_ms(task.schedule_at), 0, lane, None, policy)

    def _take_consumers(self) -> None:
        """The registry has changed."""
        now = dict(self.registry.sources)
        for name in [name for name in self._consumers if name not in now]:
            del self._consumers[name]
            self._core.sources.remove(name)
        for name, consumer in now.items():
            known = self._consumers.get(name)
            if known is None or known.consumer is not consumer:
                self._consumers[name] = ConsumerSource(consumer)
                self._core.sources.put(self._consumers[name])


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
    """The nine fields; never waits."""
    status = get_scheduler().status()
    return {name: status[name] for name in _STATUS}
