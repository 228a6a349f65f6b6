"""The callback service: it stores result events that come over the bus, and wakes who waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onthedot.engine.repeated_calls import RepeatedCalls
from onthedot.errors import BadEvent, StoreFull
from onthedot.events.bus import Bus, BusRecord, Subscription, TopicPartition
from onthedot.events.cloudevents import read_event, type_of
from onthedot.events.event import Event
from onthedot.events.resume_handles import HandleCompletion
from onthedot.flows.signals import new_signal
from onthedot.observability.events import Observer
from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import Arrival, NewSignal, Store

GROUP = "callback"  # with the name of the app in front of it
_PAGE = 500  # records that are read at once
_POLL = 1.0  # seconds


class EventSignals:
    """``app.on_event``: which signals an event sends."""

    def __init__(self) -> None:
        self._templates: dict[str, list[str]] = {}

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self._templates)

    def add(self, event_type: str, template: str) -> None:
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


class CallbackSubscription:
    """Reads result events from the bus, page by page. The position moves after a page has had all its effects."""

    def __init__(
        self,
        app: str,
        bus: Bus,
        topics: Sequence[str],
        results: Sequence[str],
        signals: EventSignals,
        outbox: Outbox,
        tasks: Store,
        observer: Observer,
    ) -> None:
        self._group = f"{app}.{GROUP}"
        self._bus = bus
        self._topics = topics
        self._results = frozenset(results)
        self._types = self._results.union(signals.types)
        self._signals = signals
        self._outbox = outbox
        self._tasks = tasks
        self._completion = HandleCompletion(outbox.complete_handles, tasks.signal)
        self._observer = observer
        self._calls = RepeatedCalls(observer, "storing result events")

    async def run(self) -> None:
        """Runs until it is cancelled."""
        subscription = await self._bus.subscribe(self._group, self._topics, _nothing_to_commit)
        try:
            while True:
                await self.step(subscription)
        finally:
            await subscription.close()

    async def step(self, subscription: Subscription, timeout: float = _POLL) -> int:
        """Handles one page; how many records it had."""
        records = await subscription.read(_PAGE, timeout)
        if records:
            await self._store(self._read(records))
            await subscription.commit(next_offsets(records))
        return len(records)

    def _read(self, records: Sequence[BusRecord]) -> list[Event[Any]]:
        events: list[Event[Any]] = []
        for record in records:
            if type_of(record.message) not in self._types:
                continue
            place = f"{record.topic}/{record.partition}/{record.offset}"
            try:
                events.append(read_event(record.message, place))
            except (BadEvent, ValueError) as error:
                self._observer.event_unreadable(place, error)
        return events

    async def _store(self, events: Sequence[Event[Any]]) -> None:
        arrivals = [_arrival(event) for event in events if event.type in self._results]
        if arrivals:
            await self._calls.run(lambda: self._outbox.record_arrivals(arrivals))
            correlation_ids = list(dict.fromkeys(each.correlation_id for each in arrivals))
            await self._calls.run(lambda: self._completion.complete(correlation_ids))
        for event in events:
            if event.type in self._signals.types:
                await self._signal(event)

    async def _signal(self, event: Event[Any]) -> None:
        """An event whose signal cannot be sent is reported: the others go on."""
        try:
            signals = self._signals.signals_of(event)
            await self._calls.run(lambda: self._tasks.signal(signals))
        except (KeyError, ValueError, TypeError, StoreFull) as error:
            self._observer.event_not_signalled(event.id, event.type, error)


def next_offsets(records: Sequence[BusRecord]) -> dict[TopicPartition, int]:
    """The offsets to read next, after these records."""
    offsets: dict[TopicPartition, int] = {}
    for record in records:
        offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1
    return offsets


def _arrival(event: Event[Any]) -> Arrival:
    return Arrival(event.correlation_id, event.id, event.type, msgspec.json.encode(event.to_dict()))


async def _nothing_to_commit(_: object) -> None:
    """A page is committed before the next one is read."""
    await asyncio.sleep(0)
