"""The queue: produce, handle, look. A thin door on an App."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, overload

from onthedot.api.app import App
from onthedot.api.functions import with_parameter
from onthedot.clock.durations import to_duration_ms
from onthedot.errors import ArgumentError, DuplicateTask
from onthedot.model.options import AddOptions, Priority
from onthedot.model.task import TaskInfo, check_name, check_uuid
from onthedot.mq.config import MQConfig
from onthedot.operations.health import HealthReport, examine, read_vitals
from onthedot.operations.monitor import HealthMonitor
from onthedot.operations.task_queries import TaskFilter

H = TypeVar("H", bound=Callable[[Any], Any])


class MessageQueue:
    """Messages that are handled on time, by whichever process is free.

    >>> mq = MessageQueue("memory://")
    >>> @mq.register_handler("orders")
    ... async def ship(order: dict[str, int]) -> None:
    ...     print("shipping", order["id"])
    >>> async def main() -> None:
    ...     async with mq:
    ...         await mq.start_background()
    ...         message_id = await mq.produce("orders", {"id": 17}, delay=0.01, priority="high")
    ...         await mq.app.ahandle(message_id)
    >>> asyncio.run(main())
    shipping 17

    What it does not have, its app has: ``mq.app.pause("orders")``, ``mq.app.get(message_id)``, ``mq.app.schedule(…)``.
    """

    def __init__(self, config: MQConfig | str | None = None, *, logger: logging.Logger | None = None) -> None:
        self.config: MQConfig = MQConfig(url=config) if isinstance(config, str) else config or MQConfig()
        self.app: App[None] = App(
            self.config.queue_prefix,
            store=self.config.store,
            lifespan=self._alive,
            stop_timeout=None,  # handlers have a timeout of their own
            poll_interval=self.config.delay_fallback_interval,
            logger=logger,
        )
        self._runtime = self.app.runtime
        self._runtime.use(
            replace(
                self._runtime.config,
                slots={"async": self.config.max_workers},
                one_pool=True,  # sync and async handlers share them
                claim_batch=self.config.batch_size,
                keep_pending_on_stop=True,  # also in a memory store
                lease_ms=int(self.config.processing_timeout * 1000) or 1,
            )
        )
        self._handlers: dict[str, Callable[[Any], Any]] = {}
        self._ended: asyncio.Event = asyncio.Event()

    async def produce(
        self, topic: str, payload: Any, *, delay: float = 0, priority: Priority = "normal", ttl: float | None = None,
        message_id: str | None = None,
    ) -> str:  # fmt: skip
        """Stored when this returns; answers with its id. delay and ttl (else ``message_ttl``): seconds from now.

        The same `message_id` again changes nothing: the first one stands, as long as it is kept.
        """
        lives, named = (self.config.message_ttl, "message_ttl") if ttl is None else (ttl, "ttl")
        left = to_duration_ms(lives, named) - to_duration_ms(delay, "delay")
        if left <= 0:
            raise ArgumentError(f"message for {topic!r}: it would expire first, {named}={lives} <= delay={delay}")
        said: AddOptions = {"after": delay, "priority": priority, "expires": left / 1000}
        if message_id is not None:
            said["uuid"] = check_uuid(message_id)
        return (await self.app.named(topic).options(**said).enqueue(payload=payload)).uuid

    @overload
    def register_handler(self, topic: str, handler: H) -> H: ...
    @overload
    def register_handler(self, topic: str) -> Callable[[H], H]: ...
    def register_handler(self, topic: str, handler: Any = None) -> Any:
        """``handler(payload)``, async or sync (in a thread); one a topic. Also as a decorator."""
        if handler is None:
            return partial(self.register_handler, topic)
        if check_name(topic, "topic") in self._handlers:
            raise DuplicateTask(f"topic {topic!r} has a handler already, {self._handlers[topic]!r}")
        task, config = with_parameter(handler, "payload", f"topic {topic!r}"), self.config
        timeout, delays = config.handler_timeouts.get(topic, config.handler_timeout), config.retry_delays or [0]
        self.app.task(name=topic, timeout=timeout, max_retries=config.max_retries, backoff=delays)(task)
        self._handlers[topic] = handler
        return handler

    async def start(self) -> bool:
        """Handles messages until it is stopped. False: it was running already."""
        if not await self._runtime.host.start():
            return False
        try:
            await self._ended.wait()
        finally:
            await self.stop()
        return True

    def start_background(self) -> asyncio.Task[bool]:
        """Handles messages beside what else this event loop does; await the answer to know that it runs."""
        self._starting: asyncio.Task[bool] = asyncio.ensure_future(self._runtime.host.start())
        return self._starting

    async def run(self, duration: float | None = None) -> None:
        """Handles messages for so many seconds, or until Ctrl+C or SIGTERM; a second one ends what still runs."""
        try:
            await self._runtime.host.run_until_signal("loop", duration)
        finally:  # also if this call was cancelled
            await self.stop()

    async def stop(self, timeout: float | None = None) -> bool:
        """Begins no more. Handlers finish, or are ended after `timeout` seconds and their messages go back."""
        return await self._runtime.host.stop(timeout)

    async def __aenter__(self) -> MessageQueue:
        """Connects on this event loop; handles nothing before it is started."""
        await self.app.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
        await self.app.__aexit__(*exc)

    @asynccontextmanager
    async def _alive(self) -> AsyncGenerator[None, None]:
        """As long as it handles messages, whichever way it was started."""
        self._ended = asyncio.Event()
        async with HealthMonitor(self._runtime).running(self.config.monitor_interval):
            yield
        self._ended.set()

    def is_running(self) -> bool:
        return self._runtime.host.status == "running"

    @property
    def status(self) -> dict[str, Any]:
        """What goes on in this process; asks nobody."""
        worker = self._runtime.worker
        return {
            "status": self._runtime.host.status,
            "topics": sorted(self._handlers),
            "running_count": len(worker.runs) if worker else 0,
            "last_error": repr(worker.last_error) if worker and worker.last_error else None,
        }

    async def health_check(self) -> HealthReport:
        """False if something is wrong with the store or the fleet: ``.checks`` says what."""
        runtime = self._runtime
        return await examine(runtime.portal.run(lambda client: read_vitals(client.store, runtime.clock.now())))

    async def metrics(self) -> dict[str, dict[str, int]]:
        """How many messages there are in the store, by topic and state."""
        return await self._runtime.portal.run(lambda client: client.operations.by_source())

    async def dead_letters(self, topic: str | None = None, *, limit: int = 1000) -> list[TaskInfo]:
        """Messages that failed for good, newest first: ``.uuid``, ``.args["payload"]``, ``.error``, ``.attempt``."""
        where: TaskFilter = {"state": "failed", "limit": limit}
        return list(await self.app.find(**where if topic is None else {**where, "source": topic}))

    async def retry(self, ids: str | Sequence[str]) -> list[str]:
        """Handles dead letters again, with all their retries. Answers with those that are alive now."""
        return await self.app.retry(*([ids] if isinstance(ids, str) else ids))


RedisMessageQueue = MessageQueue
