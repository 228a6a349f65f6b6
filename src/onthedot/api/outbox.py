"""``app.operations.outbox``: unsent and failed events, for operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, Unpack

from onthedot.client.client import StoreClient
from onthedot.client.portal import Portal
from onthedot.operations import Operations
from onthedot.operations.audit import Actor
from onthedot.operations.outbox import EventInfo, OutboxStatus


class EventFilter(TypedDict, total=False):
    """Which events ``outbox.events`` returns."""

    status: str | None
    """``"pending"``, ``"sent"``, ``"failed"`` or ``"discarded"``."""
    topic: str | None
    """Of this topic."""
    key: str | None
    """With this key."""
    correlation_id: str | None
    """With this correlation id."""
    after: int
    """After this number: `EventInfo.number` of the last one of the page before."""
    limit: int
    """How many at most, up to 1,000; 100 by default."""


class AppOutbox:
    """The outbox of an app, for operators: ``await app.operations.outbox.status()``."""

    def __init__(self, portal: Callable[[], Portal], actor: Actor | None = None, reason: str | None = None) -> None:
        self._portal = portal
        self._actor = actor
        self._reason = reason

    def _acting(self, client: StoreClient) -> Operations:
        return client.operations if self._actor is None else client.operations.acting_as(self._actor, self._reason)

    async def status(self) -> OutboxStatus:
        """Returns what is unsent by topic, the live relays and their buckets, and the groups of the store bus."""
        return await self._portal().run(lambda client: client.operations.outbox.status())

    async def events(self, **where: Unpack[EventFilter]) -> list[EventInfo]:
        """Returns events in the order of publishing, without payloads.

        Args:
            where: See `EventFilter`.
        """
        return await self._portal().run(lambda client: client.operations.outbox.events(**where))

    async def retry(self, *ids: str) -> list[str]:
        """Sends failed events again. Returns the ids of those that were failed.

        Args:
            ids: The ids of the events.
        """
        return await self._portal().run(lambda client: self._acting(client).outbox.retry(*ids))

    async def discard(self, *ids: str, reason: str = "") -> list[str]:
        """Gives failed events up, so that later ones of their keys are sent. Returns the ids of those that were failed.

        Args:
            ids: The ids of the events.
            reason: Kept with the events.
        """
        return await self._portal().run(lambda client: self._acting(client).outbox.discard(*ids, reason=reason))

    async def pause(self, topic: str | None = None, reason: str = "") -> bool:
        """Sends no events until `resume`; relays notice within a second. Returns whether it was paused before.

        Args:
            topic: Only those of this topic.
            reason: Shown to others who look.
        """
        return await self._portal().run(lambda client: self._acting(client).outbox.pause(topic, reason))

    async def resume(self, topic: str | None = None) -> bool:
        """Ends a pause. Returns whether it was paused before.

        Args:
            topic: The topic that was paused.
        """
        return await self._portal().run(lambda client: self._acting(client).outbox.resume(topic))


class SyncAppOutbox:
    """`AppOutbox` for sync code: ``app.sync.operations.outbox.status()``."""

    def __init__(self, portal: Callable[[], Portal], actor: Actor | None = None, reason: str | None = None) -> None:
        self._portal = portal
        self._actor = actor
        self._reason = reason

    def _acting(self, client: StoreClient) -> Operations:
        return client.operations if self._actor is None else client.operations.acting_as(self._actor, self._reason)

    def status(self) -> OutboxStatus:
        return self._portal().run_sync(lambda client: client.operations.outbox.status())

    def events(self, **where: Unpack[EventFilter]) -> list[EventInfo]:
        return self._portal().run_sync(lambda client: client.operations.outbox.events(**where))

    def retry(self, *ids: str) -> list[str]:
        return self._portal().run_sync(lambda client: self._acting(client).outbox.retry(*ids))

    def discard(self, *ids: str, reason: str = "") -> list[str]:
        return self._portal().run_sync(lambda client: self._acting(client).outbox.discard(*ids, reason=reason))

    def pause(self, topic: str | None = None, reason: str = "") -> bool:
        return self._portal().run_sync(lambda client: self._acting(client).outbox.pause(topic, reason))

    def resume(self, topic: str | None = None) -> bool:
        return self._portal().run_sync(lambda client: self._acting(client).outbox.resume(topic))
