"""Sessions of components: their presence in the store, with a lease of their own."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from onthedot.clock.protocol import Clock
from onthedot.engine.heartbeat import Heartbeat, TaskHeartbeatRunner
from onthedot.engine.hint_listener import listen
from onthedot.observability.events import Observer
from onthedot.stores.contract import Hint, Store

LEASE = 5_000  # ms: buckets of a dead relay are free so soon, in a store that does not notice a death by itself
_CLOSE = 1.0  # seconds that the store has to close a session; after that its lease ends it


class SessionWatcher(Protocol):
    """Another process that outlives this one: it ends the sessions of this process when it dies. The supervisor."""

    def watch_session(self, session: str, lease: int, store: str) -> None:
        """lease: ms after which the store ends it by itself. store: its URL; "" for that of the tasks."""
        ...

    def unwatch_session(self, session: str) -> None: ...


class ComponentSession:
    """A session under which components own buckets and get hints. One that is over is replaced.

    Its heartbeats are sent from the event loop of the components, unlike those of a worker: a loop that is blocked for
    a lease sends no events either, so others shall have its buckets.
    """

    def __init__(
        self,
        kind: str,
        store: Store,
        clock: Clock,
        observer: Observer,
        new_uuid: Callable[[], str],
        *,
        app: str = "",
        version: str = "",
        watcher: SessionWatcher | None = None,
        url: str = "",
        bus: str = "",
    ) -> None:
        """kind: "relay" or "subscriptions", in its description, as `bus` is. watcher: ends it if this process dies.

        url: of the store, for the watcher; "" if it is that of the tasks
        """
        self._kind = kind
        self._store = store
        self._clock = clock
        self._observer = observer
        self._new_uuid = new_uuid
        self._app = app
        self._version = version
        self._watcher = watcher
        self._url = url
        self._bus = bus
        self._figures: Mapping[str, object] = {}
        self._started = 0
        self._lock = asyncio.Lock()
        self._heartbeat: Heartbeat | None = None
        self._listening: asyncio.Task[None] | None = None
        self._callbacks: list[Callable[[], object]] = []
        self.id: str = ""  # "" before the first
        self.is_listening: bool = False  # hints come through
        self._is_retired = False

    def on_hint(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Calls back when there may be events to read or buckets to own. The answer ends that."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    async def ready(self) -> str:
        """The session, opened or replaced if need be."""
        if self._is_over():
            async with self._lock:
                if self._is_over():  # another component may have been first
                    await self._replace()
        return self.id

    async def replace(self, lost: str) -> None:
        """Continues as a new session, unless `lost` was replaced before."""
        async with self._lock:
            if self.id == lost:
                await self._replace()

    async def report(self, figures: Mapping[str, object]) -> None:
        """Adds figures to the description of the session, for operators."""
        if self._heartbeat is not None and figures != self._figures:
            self._figures = dict(figures)
            await self._heartbeat.update_info(self._describe())

    def retire(self) -> None:
        """The next `ready` replaces it, which releases the buckets of all its groups."""
        self._is_retired = True
        self._wake()

    async def close(self) -> None:
        """Releases the buckets. A store that cannot be reached does it when the lease is over."""
        async with self._lock:
            try:
                async with asyncio.timeout(_CLOSE):
                    await self._close()
            except Exception as error:  # noqa: BLE001 - reported
                self._observer.store_failed("closing the session", error)
            self._heartbeat = None
            self.id = ""

    def _is_over(self) -> bool:
        if self._heartbeat is None or self._is_retired:
            return True
        if self._lease is None:
            return not self._heartbeat.is_open
        return self._heartbeat.is_fenced()

    @property
    def _lease(self) -> int | None:
        most = self._store.traits.lease_ms
        return None if most is None else min(most, LEASE)

    async def _replace(self) -> None:
        was_open = self._heartbeat is not None and self._heartbeat.is_open  # its opening may have been cancelled
        await self._close()
        if was_open and not self._is_retired:
            self._observer.component_lost(self._kind, self.id)
        self._is_retired = False
        self.id = self._new_uuid()
        self._started = int(self._clock.now())
        runner = TaskHeartbeatRunner()
        self._heartbeat = Heartbeat(
            self._store, self.id, self._describe(), self._clock, self._observer, runner, self._lease
        )
        if self._watcher is not None and self._lease is not None:
            # First: if this process dies now, the watcher knows the session.
            self._watcher.watch_session(self.id, self._lease, self._url)
        await self._heartbeat.open(lambda _: None, self._wake)
        self._listening = asyncio.create_task(
            listen(self._store, self.id, self._receive, self._clock, self._observer, self._on_deaf)
        )

    async def _close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
            self._listening = None
            self.is_listening = False
        if self._heartbeat is not None:
            await self._heartbeat.close()
            if self._watcher is not None:
                self._watcher.unwatch_session(self.id)

    def _describe(self) -> bytes:
        """`component` keeps it out of the list of workers."""
        info = {
            "component": self._kind,
            "host": platform.node(),
            "pid": os.getpid(),
            "app": self._app,
            "version": self._version,
            "started": self._started,
            "bus": self._bus,
        }
        return msgspec.json.encode({**info, **self._figures})

    # -- hints

    def _receive(self, hint: Hint) -> None:
        if hint.resync:
            self.is_listening = True
        if hint.resync or hint.events:
            self._wake()

    def _on_deaf(self) -> None:
        self.is_listening = False

    def _wake(self) -> None:
        for callback in list(self._callbacks):
            callback()


class SessionPool:
    """The sessions of the subscriptions of a process: few, since each costs heartbeats, but one per member of a group.

    Subscriptions of different groups share a session. One that leaves while others stay replaces it, since a session
    leaves all of its groups at once.
    """

    def __init__(self, new_session: Callable[[], ComponentSession]) -> None:
        self._new_session = new_session
        self._groups: dict[ComponentSession, set[str]] = {}

    def join(self, group: str) -> ComponentSession:
        """A session that is not in the group."""
        for session, groups in self._groups.items():
            if group not in groups:
                groups.add(group)
                return session
        session = self._new_session()
        self._groups[session] = {group}
        return session

    async def leave(self, session: ComponentSession, group: str) -> None:
        groups = self._groups[session]
        groups.discard(group)
        if groups:
            session.retire()
            return
        del self._groups[session]
        await session.close()
