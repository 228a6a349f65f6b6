"""Work of a worker that is due now and then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf

from onthedot.clock.protocol import Clock
from onthedot.engine.config import WorkerConfig
from onthedot.engine.session import WorkerSession
from onthedot.engine.slots import Slots
from onthedot.stores.contract import Store

_PURGE_INTERVAL = 60_000.0  # ms
_PURGE_BATCH = 200


class Maintenance:
    """Updates limits and schedules in the store when code declares new ones, and purges ended tasks."""

    def __init__(
        self,
        config: WorkerConfig,
        store: Store,
        session: WorkerSession,
        slots: Slots,
        clock: Clock,
        declare: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._store = store
        self._session = session
        self._slots = slots
        self._clock = clock
        self._declare = declare
        self._definitions_changed = False
        self._purged_at = clock.now()

    def mark_definitions_changed(self) -> None:
        self._definitions_changed = True

    async def update_definitions(self) -> None:
        if not self._definitions_changed:
            return
        self._definitions_changed = False  # before the call: a change during the call sets it again
        try:
            await self._declare()
            await self._session.update_info()
        except BaseException:
            self._definitions_changed = True
            raise

    async def purge_if_due(self) -> bool:
        """Deletes ended tasks whose retention is over, few per turn because other callers wait for the store.

        True: there are more. A limit per minute would limit how many tasks can run.
        """
        now = self._clock.now()
        if self._slots.closed or now - self._purged_at < _PURGE_INTERVAL:
            return False
        if await self._store.purge(_PURGE_BATCH, self._config.max_retained) == _PURGE_BATCH:
            return True
        self._purged_at = now
        return False

    def stop_purging(self) -> None:
        self._purged_at = inf
