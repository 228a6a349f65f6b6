"""Opens the dead letters of an app, without its code and without a worker."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

from onthedot.events.dead_letter_queue import DeadLetterQueue
from onthedot.events.settings import Events
from onthedot.observability.events import Observers
from onthedot.observability.logs import LogObserver
from onthedot.runtime.components import ComponentFactory
from onthedot.runtime.config import RuntimeConfig
from onthedot.stores.capabilities import Outbox, capability
from onthedot.stores.contract import Store


class OpenedLetters(NamedTuple):
    """shown: the bus, for people."""

    letters: DeadLetterQueue
    shown: str


@asynccontextmanager
async def open_dead_letters(store: Store, name: str, settings: Events) -> AsyncGenerator[OpenedLetters, None]:
    """The dead letters of an app. store: the one with the outbox, which is open."""
    outbox = capability(store, Outbox, "outbox dlt")
    config = RuntimeConfig(name=name, url=None, logs=LogObserver(None), slots={}, events=settings)
    factory = ComponentFactory(config, store, outbox, Observers([config.logs], config.logs.scheduler))
    connection = factory.connection
    try:
        bus = await connection.open()
        letters = DeadLetterQueue(bus, outbox, settings.dlt_suffix, config.clock.now)
        yield OpenedLetters(letters, connection.shown)
    finally:
        await connection.close()
