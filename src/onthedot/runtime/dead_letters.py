"""Opens the dead letters of an app, without its code and without a worker."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from onthedot.events.dead_letter_queue import DeadLetterQueue
from onthedot.events.settings import Events
from onthedot.observability.events import Observers
from onthedot.observability.logs import LogObserver
from onthedot.operations.workers import check_bus
from onthedot.runtime.components import ComponentFactory
from onthedot.runtime.config import RuntimeConfig
from onthedot.stores.capabilities import Outbox, capability
from onthedot.stores.contract import Store


@asynccontextmanager
async def open_dead_letters(store: Store, name: str, settings: Events) -> AsyncGenerator[DeadLetterQueue, None]:
    """The dead letters of an app. store: the one with the outbox, which is open.

    Raises StoreRefused where the relays send to another bus.
    """
    outbox = capability(store, Outbox, "outbox dlt")
    config = RuntimeConfig(name=name, url=None, logs=LogObserver(None), slots={}, events=settings)
    factory = ComponentFactory(config, store, outbox, Observers([config.logs], config.logs.scheduler))
    connection = factory.connection
    try:
        await check_bus(store, connection.shown)
        yield DeadLetterQueue(await connection.open(), outbox, settings.dlt_suffix, config.clock.now)
    finally:
        await connection.close()
