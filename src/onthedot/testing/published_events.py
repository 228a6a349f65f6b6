"""The published events of a test, for assertions and their messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

from onthedot.client.client import StoreClient
from onthedot.events.cloudevents import read_event
from onthedot.events.event import Event
from onthedot.events.event_types import check_type
from onthedot.events.outbox_rows import bus_message
from onthedot.runtime.runtime import Runtime
from onthedot.stores.capabilities import Outbox, capability
from onthedot.stores.contract import OutboxEvent
from onthedot.testing.assertions import call_text

_PAGE = 1000
_SHOWN = 20  # events in a message


class PublishedEvents:
    """The events in the outbox of an app, as a receiver reads them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def of_type(self, event_type: str | None) -> list[Event[Any]]:
        """In the order of publishing. BadEvent for a type that no event can have: such a list would always be empty."""
        if event_type is not None:
            check_type(event_type)
        events = self._runtime.portal.run_sync(self._read)
        return [event for event in events if event_type in (None, event.type)]

    def matching(self, event_type: str, wanted: Mapping[str, Any]) -> list[Event[Any]]:
        """Those with these fields in their payload."""
        return [event for event in self.of_type(event_type) if _has(event.payload, wanted)]

    def describe(self, event_type: str) -> str:
        """Describes the events there are, for the message of a failed assertion."""
        every = self.of_type(None)
        own = [event for event in every if event.type == event_type]
        others = Counter(event.type for event in every if event.type != event_type)
        lines = [f"there is of {event_type}:" if own else f"there is no {event_type}"]
        lines += [f"  {_text(event)}" for event in own[-_SHOWN:]]
        if len(own) > _SHOWN:
            lines.append(f"  and {len(own) - _SHOWN} older")
        if others:
            lines.append("others: " + ", ".join(f"{count} {name}" for name, count in others.items()))
        return "\n".join(lines)

    async def _read(self, client: StoreClient) -> list[Event[Any]]:
        outbox = capability(client.store, Outbox, "published()")
        rows: list[OutboxEvent] = []
        while page := await outbox.find_events({}, rows[-1].seq if rows else 0, _PAGE):
            rows += page
        source = self._runtime.config.events.source_of(self._runtime.name)
        return [read_event(bus_message(row, source), f"outbox/{row.seq}") for row in rows if row.event.raw is None]


def _has(payload: object, wanted: Mapping[str, Any]) -> bool:
    if not wanted:
        return True
    if not isinstance(payload, Mapping):
        return False
    fields = cast("Mapping[str, Any]", payload)
    return all(name in fields and bool(fields[name] == value) for name, value in wanted.items())


def _text(event: Event[Any]) -> str:
    payload: object = event.payload
    if isinstance(payload, Mapping):
        return call_text(event.type, cast("Mapping[str, Any]", payload))
    return f"{event.type}: {payload!r}"
