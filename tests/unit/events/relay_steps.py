"""A relay on a memory store, with a clock that the test drives and a bus whose answers it decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from random import Random
from typing import Any
from zlib import crc32

from onthedot.clock.manual import ManualClock
from onthedot.events.bus import BusMessage, BusRecord, RecordRefused, Revoked, Subscription
from onthedot.events.bus_connection import BusConnection
from onthedot.events.component_session import ComponentSession, SessionWatcher
from onthedot.events.relay import Relay, RelaySettings
from onthedot.observability.events import Observer
from onthedot.stores.contract import BUCKETS, NewEvent, OutboxEvent, StoreTraits
from onthedot.stores.memory import MemoryStore

TOPIC = "shop.order.events"
_numbers = count(1)


def event(key: str = "k", topic: str = TOPIC, event_id: str | None = None, payload: bytes = b"{}") -> NewEvent:
    return NewEvent(event_id or f"e{next(_numbers):06}", topic, key, crc32(key.encode()) % BUCKETS, payload=payload)


def to_message(stored: OutboxEvent) -> BusMessage:
    """Only the id matters here."""
    if stored.event.payload == b"unreadable":
        raise ValueError("no JSON")
    return BusMessage(stored.event.key.encode(), stored.event.id.encode())


class LeasedMemoryStore(MemoryStore):
    """A memory store whose sessions need heartbeats, and whose hints may be lost."""

    traits = StoreTraits(shared=True, synchronous=True, cancel_safe=True, lease_ms=15_000)


class TestBus:
    """Keeps what is sent. `gate` holds batches back until it is set; `refuse` and `fail` decide about errors."""

    __test__ = False
    to_log = False

    def __init__(self, partitions: int = 4) -> None:
        self.partitions = partitions
        self.sent: list[str] = []
        self.batches: list[tuple[str, int, list[str]]] = []
        self.in_flight: dict[tuple[str, int], int] = {}
        self.most_in_flight = 0  # of one partition
        self.gate: asyncio.Event = asyncio.Event()
        self.gate.set()
        self.refused: set[str] = set()
        self.unavailable: dict[str, Exception] = {}  # by topic, when partitions are looked up
        self.send_errors: dict[str, Exception] = {}  # by topic
        self.open_errors: list[Exception] = []
        self.opened = 0
        self.closed = 0
        self.lookups: list[str] = []

    async def open(self) -> None:
        if self.open_errors:
            raise self.open_errors.pop(0)
        self.opened += 1

    async def close(self) -> None:
        self.closed += 1

    async def partition_count(self, topic: str) -> int:
        self.lookups.append(topic)
        if topic in self.unavailable:
            raise self.unavailable[topic]
        return self.partitions

    def partition_of(self, key: bytes, count: int) -> int:
        return crc32(key) % count

    async def send(self, topic: str, partition: int, messages: Sequence[BusMessage]) -> None:
        place = (topic, partition)
        self.in_flight[place] = self.in_flight.get(place, 0) + 1
        self.most_in_flight = max(self.most_in_flight, *self.in_flight.values())
        try:
            await self.gate.wait()
            if topic in self.send_errors:
                raise self.send_errors[topic]
            ids = [message.value.decode() for message in messages]
            for index, event_id in enumerate(ids):
                if event_id in self.refused:
                    raise RecordRefused(index, "too large")
                self.sent.append(event_id)
            self.batches.append((topic, partition, ids))
        finally:
            self.in_flight[place] -= 1

    async def subscribe(self, group: str, topics: Sequence[str], on_revoked: Revoked) -> Subscription:
        raise NotImplementedError

    def peek(self, topic: str) -> AsyncIterator[BusRecord]:
        raise NotImplementedError


class Recorder(Observer):
    """Keeps the calls of some events."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == name]

    def relay_started(self, bus: str) -> None:
        self.calls.append(("relay_started", bus))

    def component_lost(self, component: str, session: str) -> None:
        self.calls.append(("component_lost", component, session))

    def buckets_changed(self, buckets: Sequence[int]) -> None:
        self.calls.append(("buckets_changed", list(buckets)))

    def event_refused(self, refused: OutboxEvent, error: str) -> None:
        self.calls.append(("event_refused", refused.event.id, error))

    def topic_unavailable(self, topic: str, seconds: float, error: Exception) -> None:
        self.calls.append(("topic_unavailable", topic, seconds))

    def bus_failed(self, operation: str, error: Exception) -> None:
        self.calls.append(("bus_failed", operation, str(error)))

    def bus_recovered(self, operation: str) -> None:
        self.calls.append(("bus_recovered", operation))

    def store_failed(self, operation: str, error: BaseException) -> None:
        self.calls.append(("store_failed", operation, str(error)))

    def store_recovered(self, operation: str) -> None:
        self.calls.append(("store_recovered", operation))


class Setup:
    """One store with relays on it."""

    def __init__(self, store: MemoryStore | None = None, clock: ManualClock | None = None) -> None:
        self.clock: ManualClock = clock or ManualClock()
        self.store: MemoryStore = store or MemoryStore(self.clock)
        self.bus: TestBus = TestBus()
        self.observer: Recorder = Recorder()

    def session(self, kind: str = "relay", watcher: SessionWatcher | None = None) -> ComponentSession:
        def new_uuid() -> str:
            return f"{kind}{next(_numbers)}"

        return ComponentSession(kind, self.store, self.clock, self.observer, new_uuid, watcher=watcher)

    def new_relay(self, bus: TestBus | None = None, **options: Any) -> Relay:
        connection = BusConnection(bus or self.bus, "a test", self.clock, self.observer)
        return Relay(
            options.pop("outbox", self.store),
            options.pop("session", None) or self.session(),
            connection,
            RelaySettings(),
            clock=self.clock,
            random=Random(1),
            observer=self.observer,
            read_limits=options.pop("read_limits", self.store.limits),
            to_message=to_message,
            polls=self.store.traits.shared,
        )

    @asynccontextmanager
    async def relay(self, bus: TestBus | None = None, **options: Any) -> AsyncGenerator[Relay, None]:
        relay = self.new_relay(bus, **options)
        await relay.start()
        try:
            yield relay
        finally:
            await relay.stop()

    async def publish(self, *events: NewEvent) -> list[str]:
        await self.store.publish(events)
        return [each.id for each in events]

    async def statuses(self) -> dict[str, str]:
        found = await self.store.find_events({}, 0, 10_000)
        return {stored.event.id: stored.status for stored in found}


async def settled(relay: Relay) -> None:
    """Returns when the relay has nothing to do."""
    before = -1
    while before != relay.event_count:
        before = relay.event_count
        relay.recheck()
        await asyncio.wait_for(relay.idle.wait(), 5)


def failing(call: Callable[..., Any], times: int, error: Exception) -> Callable[..., Any]:
    """The call, after it has failed so many times."""
    left = [times]

    async def fail(*args: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise error
        return await call(*args, **options)

    return fail
