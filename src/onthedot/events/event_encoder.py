"""Events on their way into the outbox: checked, routed and encoded before any I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onthedot.errors import ArgumentError, StoreRefused
from onthedot.events.event import Event
from onthedot.events.outbox_rows import new_event
from onthedot.events.settings import Events
from onthedot.model.traces import PARENT_HEADER, TaskTracer
from onthedot.stores.contract import MAX_EVENTS, NewEvent

_NO_HEADERS: Mapping[str, str] = {}


class EventEncoder:
    """Encodes events by the settings of an app. tracer: None: the program does not trace."""

    def __init__(self, settings: Events, app: str, tracer: TaskTracer | None = None) -> None:
        self._settings = settings
        self._app = app
        self._tracer = tracer

    def encode(self, events: Sequence[Event[Any]], verb: str) -> list[NewEvent]:
        """All of them, or an error that names what is wrong. verb: the call, for the error."""
        if len(events) > MAX_EVENTS:
            raise ArgumentError(f"{verb}: {len(events):,} events; one call publishes at most {MAX_EVENTS:,}")
        for event in events:
            if not isinstance(event, Event):  # pyright: ignore[reportUnnecessaryIsInstance] - a user may pass anything
                raise TypeError(f"{verb} takes events, such as Event(type, payload, aggregate_id=…); not {event!r}")
        trace = self._trace_headers()
        return [new_event(event, self._settings, self._app, _headers_for(event, trace)) for event in events]

    def _trace_headers(self) -> Mapping[str, str]:
        """Of the task or the request that publishes."""
        context = None if self._tracer is None else self._tracer.current()
        return _NO_HEADERS if context is None else context.headers

    def encode_with_task(self, events: Sequence[Event[Any]], verb: str) -> list[NewEvent]:
        """For events that are stored in the step that settles a task."""
        if self._settings.outbox is not None:
            raise StoreRefused(
                f"{verb}: tasks and outbox are in two databases, which have no common commit: write await "
                "app.publish(…), or keep the tasks in the database of Events(outbox=…)"
            )
        return self.encode(events, verb)


def _headers_for(event: Event[Any], trace: Mapping[str, str]) -> Mapping[str, str]:
    """The trace that the user has given to an event is kept."""
    if trace and any(name.lower() == PARENT_HEADER for name in event.headers):
        return _NO_HEADERS
    return trace
