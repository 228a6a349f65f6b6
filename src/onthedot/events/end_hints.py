"""Hints about the ends of tasks that the subscriptions of a process have added."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TypeAlias

from onthedot.clock.protocol import Clock
from onthedot.engine.hint_listener import listen
from onthedot.observability.events import Observer
from onthedot.stores.contract import Hint, Store

OnEnded: TypeAlias = Callable[[Collection[str] | None], object]
"""Called with the uuids of tasks that have ended; None: hints may have been lost."""


class EndHints:
    """One session that all subscriptions of a process share. session: `reply_to` of the tasks that they add."""

    def __init__(self, store: Store, session: str, clock: Clock, observer: Observer) -> None:
        self.session = session
        self._store = store
        self._clock = clock
        self._observer = observer
        self._callbacks: list[OnEnded] = []
        self._listening: asyncio.Task[None] | None = None

    def join(self, callback: OnEnded) -> None:
        self._callbacks.append(callback)
        if self._listening is None:
            self._listening = asyncio.create_task(
                listen(self._store, self.session, self._receive, self._clock, self._observer)
            )

    async def leave(self, callback: OnEnded) -> None:
        self._callbacks.remove(callback)
        if self._callbacks or self._listening is None:
            return
        listening = self._listening
        self._listening = None
        listening.cancel()
        await asyncio.wait([listening])

    def _receive(self, hint: Hint) -> None:
        if not hint.resync and not hint.ended:
            return
        for callback in list(self._callbacks):
            callback(None if hint.resync else hint.ended)
