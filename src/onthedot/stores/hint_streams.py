"""Hints inside one process: a hub passes them to the listeners of a session, each on its own event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType

from onthedot.stores.contract import Hint

_NONE: Mapping[str, str] = MappingProxyType({})


class HintBuffer:
    """Gathers the hints of one listener until its event loop reads them. Any thread may notify."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._event = asyncio.Event()
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._notified = False
        self._resync = False
        self._recheck = False
        self._events = False
        self._sources: set[str] = set()
        self._cancel_requests: dict[str, str] = {}
        self._ended: set[str] = set()
        self._new_items: set[str] = set()

    def notify(
        self,
        sources: Iterable[str] = (),
        cancel_requests: Mapping[str, str] = _NONE,
        ended: Iterable[str] = (),
        new_items: Iterable[str] = (),
        *,
        recheck: bool = False,
        resync: bool = False,
        events: bool = False,
    ) -> bool:
        """Add to the next hint; False: the event loop is closed."""
        with self._lock:
            self._resync = self._resync or resync
            self._recheck = self._recheck or recheck
            self._events = self._events or events
            self._sources.update(sources)
            self._cancel_requests.update(cancel_requests)
            self._ended.update(ended)
            self._new_items.update(new_items)
            if self._notified:
                return True
            self._notified = True
        if threading.get_ident() == self._thread:
            self._event.set()
            return not self._loop.is_closed()
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:  # the loop was closed before its listener
            return False
        return True

    async def next(self) -> Hint:
        await self._event.wait()
        self._event.clear()
        with self._lock:
            hint = Hint(
                frozenset(self._sources),
                self._cancel_requests,
                frozenset(self._ended),
                self._resync,
                self._recheck,
                new_items=frozenset(self._new_items),
                events=self._events,
            )
            self._clear()
        return hint


class HintHub:
    """All listeners by session. A session may have several, one per event loop."""

    def __init__(self) -> None:
        self._by_session: dict[str, list[HintBuffer]] = {}

    def __contains__(self, session: object) -> bool:
        return session in self._by_session

    def __len__(self) -> int:
        return len(self._by_session)

    def notify(
        self,
        session: str,
        sources: Iterable[str] = (),
        cancel_requests: Mapping[str, str] = _NONE,
        ended: Iterable[str] = (),
        new_items: Iterable[str] = (),
        *,
        recheck: bool = False,
        resync: bool = False,
        events: bool = False,
    ) -> None:
        for listener in list(self._by_session.get(session, ())):
            if not listener.notify(
                sources, cancel_requests, ended, new_items, recheck=recheck, resync=resync, events=events
            ):
                self.remove(session, listener)

    def notify_all(self, sources: Iterable[str], *, recheck: bool = False, caller: str | None = None) -> None:
        """Notify every session but the caller's, which sees the effects of its call itself."""
        for session in list(self._by_session):
            if session != caller:
                self.notify(session, sources, recheck=recheck)

    def resync(self) -> None:
        """Some hints were lost."""
        for session in list(self._by_session):
            self.notify(session, resync=True)

    def listen(self, session: str, connect: Callable[[], Awaitable[object]] | None = None) -> HintStream:
        """connect: awaited before the first hint, which has `resync` set."""
        return HintStream(self, session, connect)

    def add(self, session: str) -> HintBuffer:
        listener = HintBuffer()
        self._by_session.setdefault(session, []).append(listener)
        return listener

    def remove(self, session: str, listener: HintBuffer) -> None:
        listeners = self._by_session.get(session, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self._by_session.pop(session, None)


class HintStream:
    """The hints of one listener. A class and not a generator: it may be dropped while it waits, without a warning."""

    def __init__(self, hub: HintHub, session: str, connect: Callable[[], Awaitable[object]] | None = None) -> None:
        self._hub = hub
        self._session = session
        self._connect = connect
        self._listener: HintBuffer | None = None

    def __aiter__(self) -> HintStream:
        return self

    async def __anext__(self) -> Hint:
        if self._listener is None:
            if self._connect is not None:
                await self._connect()
            self._listener = self._hub.add(self._session)
            return Hint(resync=True)
        return await self._listener.next()

    async def aclose(self) -> None:
        if self._listener is not None:
            self._hub.remove(self._session, self._listener)
