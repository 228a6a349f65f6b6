"""A process that only relays: ``onthedot outbox relay``."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from onthedot.errors import StoreUnavailable
from onthedot.events.components import Components
from onthedot.events.settings import Events
from onthedot.observability import log_format
from onthedot.observability.events import Observers
from onthedot.observability.logs import LogObserver
from onthedot.operations.workers import check_bus
from onthedot.runtime.components import ComponentFactory
from onthedot.runtime.config import RuntimeConfig
from onthedot.stores import connect
from onthedot.stores.capabilities import Outbox, capability
from onthedot.stores.contract import Store

_WAIT_PAUSE = 0.5  # seconds between two attempts to reach the store


class RelayProcess:
    """The relay of one app, without its code.

    url: of the store with the outbox. wait_for_store: seconds that a start waits for a store that cannot be reached.
    """

    def __init__(
        self,
        url: str,
        name: str,
        settings: Events,
        wait_for_store: float,
        form: Literal["console", "json"] | None = None,
        level: str | None = None,
    ) -> None:
        self._config = RuntimeConfig(name=name, url=url, logs=LogObserver(None), slots={}, events=settings)
        self._wait_for_store = wait_for_store
        log_format.configure(form, level, self._config.logs.root)
        self._stop = asyncio.Event()

    async def run(self, on_ready: Callable[[str], object]) -> None:
        """Until SIGTERM or Ctrl+C. on_ready gets the name of the bus."""
        assert self._config.url is not None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):  # Windows: a KeyboardInterrupt is raised as usual
                loop.add_signal_handler(number, self._stop.set)
        store = connect(self._config.url, self._config.clock, self._config.name)
        if not await self._open(store):
            return
        try:
            await self._relay(store, on_ready)
        finally:
            await store.close()

    async def _open(self, store: Store) -> bool:
        """False: it was stopped meanwhile."""
        give_up_at = time.monotonic() + self._wait_for_store
        while not self._stop.is_set():
            try:
                await store.open()
            except StoreUnavailable:
                if time.monotonic() >= give_up_at:
                    raise
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), _WAIT_PAUSE)
            else:
                return True
        return False

    async def _relay(self, store: Store, on_ready: Callable[[str], object]) -> None:
        outbox = capability(store, Outbox, "outbox relay")
        observer = Observers([self._config.logs], self._config.logs.scheduler)
        factory = ComponentFactory(self._config, store, outbox, observer)
        await check_bus(store, factory.connection.shown)
        components = Components([factory.relay()], factory.connection)
        await components.start()
        on_ready(factory.connection.shown)
        try:
            await self._stop.wait()
        finally:
            await components.stop()
