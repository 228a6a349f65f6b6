"""The store as a kind of bus: one store object per bus, as processes have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from onthedot.clock.system import SystemClock
from onthedot.events.bus import Bus, BusMessage, BusRecord
from onthedot.events.component_session import ComponentSession, SessionPool
from onthedot.events.outbox_rows import bucket_of
from onthedot.events.store_bus import StoreBus
from onthedot.model.uuid7 import new_uuid
from onthedot.observability.events import Observer
from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import NewEvent, OutboxEvent, Store
from tests.contract.bus import Numbered

_NUMBERS = count(1)


class OpenStoreBus(StoreBus):
    """A bus with a store of its own."""

    def __init__(self, store: Store, outbox: Outbox) -> None:
        clock = SystemClock()
        sessions = SessionPool(lambda: ComponentSession("subscriptions", store, clock, Observer(), new_uuid))
        super().__init__(outbox, sessions, clock, to_message)
        self._store = store

    async def open(self) -> None:
        await self._store.open()

    async def close(self) -> None:
        await super().close()
        await self._store.close()


class StoreServer:
    """Messages are put there by marking published events, as a relay does."""

    has_unknown_topics = False
    refuses_records = False

    def __init__(self, new_store: Callable[[], Store]) -> None:
        self._new_store = new_store
        self._putter: Store | None = None

    def new_bus(self) -> Bus:
        store = self._new_store()
        assert isinstance(store, Outbox)
        return OpenStoreBus(store, store)

    def new_topic(self) -> str:
        return f"shop.topic{next(_NUMBERS)}.events"

    async def put(self, topic: str, messages: Sequence[Numbered]) -> None:
        if self._putter is None:
            self._putter = self._new_store()
            await self._putter.open()
        store = self._putter
        assert isinstance(store, Outbox)
        for start in range(0, len(messages), 1000):
            part = messages[start : start + 1000]
            await store.publish([_event(topic, message) for message in part])
        pending: list[int] = []
        while page := await store.find_events({"status": "pending"}, pending[-1] if pending else 0, 1000):
            pending += [stored.seq for stored in page]
        await store.relay("putter", pending, {}, None, to_log=True)

    def to_message(self, record: BusRecord) -> Numbered:
        assert record.message.key is not None
        return Numbered(record.message.key.decode(), int(record.message.value))

    async def close(self) -> None:
        if self._putter is not None:
            await self._putter.close()


def _event(topic: str, message: Numbered) -> NewEvent:
    payload = str(message.number).encode()
    return NewEvent(new_uuid(), topic, message.key, bucket_of(message.key), payload=payload)


def to_message(stored: OutboxEvent) -> BusMessage:
    return BusMessage(stored.event.key.encode(), stored.event.payload or b"")
