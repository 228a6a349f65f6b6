"""Records of the bus as tasks of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from onthedot.definitions.new_task import TaskOwner, TaskTemplate, render_template, task_policy
from onthedot.errors import ArgumentError, BadLimit
from onthedot.events.agent_source import EVENT_FIELDS, AgentSource, payload_annotation
from onthedot.events.bus import BusRecord
from onthedot.events.cloudevents import EventParts, event_parts, message_attributes, type_of
from onthedot.events.dead_letters import replay_number, replayed_for
from onthedot.events.message_texts import MessageTexts, texts_of
from onthedot.events.received_records import StoredRecord, place_of, task_uuid, write_body
from onthedot.model.options import AddOptions
from onthedot.model.traces import PARENT_HEADER, STATE_HEADER, TraceContext, trace_of_headers
from onthedot.stores.contract import NewTask


class AgentTasks:
    """Makes the tasks of one agent. reply_to: the session that gets hints when they end."""

    def __init__(self, source: AgentSource, reply_to: str) -> None:
        self._source = source
        self._agent = source.agent
        self._group = source.group
        owner = TaskOwner(source.owner.new_uuid)
        owner.client = reply_to
        self._template = TaskTemplate(owner, source.name, source.options, source.limit_definitions)
        self._goes_by_fields = bool(source.options.label) or source.limit_definitions.has_lanes
        self._read = source.read_payload
        if not source.has_condition and payload_annotation(source.agent) is not bytes:
            self._read = _leave_payload  # the run decodes it

    def task_of(self, record: BusRecord, arrived: float) -> NewTask | None:
        """The task of a record; None: the agent does not handle it. arrived: ms, by the clock of the process."""
        message = record.message
        kind = type_of(message)
        if not self._source.consumes(kind):
            return None
        replay = replay_number(message)
        if replay and replayed_for(message) not in ("", self._agent.id, *self._source.aliases):
            return None  # another agent has failed
        place = place_of(record.topic, record.partition, record.offset)
        received = _Received(record, texts_of(message), place, replay, arrived)
        try:
            parts = event_parts(received.texts, place)
            payload = parts.payload(self._read)
        except ValueError:  # the run fails with this error, and the record becomes a dead letter
            return self._undecodable(received, kind, "")
        except Exception as error:  # noqa: BLE001 - of the user's payload class
            problem = f"the payload of agent {self._agent.id!r} raised {type(error).__name__}: {error}"
            return self._undecodable(received, kind, problem)
        try:
            if self._source.has_condition and not self._agent.accepts(parts.event(payload)):
                return None
        except Exception as error:  # noqa: BLE001 - the user's; an event that nobody can judge is a dead letter
            problem = f"accepts of agent {self._agent.id!r} raised {type(error).__name__}: {error}"
            return self._undecodable(received, kind, problem)
        return self._task(received, parts)

    def _task(self, received: _Received, parts: EventParts) -> NewTask:
        problem = ""
        lane: str | None = None
        cost = 1.0
        event_id = parts.id
        kind = parts.type
        label = kind
        if self._goes_by_fields:
            event = parts.event(None)
            fields: dict[str, Any] = {name: getattr(event, name) for name in EVENT_FIELDS}
            fields["topic"] = received.record.topic
            try:
                lane, cost = self._source.limit_definitions.lane(fields)
                if self._source.options.label:
                    label = render_template(self._source.name, "label", self._source.options.label, fields)
            except (ArgumentError, BadLimit) as error:
                problem = str(error)
        options: AddOptions = {}
        if (priority := parts.priority) is not None:
            options = {"priority": priority}
        policy = task_policy(self._template, options, cost)
        stored = self._stored(received, event_id, kind, problem)
        body = write_body(stored, label, parts.correlation_id, _trace_of(parts.headers))
        uuid = task_uuid(self._agent.id, event_id, received.replay)
        return NewTask(uuid, self._source.name, body, lane=lane, policy=policy)

    @cached_property
    def _fails_to(self) -> str:
        if self._agent.fails_as is None:
            return ""
        return self._source.host.settings().routes.topic_of(self._agent.fails_as)

    def _undecodable(self, received: _Received, kind: str, problem: str) -> NewTask:
        """A task that fails as soon as it runs."""
        event = message_attributes(received.record.message).get("id") or received.place
        stored = self._stored(received, event, kind, problem)
        body = write_body(stored, kind, None, _trace_of(dict(received.texts.readable_headers())))
        policy = task_policy(self._template, {})
        uuid = task_uuid(self._agent.id, event, received.replay)
        return NewTask(uuid, self._source.name, body, policy=policy)

    def _stored(self, received: _Received, event: str, kind: str, problem: str) -> StoredRecord:
        record = received.record
        texts = received.texts
        return StoredRecord(
            agent=self._agent.id,
            group=self._group,
            event=event,
            type=kind,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp=texts.timestamp,
            key=texts.key,
            value=texts.value,
            headers=texts.headers,
            pairs=texts.pairs,
            binary=texts.binary,
            arrived=int(received.arrived),
            replay=received.replay,
            fails_as=self._agent.fails_as,
            fails_to=self._fails_to,
            dlt_suffix=self._source.host.settings().dlt_suffix,
            problem=problem,
        )


class _Received(Struct, frozen=True, gc=False):
    """A record, and what is known of it."""

    record: BusRecord
    texts: MessageTexts
    place: str
    replay: int
    arrived: float


def _leave_payload(data: bytes) -> None:
    """For agents that do not look at the payload before the task runs."""


def _trace_of(headers: Mapping[str, str]) -> TraceContext | None:
    """The span that has published a message, in a header of any case."""
    if not headers:
        return None
    found: dict[str, str] = {}
    for name, text in headers.items():
        if (lower := name.lower()) in (PARENT_HEADER, STATE_HEADER):
            found[lower] = text
    return trace_of_headers(found) if found else None
