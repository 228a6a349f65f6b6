"""Keeps a session alive, and notices when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from onthedot.clock import Clock
from onthedot.engine.wake import Wake
from onthedot.observe.logs import Logs
from onthedot.stores.contract import Store

FOREVER = 100 * 365 * 86_400_000
"""The lease in a store that sees a death by itself."""


class Keeper:
    """Opens the session, then beats three times a lease. No answered beat for a whole lease: the runs are lost."""

    def __init__(self, store: Store, session: str, info: bytes, clock: Clock, logs: Logs) -> None:
        self._store = store
        self._session = session
        self._info = info
        self._clock = clock
        self._logs = logs
        self._task: asyncio.Task[None] | None = None

    async def open(self, cancel: Callable[[str], None], lost: Callable[[], None]) -> None:
        """cancel(uuid): somebody wants this run to end. lost(): the session is dead, what runs counts no more."""
        lease = self._store.lease or FOREVER
        await self._store.beat(self._session, self._info, lease)
        if self._store.lease is not None:
            self._task = asyncio.create_task(self._beat(lease, cancel, lost))

    async def tell(self, info: bytes) -> None:
        """What the session says of itself; written only if it is something new."""
        if info != self._info:
            await self._store.beat(self._session, info, self._store.lease or FOREVER)
            self._info = info

    async def _beat(self, lease: int, cancel: Callable[[str], None], lost: Callable[[], None]) -> None:
        wake = Wake(self._clock)
        answered = self._clock.now()
        while True:
            await wake.until(lease / 3)
            wake.clear()
            try:
                beat = await self._store.beat(self._session, self._info, lease)
            except Exception as error:  # noqa: BLE001 - told, and tried again with the next beat
                self._logs.trouble("beat", error)
                if self._clock.now() - answered >= lease:
                    lost()
                    return
                continue
            if not beat.alive:
                lost()
                return
            answered = self._clock.now()
            for lease_of in beat.cancel:
                cancel(lease_of.uuid)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        await self._store.close(self._session)
