"""The page with the metrics of all workers of a store, read over connections of its own."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from msgspec import Struct

from onthedot.clock.system import SystemClock
from onthedot.errors import StoreError
from onthedot.observability.metrics import metrics_text
from onthedot.operations.fleet_metrics import FLEET_METRICS, FleetMetrics, unavailable
from onthedot.stores import connect
from onthedot.stores.contract import Store

_MAX_AGE = 5.0  # seconds for which a page is kept: several scrapers cost one reading
_TIMEOUT = 4.0  # seconds


class StoreSpec(Struct, frozen=True):
    """The stores of an app. outbox: the one with the events, if that is another."""

    url: str
    app: str
    outbox: str = ""


class FleetPage:
    """Connects with the first request. A store that does not answer is a page with ``onthedot_store_up 0``."""

    def __init__(self, max_sources: int) -> None:
        self._max_sources = max_sources
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._reader: FleetMetrics | None = None
        self._text = ""
        self._read_at = -_MAX_AGE

    async def text(self, spec: StoreSpec) -> str:
        """For Prometheus."""
        async with self._lock:
            if time.monotonic() - self._read_at >= _MAX_AGE:
                self._text = await self._read(spec)
                self._read_at = time.monotonic()
            return self._text

    async def close(self) -> None:
        """Closes the connections."""
        self._reader = None
        await self._stack.aclose()

    async def _read(self, spec: StoreSpec) -> str:
        try:
            async with asyncio.timeout(_TIMEOUT):
                if self._reader is None:
                    self._reader = await self._connect(spec)
                figures = await self._reader.read()
        except (StoreError, OSError, TimeoutError):
            await self.close()
            figures = unavailable()
        return metrics_text(FLEET_METRICS, figures)

    async def _connect(self, spec: StoreSpec) -> FleetMetrics:
        clock = SystemClock()
        store = await self._open(connect(spec.url, clock, spec.app))
        outbox = store
        if spec.outbox:
            outbox = await self._open(connect(spec.outbox, clock, spec.app))
        return FleetMetrics(store, outbox, clock, self._max_sources)

    async def _open(self, store: Store) -> Store:
        await store.open()
        self._stack.push_async_callback(store.close)
        return store
