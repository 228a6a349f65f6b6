"""The message queue: an App with other names for its methods."""

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
from onthedot.model.executor_names import ASYNC
from onthedot.model.options import AddOptions, Priority
from onthedot.model.task import TaskInfo, check_name, check_uuid
from onthedot.mq.config import MQConfig
from onthedot.mq.monitor import HealthMonitor
from onthedot.operations.health import HealthReport, read_health, read_vitals
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

    Everything else is in its app: ``mq.app.pause("orders")``, ``mq.app.get(message_id)``, ``mq.app.schedule(…)``.

    Args:
        config: The settings, or the URL of a store; by default those of `MQConfig`.
        logger: Takes all log lines, instead of the loggers ``onthedot.…``.
    """

    def __init__(self, config: MQConfig | str | None = None, *, logger: logging.Logger | None = None) -> None:
        if isinstance(config, str):
            config = MQConfig(url=config)
        self.config: MQConfig = config or MQConfig()
        self.app: App[None] = App(
            self.config.queue_prefix,
            store=self.config.store,
            lifespan=self._lifespan,
            stop_timeout=None,  # handlers have a timeout of their own
            poll_interval=self.config.delay_fallback_interval,
            logger=logger,
        )
        self._runtime = self.app.runtime
        self._runtime.use(
            replace(
                self._runtime.config,
                has_events=False,
                slots={ASYNC: self.config.max_workers},
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
        """Adds a message; it is stored when this returns. Returns its id.

        Args:
            topic: The topic, whose handler gets the message.
            payload: Any value that JSON can hold, or a type that the handler's annotation names.
            delay: Seconds until it is due.
            priority: 1 to 10, 10 first; or "low", "normal", "high".
            ttl: Seconds from now after which it expires; by default `message_ttl` of the config.
            message_id: Its id; the same id again changes nothing, as long as the first message is kept.
        """
        option = "ttl"
        if ttl is None:
            option = "message_ttl"
            ttl = self.config.message_ttl
        expires_ms = to_duration_ms(ttl, option) - to_duration_ms(delay, "delay")
        if expires_ms <= 0:
            raise ArgumentError(f"message for {topic!r}: it would expire first, {option}={ttl} <= delay={delay}")
        options: AddOptions = {"after": delay, "priority": priority, "expires": expires_ms / 1000}
        if message_id is not None:
            options["uuid"] = check_uuid(message_id)
        return (await self.app.named(topic).options(**options).enqueue(payload=payload)).uuid

    @overload
    def register_handler(self, topic: str, handler: H) -> H: ...
    @overload
    def register_handler(self, topic: str) -> Callable[[H], H]: ...
    def register_handler(self, topic: str, handler: Any = None) -> Any:
        """Declares the handler of a topic; also as a decorator.

        Args:
            topic: The topic; it has one handler.
            handler: ``handler(payload)``, sync or async; a sync one runs in a thread.
        """
        if handler is None:
            return partial(self.register_handler, topic)
        if check_name(topic, "topic") in self._handlers:
            raise DuplicateTask(f"topic {topic!r} has a handler already, {self._handlers[topic]!r}")
        config = self.config
        self.app.task(
            name=topic,
            timeout=config.handler_timeouts.get(topic, config.handler_timeout),
            max_retries=config.max_retries,
            backoff=config.retry_delays or [0],
        )(with_parameter(handler, "payload", f"topic {topic!r}"))
        self._handlers[topic] = handler
        return handler

    async def start(self) -> bool:
        """Handles messages until `stop` is called. Returns False if it was running already."""
        if not await self._runtime.host.start():
            return False
        try:
            await self._ended.wait()
        finally:
            await self.stop()
        return True

    def start_background(self) -> asyncio.Task[bool]:
        """Handles messages in the background of this event loop; await the task to know that it has started."""
        self._starting: asyncio.Task[bool] = asyncio.ensure_future(self._runtime.host.start())
        return self._starting

    async def run(self, duration: float | None = None) -> None:
        """Handles messages until Ctrl+C or SIGTERM; a second signal cancels running handlers.

        Args:
            duration: Seconds after which it stops by itself.
        """
        try:
            await self._runtime.host.run_until_signal("loop", duration)
        finally:  # also if this call was cancelled
            await self.stop()

    async def stop(self, timeout: float | None = None) -> bool:
        """Starts no more handlers and waits for running ones. Returns whether this call stopped it.

        Args:
            timeout: Seconds after which running handlers are cancelled and their messages requeued.
        """
        return await self._runtime.host.stop(timeout)

    async def __aenter__(self) -> MessageQueue:
        """Connects on this event loop; messages are handled after a start."""
        await self.app.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
        await self.app.__aexit__(*exc)

    @asynccontextmanager
    async def _lifespan(self) -> AsyncGenerator[None, None]:
        """The lifespan of a worker: checks health while it runs and ends `start` when it stops."""
        self._ended = asyncio.Event()
        async with HealthMonitor(self._runtime).running(self.config.monitor_interval):
            yield
        self._ended.set()

    def is_running(self) -> bool:
        """Returns whether this process handles messages."""
        return self._runtime.host.status == "running"

    @property
    def status(self) -> dict[str, Any]:
        """The status of this process; does not read the store."""
        worker = self._runtime.worker
        return {
            "status": self._runtime.host.status,
            "topics": sorted(self._handlers),
            "running_count": len(worker.runs) if worker else 0,
            "last_error": repr(worker.last_error) if worker and worker.last_error else None,
        }

    async def health_check(self) -> HealthReport:
        """Checks the store and the workers. The report is false if a check failed; ``.checks`` has them all."""
        runtime = self._runtime
        return await read_health(runtime.portal.run(lambda client: read_vitals(client.store, runtime.clock.now())))

    async def metrics(self) -> dict[str, dict[str, int]]:
        """Returns the number of messages in the store, by topic and state."""
        return await self._runtime.portal.run(lambda client: client.operations.by_source())

    async def dead_letters(self, topic: str | None = None, *, limit: int = 1000) -> list[TaskInfo]:
        """Returns failed messages, newest first: ``.uuid``, ``.args["payload"]``, ``.error``, ``.attempt``.

        Args:
            topic: Only those of this topic.
            limit: How many at most.
        """
        where: TaskFilter = {"state": "failed", "limit": limit}
        if topic is not None:
            where["source"] = topic
        return list(await self.app.find(**where))

    async def retry(self, ids: str | Sequence[str]) -> list[str]:
        """Handles dead letters again, with all retries. Returns the ids of those that are alive now.

        Args:
            ids: The id of a message, or several.
        """
        if isinstance(ids, str):
            ids = [ids]
        return await self.app.retry(*ids)


RedisMessageQueue = MessageQueue
