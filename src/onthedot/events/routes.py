"""The topics of events: where one is sent, and what a subscription reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from onthedot.events.event_types import TypePattern
from onthedot.events.topic_names import default_topic

if TYPE_CHECKING:
    from onthedot.events.event import Event


class Routes:
    """The topics of an app.

    Args:
        topics: pattern of event types → topic; the first pattern that matches decides.

    >>> routes = Routes({"Genesis.Session.*Requested": "genesis.requests"})
    >>> routes.topic_of("Genesis.Session.BatchRequested"), routes.topic_of("Genesis.Session.BatchCreated")
    ('genesis.requests', 'genesis.session.events')
    >>> routes.topics_of(["Genesis.Session.*"])
    ('genesis.requests', 'genesis.session.events')
    """

    def __init__(self, topics: Mapping[str, str]) -> None:
        self._topics = [(TypePattern.of(pattern), topic) for pattern, topic in topics.items()]

    def topic_for(self, event: Event[Any]) -> str:
        """Where an event is sent: its own topic, else that of its type."""
        return event.topic or self.topic_of(event.type)

    def topic_of(self, event_type: str) -> str:
        """Where events of a type are sent."""
        for pattern, topic in self._topics:
            if pattern.matches(event_type):
                return topic
        return default_topic(event_type)

    def topics_of(self, consumes: Iterable[str]) -> tuple[str, ...]:
        """Every topic in which events of these types can be, each once.

        consumes: types, or patterns of them. BadEvent for a text that is neither.
        """
        topics: dict[str, None] = {}
        for text in consumes:
            topics |= dict.fromkeys(self._topics_of_pattern(TypePattern.of(text)))
        return tuple(topics)

    def _topics_of_pattern(self, consumed: TypePattern) -> Iterable[str]:
        for pattern, topic in self._topics:
            if pattern.meets(consumed):
                yield topic
            if pattern.covers(consumed):
                return  # nothing is left for later patterns and the default
        yield default_topic(str(consumed))
