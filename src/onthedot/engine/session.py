"""The session of a worker: its identity in the store, its lease and the numbers of its claims."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from onthedot.clock.protocol import Clock
from onthedot.definitions.sources import Sources
from onthedot.engine.config import WorkerConfig
from onthedot.engine.heartbeat import Heartbeat, HeartbeatDelegate, HeartbeatRunner, OnCancel, OnLost
from onthedot.model.agent_names import agent_of
from onthedot.observability.events import Observer
from onthedot.stores.contract import SESSION_FORMAT, ClaimResult, Store, StoreIdentity

Listen: TypeAlias = Callable[[str], Coroutine[Any, Any, None]]


class DataLoss(msgspec.Struct, frozen=True):
    """The identity of a store as it was known, and as it is now."""

    before: StoreIdentity
    after: StoreIdentity

    @property
    def is_complete(self) -> bool:
        """It is another data set. Otherwise the store went back to an older state of the same."""
        return self.before.id != self.after.id


class KnownIdentity:
    """The identity of the store in the last claim. Its fence is the highest known, because fences only grow."""

    def __init__(self) -> None:
        self._last: StoreIdentity | None = None

    def observe(self, identity: StoreIdentity | None, fence: int = 0) -> DataLoss | None:
        """The loss since the last claim, if there was one; each is returned once.

        fence: of this claim; 0 if it took nothing. The leases that an older state renews may bring its last fence up
        to the known one, but a new fence is above all that were given out.
        """
        before = self._last
        if identity is None:
            return None
        self._last = identity
        if before is None:
            return None
        given_before = identity.last_fence
        if fence:
            given_before = min(given_before, fence - 1)
        if identity.id == before.id and given_before >= before.last_fence:
            return None
        return DataLoss(before, StoreIdentity(identity.id, given_before))


@dataclass(eq=False)
class WorkerSession:
    """One presence in the store at a time. A fenced session is replaced by a new one."""

    config: WorkerConfig
    store: Store
    sources: Sources
    schedules: Mapping[str, object]
    clock: Clock
    observer: Observer
    new_uuid: Callable[[], str]
    heartbeat_runner: HeartbeatRunner
    delegate: HeartbeatDelegate | None

    def __post_init__(self) -> None:
        self._listening: asyncio.Task[None] | None = None
        self._known_identity = KnownIdentity()
        self._data_lost: int | None = None  # ms
        self._renew()

    def _renew(self) -> None:
        self.id: str = self.new_uuid()  # random, so a restarted host has another identity
        self.claim_number: int = 0  # of the last claim that was answered
        self.is_claiming: bool = False  # a claim is in flight; at most one per session
        self._started = int(self.clock.now())
        self._heartbeat = Heartbeat(
            self.store,
            self.id,
            self.describe(),
            self.clock,
            self.observer,
            self.heartbeat_runner,
            self.config.lease_ms,
            self.delegate,
        )
        self.observer.session_opened(self.id)

    async def open(self, on_cancel: OnCancel, on_lost: OnLost, listen: Listen) -> None:
        """listen: receives the hints of a session until it is cancelled."""
        self._on_cancel = on_cancel
        self._on_lost = on_lost
        self._listen = listen
        await self._open()

    async def _open(self) -> None:
        await self._heartbeat.open(self._on_cancel, self._on_lost)
        self._listening = asyncio.create_task(self._listen(self.id))

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
            self._listening = None
        await self._heartbeat.close()

    async def replace(self) -> None:
        """Continues as a new session."""
        await self.close()
        self._renew()
        await self._open()

    def is_fenced(self) -> bool:
        """The session may no longer act: it is dead, or its lease has run out by this process's clock."""
        if self.config.lease_ms is None:  # the store notices a death by itself
            return not self._heartbeat.is_open
        return self._heartbeat.is_fenced()

    def find_data_loss(self, claim: ClaimResult | None) -> DataLoss | None:
        """Compares the identity of the store with that of earlier claims; the list of workers shows a loss."""
        loss = None if claim is None else self._known_identity.observe(claim.identity, claim.fence)
        if loss is not None:
            self._data_lost = int(self.clock.now())
        return loss

    async def update_info(self) -> None:
        await self._heartbeat.update_info(self.describe())

    def describe(self) -> bytes:
        """The session's line in the list of workers, as JSON."""
        sources = sorted(self.sources.of_code())
        info: dict[str, object] = {
            "host": platform.node(),
            "pid": os.getpid(),
            "app": self.config.app,
            "version": self.config.version,
            "release": self.config.release,
            "format": SESSION_FORMAT,
            "started": self._started,
            "concurrency": dict(self.config.slots),
            "sources": [name for name, _ in sources],
            "schedules": sorted(self.schedules),
            "max_retries": {name: most for name, source in sources if (most := source.options.max_retries)},
            "agent_keep": {name: source.options.keep for name, source in sources if agent_of(name) is not None},
            "max_kept": self.config.max_retained,
        }
        if self._data_lost is not None:
            info["data_lost"] = self._data_lost
        return msgspec.json.encode(info)
