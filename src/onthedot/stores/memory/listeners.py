"""Hints: who listens, on which loop, and what has gathered for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterable

from onthedot.stores.contract import Hint


class Listener:
    """Gathers hints until its loop has time; told from any thread, under the store's lock."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._event = asyncio.Event()
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._told = False
        self._sources: set[str] = set()
        self._cancel: set[str] = set()
        self._ended: set[str] = set()

    def tell(self, sources: Iterable[str] = (), cancel: Iterable[str] = (), ended: Iterable[str] = ()) -> bool:
        """False: its loop is gone."""
        with self._lock:
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
            hint = Hint(frozenset(self._sources), frozenset(self._cancel), frozenset(self._ended))
            self._clear()
        return hint


class Listeners:
    """All listeners by session. A session may have several, one a loop."""

    def __init__(self) -> None:
        self._by_session: dict[str, list[Listener]] = {}

    def __contains__(self, session: object) -> bool:
        return session in self._by_session

    def tell(
        self, session: str, sources: Iterable[str] = (), cancel: Iterable[str] = (), ended: Iterable[str] = ()
    ) -> None:
        for listener in list(self._by_session.get(session, ())):
            if not listener.tell(sources, cancel, ended):
                self._remove(session, listener)

    async def listen(self, session: str) -> AsyncGenerator[Hint, None]:
        listener = Listener()
        self._by_session.setdefault(session, []).append(listener)
        try:
            yield Hint(resync=True)
            while True:
                yield await listener.next()
        finally:
            self._remove(session, listener)

    def _remove(self, session: str, listener: Listener) -> None:
        there = self._by_session.get(session, [])
        if listener in there:
            there.remove(listener)
        if not there:
            self._by_session.pop(session, None)
