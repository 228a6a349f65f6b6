"""Hints: who listens, on which loop, and what has gathered for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType

from onthedot.stores.contract import Hint

RECHECK = ""  # among the sources of a notification: Hint.recheck
_NOTHING: Mapping[str, str] = MappingProxyType({})


class HintBuffer:
    """Gathers hints until its loop has time; told from any thread, under the store's lock."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._event = asyncio.Event()
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._told = self._resync = False
        self._sources: set[str] = set()
        self._cancel: dict[str, str] = {}
        self._ended: set[str] = set()

    def tell(
        self,
        sources: Iterable[str] = (),
        cancel: Mapping[str, str] = _NOTHING,
        ended: Iterable[str] = (),
        *,
        resync: bool = False,
    ) -> bool:
        """False: its loop is gone."""
        with self._lock:
            self._resync = self._resync or resync
            self._sources.update(sources)
            self._cancel.update(cancel)
            self._ended.update(ended)
            if self._told:
                return True
            self._told = True
        if threading.get_ident() == self._thread:
            self._event.set()
            return not self._loop.is_closed()
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:  # closed without having stopped listening
            return False
        return True

    async def next(self) -> Hint:
        await self._event.wait()
        self._event.clear()
        with self._lock:
            recheck = RECHECK in self._sources
            hint = Hint(
                frozenset(self._sources - {RECHECK}), dict(self._cancel), frozenset(self._ended), self._resync, recheck
            )
            self._clear()
        return hint


class HintHub:
    """All listeners by session. A session may have several, one a loop."""

    def __init__(self) -> None:
        self._by_session: dict[str, list[HintBuffer]] = {}

    def __contains__(self, session: object) -> bool:
        return session in self._by_session

    def tell(
        self, session: str, sources: Iterable[str] = (), cancel: Mapping[str, str] = _NOTHING, ended: Iterable[str] = ()
    ) -> None:
        for listener in list(self._by_session.get(session, ())):
            if not listener.tell(sources, cancel, ended):
                self.remove(session, listener)

    def tell_all(self, sources: Iterable[str], but: str | None) -> None:
        for session in list(self._by_session):
            if session != but:
                self.tell(session, sources)

    def resync(self) -> None:
        """Some hints were lost."""
        for session, listeners in list(self._by_session.items()):
            for listener in list(listeners):
                if not listener.tell(resync=True):
                    self.remove(session, listener)

    def listen(self, session: str, first: Callable[[], Awaitable[object]] | None = None) -> HintStream:
        """first: what must be there before anything can be heard."""
        return HintStream(self, session, first)

    def add(self, session: str) -> HintBuffer:
        listener = HintBuffer()
        self._by_session.setdefault(session, []).append(listener)
        return listener

    def remove(self, session: str, listener: HintBuffer) -> None:
        there = self._by_session.get(session, [])
        if listener in there:
            there.remove(listener)
        if not there:
            self._by_session.pop(session, None)


class HintStream:
    """A class and not a generator: one that is thrown away in mid-wait must not complain about it."""

    def __init__(self, listeners: HintHub, session: str, first: Callable[[], Awaitable[object]] | None = None) -> None:
        self._first = first
        self._listeners = listeners
        self._session = session
        self._listener: HintBuffer | None = None

    def __aiter__(self) -> HintStream:
        return self

    async def __anext__(self) -> Hint:
        if self._listener is None:
            if self._first is not None:
                await self._first()
            self._listener = self._listeners.add(self._session)
            return Hint(resync=True)
        return await self._listener.next()

    async def aclose(self) -> None:
        if self._listener is not None:
            self._listeners.remove(self._session, self._listener)
