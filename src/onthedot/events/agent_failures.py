"""Effects of events that an agent could not handle: the dead letter, and the failure event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from onthedot.clock.epoch import from_ms
from onthedot.codec.task_failure import TaskFailure
from onthedot.events.bus import BusRecord
from onthedot.events.cloudevents import read_event
from onthedot.events.dead_letters import dead_letter, dead_letter_id
from onthedot.events.event import Event, received_event
from onthedot.events.outbox_rows import new_event, raw_event
from onthedot.events.received_records import StoredRecord, decode_event_body
from onthedot.events.settings import Events
from onthedot.events.topic_names import dead_letter_topic
from onthedot.model.agent_names import agent_of
from onthedot.model.event_origin import event_id
from onthedot.model.failures import decode_failure
from onthedot.model.traces import TraceContext
from onthedot.observability.events import Observer
from onthedot.stores.contract import Effects, Ended, NewEvent, Record

_NONE = Effects()


class AgentFailures:
    """Makes the effects of failed tasks of agents, by their bodies alone: the code of the agent may be elsewhere.

    now: ms, by the clock of the process.
    """

    def __init__(self, settings: Events, app: str, now: Callable[[], float], observer: Observer) -> None:
        self._settings = settings
        self._app = app
        self._now = now
        self._observer = observer

    def effects(self, record: Record, ended: Ended) -> Effects:
        """Implements `OnFailed`. Raises Undecodable for a body that cannot be read: then there is no dead letter."""
        if agent_of(record.source) is None:
            return _NONE
        stored, headers = decode_event_body(record.body)
        failure = decode_failure(ended.error) or TaskFailure("", "", "", record.attempt)
        events = [self._dead_letter(stored, record.uuid, failure)]
        if stored.fails_as is not None:
            try:
                trace = TraceContext(headers.trace, headers.trace_state).headers if headers.trace else {}
                events.append(self._failure_event(stored, record, failure, stored.fails_as, trace))
            except Exception as error:  # noqa: BLE001 - reported; the dead letter is more important
                self._observer.effects_not_made(record, error)
        self._observer.event_dead(stored.event, stored.agent, failure)
        return Effects(events=tuple(events))

    def _dead_letter(self, stored: StoredRecord, task: str, failure: TaskFailure) -> NewEvent:
        original = BusRecord(stored.topic, stored.partition, stored.offset, stored.message())
        message = dead_letter(original, stored.group, stored.agent, task, failure)
        identity = dead_letter_id(stored.event, stored.agent, stored.replay)
        return raw_event(identity, dead_letter_topic(stored.topic, stored.dlt_suffix), message, int(self._now()))

    def _failure_event(
        self, stored: StoredRecord, record: Record, failure: TaskFailure, event_type: str, trace: Mapping[str, str]
    ) -> NewEvent:
        """trace: headers of the trace in which the event was published: the run that failed may be elsewhere."""
        request = _original_event(stored)
        payload: dict[str, Any] = {
            "error": failure.message,
            "error_type": failure.type,
            "event_id": stored.event,
            "attempts": failure.attempt,
        }
        given = _fields(request)
        if "task_id" in given:
            payload["task_id"] = given["task_id"]
        event: Event[Any] = request.reply(
            event_type,
            payload,
            id=event_id("failure", record.uuid, record.history.revives),
            retries=record.history.retries,
            occurred_at=from_ms(int(self._now())),
            topic=stored.fails_to or None,
        )
        return new_event(event, self._settings, self._app, trace)


def _fields(event: Event[Any]) -> Mapping[str, Any]:
    payload: object = event.payload
    return cast("Mapping[str, Any]", payload) if isinstance(payload, Mapping) else {}


def _original_event(stored: StoredRecord) -> Event[Any]:
    """The event that was handled, as far as it can be read."""
    try:
        return read_event(stored.message(), stored.place)
    except ValueError:
        return received_event(
            id=stored.event,
            type=stored.type,
            payload=None,
            key=stored.key,
            occurred_at=from_ms(stored.timestamp or stored.arrived),
        )
