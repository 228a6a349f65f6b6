"""The callback service stores result events from the bus, and wakes the tasks and callers that wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from string import Formatter
from typing import Any

import msgspec

from onthedot.clock.protocol import Clock
from onthedot.errors import BadEvent, OnTheDotError, StoreError, StoreFull
from onthedot.events.bus import BusRecord, Subscription, TopicPartition
from onthedot.events.bus_connection import BusConnection
from onthedot.events.cloudevents import read_event, type_of
from onthedot.events.component_loop import ComponentLoop
from onthedot.events.event import Event
from onthedot.events.event_types import TypePattern
from onthedot.events.resume_handles import SIGNAL, HandleCompletion
from onthedot.events.settings import Events
from onthedot.flows.signals import new_signal
from onthedot.observability.events import Observer
from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import Arrival, HandleRecord, NewSignal, Store

GROUP = "callback"  # with the name of the app in front of it
_PAGE = 500  # records that are read at once
_READ_WAIT = 1.0  # seconds that a read waits for records
_CLOSE = 2.0  # seconds


class EventSignals:
    """``app.on_event``: which signals an event sends."""

    def __init__(self) -> None:
        self._templates: dict[str, list[str]] = {}

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self._templates)

    def add(self, event_type: str, template: str) -> None:
        """BadEvent for a type that no event has, or a name that cannot be filled in."""
        if not TypePattern.of(event_type).is_type:
            raise BadEvent(f"on_event({event_type!r}): * is not allowed here; call it for each type")
        try:
            fields = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
        except ValueError as error:
            raise BadEvent(f"on_event({event_type!r}): signal={template!r}: {error}") from None
        if not template or "" in fields:
            raise BadEvent(
                f"on_event({event_type!r}): signal={template!r}: name a field of the payload, as in {{order}}"
            )
        self._templates.setdefault(event_type, []).append(template)

    def signals_of(self, event: Event[Any]) -> list[NewSignal]:
        """Raises KeyError if the payload lacks a field that a template names."""
        templates = self._templates.get(event.type, ())
        if not templates:
            return []
        payload: Any = event.payload
        fields: dict[str, Any] = {
            **(payload if isinstance(payload, Mapping) else {}),
            "id": event.id,
            "correlation_id": event.correlation_id,
            "aggregate_id": event.aggregate_id,
        }
        value: dict[str, Any] = {
            "type": event.type,
            "payload": payload,
            "id": event.id,
            "correlation_id": event.correlation_id,
        }
        return [new_signal(template.format_map(fields), value, signal_id=event.id) for template in templates]


class ResultSubscription(ComponentLoop):
    """Reads result events from the bus, page by page. The position moves after a page has had all its effects."""

    name = "callback service"
    feeds_worker = True

    def __init__(
        self,
        app: str,
        settings: Events,
        signals: EventSignals,
        connection: BusConnection,
        outbox: Outbox,
        tasks: Store,
        clock: Clock,
        observer: Observer,
    ) -> None:
        super().__init__(clock, observer)
        self._group = f"{app}.{GROUP}"
        self._received = [TypePattern.of(each) for each in (*settings.results, *signals.types)]
        self._topics = settings.routes.topics_of([*settings.results, *signals.types])
        self._signals = signals
        self._connection = connection
        self._outbox = outbox
        self._tasks = tasks
        self._completion = HandleCompletion(outbox.complete_handles, tasks.signal, self._on_resumed)
        self._subscription: Subscription | None = None
        self._page: Sequence[BusRecord] = ()  # that is read and not committed

    # -- the loop

    async def _begin(self) -> None:
        self._subscription = await self._connection.subscribe(self._group, self._topics, self._on_revoked, self.name)

    async def _step(self) -> None:
        """Every part of it may be repeated: arrivals and signals are known by the ids of their events."""
        assert self._subscription is not None
        if not self._page:
            self._page = await self._subscription.read(_PAGE, 0) or await self._wait_for_records(self._subscription)
        if self._page:
            await self._store(self._read(self._page))
            await self._subscription.commit(next_offsets(self._page))
            self._count_events(len(self._page))
            self._page = ()

    async def _on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Another member reads what is not committed of these partitions."""
        self._page = [each for each in self._page if TopicPartition(each.topic, each.partition) not in partitions]

    async def _wait_for_records(self, subscription: Subscription) -> Sequence[BusRecord]:
        """Until some come, or `recheck` asks for a look. A read that waits has taken nothing: it may be cancelled."""
        reading = asyncio.ensure_future(subscription.read(_PAGE, _READ_WAIT))
        waking = asyncio.ensure_future(self._wakeup.wait(None))
        if not self._wakeup.is_set:
            self.idle.set()
        try:
            await asyncio.wait([reading, waking], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.idle.clear()
            waking.cancel()
            if not reading.done():
                reading.cancel()
            await asyncio.wait([reading, waking])
        return () if reading.cancelled() else reading.result()

    async def _finish(self) -> None:
        if self._subscription is not None:
            try:
                async with asyncio.timeout(_CLOSE):
                    await self._subscription.close()
            except Exception as error:  # noqa: BLE001 - reported; what is not committed is read again
                self._observer.bus_failed(f"leaving the group of the {self.name}", error)

    # -- one page

    def _read(self, records: Sequence[BusRecord]) -> list[Event[Any]]:
        events: list[Event[Any]] = []
        for record in records:
            event_type = type_of(record.message)
            if not any(pattern.matches(event_type) for pattern in self._received):
                continue
            place = f"{record.topic}/{record.partition}/{record.offset}"
            try:
                events.append(read_event(record.message, place))
            except (BadEvent, ValueError) as error:
                self._observer.event_unreadable(place, error)
        return events

    async def _store(self, events: Sequence[Event[Any]]) -> None:
        arrivals = self._arrivals(events)
        if arrivals:
            stored = await self._record(arrivals)
            await self._completion.complete(list(dict.fromkeys(each.correlation_id for each in stored)))
        for event in events:
            if event.type in self._signals.types:
                await self._signal(event)

    def _arrivals(self, events: Sequence[Event[Any]]) -> list[Arrival]:
        arrivals: list[Arrival] = []
        for event in events:
            try:
                encoded = msgspec.json.encode(event.to_dict())
            except (OnTheDotError, ValueError, TypeError) as error:  # of another program
                self._observer.event_unreadable(event.id, error)
            else:
                arrivals.append(Arrival(event.correlation_id, event.id, event.type, encoded))
        return arrivals

    async def _record(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        """All in one call; if the store cannot keep one of them, one by one, without it."""
        try:
            await self._outbox.record_arrivals(arrivals)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - of one of them; reported
            if len(arrivals) == 1:
                self._observer.event_unreadable(arrivals[0].event_id, error)
                return ()
            stored: list[Arrival] = []
            for each in arrivals:
                stored += await self._record([each])
            return stored
        return arrivals

    def _on_resumed(self, handles: Sequence[HandleRecord]) -> None:
        for handle in handles:
            if handle.target == SIGNAL and handle.ended is not None:  # others come again until their flow is resumed
                self._observer.waiter_resumed(handle.ended - handle.created)

    async def _signal(self, event: Event[Any]) -> None:
        """An event whose signal cannot be sent is reported; the others are sent."""
        try:
            signals = self._signals.signals_of(event)
            await self._tasks.signal(signals)
        except StoreFull as error:
            self._observer.event_not_signalled(event.id, event.type, error)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - reported; a template may fail on a payload in any way
            self._observer.event_not_signalled(event.id, event.type, error)


def next_offsets(records: Sequence[BusRecord]) -> dict[TopicPartition, int]:
    """The offsets to read next, after these records."""
    offsets: dict[TopicPartition, int] = {}
    for record in records:
        offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1
    return offsets
