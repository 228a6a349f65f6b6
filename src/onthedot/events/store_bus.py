"""The store as a bus: marking an event as sent appends it to the log of its bucket, and groups read the logs.

Partition = bucket, offset = position in its log. All topics of a bucket share one log.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeAlias
from zlib import crc32

from onthedot.clock.protocol import Clock
from onthedot.events.bus import BusMessage, BusRecord, Revoked
from onthedot.events.component_session import SessionPool
from onthedot.events.store_subscription import StoreSubscription
from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import BUCKETS, OutboxEvent

_PAGE = 500

ToMessage: TypeAlias = Callable[[OutboxEvent], BusMessage]


class StoreBus:
    """Durable, shared by processes and ordered per key, as the store is. It has 16 partitions per topic.

    polls: False for a store whose hints are never lost
    """

    to_log: bool = True

    def __init__(
        self, outbox: Outbox, sessions: SessionPool, clock: Clock, to_message: ToMessage, *, polls: bool = True
    ) -> None:
        self._outbox = outbox
        self._sessions = sessions
        self._clock = clock
        self._to_message = to_message
        self._polls = polls
        self._subscriptions: set[StoreSubscription] = set()

    async def open(self) -> None:
        """The store is open."""

    async def close(self) -> None:
        open_ones = [each.close() for each in self._subscriptions]
        await asyncio.gather(*open_ones)

    async def partition_count(self, topic: str) -> int:  # noqa: ARG002 - all topics have the same
        return BUCKETS

    def partition_of(self, key: bytes, count: int) -> int:
        return crc32(key) % count

    async def send(self, topic: str, partition: int, messages: Sequence[BusMessage]) -> None:
        """The relay marks them with its next turn, and they are in the log from then on."""

    async def subscribe(self, group: str, topics: Sequence[str], on_revoked: Revoked) -> StoreSubscription:
        """A topic that is added to a group later is read from the position of the group on: the log is one for all."""
        subscription = StoreSubscription(
            self._outbox,
            self._sessions,
            group,
            topics,
            on_revoked,
            self._clock,
            self._to_record,
            polls=self._polls,
            on_closed=self._subscriptions.discard,
        )
        self._subscriptions.add(subscription)
        return subscription

    async def peek(self, topic: str) -> AsyncIterator[BusRecord]:
        after = 0
        while page := await self._outbox.find_events({"topic": topic, "status": "sent"}, after, _PAGE):
            for stored in page:
                if stored.position is not None:  # otherwise it was sent while another bus was in use
                    yield self._to_record(stored)
            after = page[-1].seq

    def _to_record(self, stored: OutboxEvent) -> BusRecord:
        assert stored.position is not None
        return BusRecord(stored.event.topic, stored.event.bucket, stored.position, self._to_message(stored))
