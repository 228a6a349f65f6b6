"""Log lines about the outbox and the bus, of the logger ``onthedot.events``."""

from __future__ import annotations

from collections.abc import Sequence

from onthedot.clock.protocol import Clock
from onthedot.codec.task_failure import TaskFailure
from onthedot.model.redaction import redacted
from onthedot.observability.events import Observer
from onthedot.observability.safe_logger import SafeLogger
from onthedot.stores.contract import OutboxEvent

_SAME_OUTAGE = 60_000.0  # ms between two lines about a bus that does not answer


class EventLines(Observer):
    """Writes what relays and subscriptions report. An outage of the bus has one line per minute."""

    def __init__(self, log: SafeLogger, clock: Clock) -> None:
        self.events: SafeLogger = log
        self._bus_clock = clock
        self._bus_failed_since: float | None = None
        self._bus_logged = -_SAME_OUTAGE
        self._bus_failures = 0  # since the last line

    def relay_started(self, bus: str) -> None:
        self.events.info("Relay started: it sends the events of the outbox to %s", bus)

    def component_lost(self, component: str, session: str) -> None:
        self.events.warning(
            "session %s (%s) is lost: the store declared it dead, or this event loop was blocked for its lease; going "
            "on as a new one", session, component,
        )  # fmt: skip

    def event_refused(self, refused: OutboxEvent, error: str) -> None:
        event = refused.event
        self.events.error(
            "[failed] event %s: %s; key %s is blocked in %s: onthedot outbox retry or discard %s",
            event.id, redacted(error), event.key, event.topic, event.id,
            extra={"event": event.id, "topic": event.topic, "key": event.key},
        )  # fmt: skip

    def topic_unavailable(self, topic: str, seconds: float, error: Exception) -> None:
        self.events.warning(
            "[topic] %s not available, next try in %.0f s: %s", topic, seconds, error, extra={"topic": topic}
        )

    def agent_started(self, agent: str, topics: Sequence[str]) -> None:
        self.events.info("Agent started: %s on %s", agent, ", ".join(topics), extra={"agent": agent})

    def agent_throttled(self, agent: str, seconds: float) -> None:
        self.events.warning("[throttled] agent %s: %.1f s", agent, seconds, extra={"agent": agent})

    def event_dead(self, event: str, agent: str, failure: TaskFailure) -> None:
        self.events.error(
            "[dead] event %s of %s: %s: %s", event, agent, failure.type or "no error", redacted(failure.message),
            extra={"event": event, "agent": agent},
        )  # fmt: skip

    def bus_failed(self, operation: str, error: Exception) -> None:
        now = self._bus_clock.now()
        if self._bus_failed_since is None:
            self._bus_failed_since = now
        if now - self._bus_logged < _SAME_OUTAGE:
            self._bus_failures += 1
            self.events.debug("%s: the bus does not answer: %s", operation, error)
            return
        again = f" ({self._bus_failures} times more since)" if self._bus_failures else ""
        self._bus_logged = now
        self._bus_failures = 0
        self.events.error("%s: the bus does not answer, trying again%s: %s", operation, again, error)

    def bus_recovered(self, operation: str) -> None:
        """A WARNING, so that those who saw the ERROR see it."""
        if self._bus_failed_since is None:
            return
        seconds = (self._bus_clock.now() - self._bus_failed_since) / 1000
        self._bus_failed_since = None
        self._bus_logged = -_SAME_OUTAGE
        self._bus_failures = 0
        self.events.warning("the bus is back after %.1f s: %s succeeded", seconds, operation)
