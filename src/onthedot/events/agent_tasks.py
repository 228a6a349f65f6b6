"""Records of the bus as tasks of an agent."""

from __future__ import annotations

from typing import Any

from onthedot.definitions.new_task import TaskOwner, TaskTemplate, render_template, task_policy
from onthedot.errors import ArgumentError, BadLimit
from onthedot.events.agent_source import EVENT_FIELDS, AgentSource, payload_annotation
from onthedot.events.bus import BusMessage, BusRecord
from onthedot.events.cloudevents import message_attributes, read_event, type_of
from onthedot.events.dead_letters import replay_number, replayed_for
from onthedot.events.event import Event
from onthedot.events.received_records import place_of, stored_record, task_uuid, write_body
from onthedot.model.options import AddOptions
from onthedot.model.traces import PARENT_HEADER, STATE_HEADER, TraceContext, trace_of_headers
from onthedot.stores.contract import NewTask


class AgentTasks:
    """Makes the tasks of one agent. reply_to: the session that gets hints when they end."""

    def __init__(self, source: AgentSource, reply_to: str) -> None:
        self._source = source
        self._agent = source.agent
        owner = TaskOwner(source.owner.new_uuid)
        owner.client = reply_to
        self._template = TaskTemplate(owner, source.name, source.options, source.limit_definitions)
        self._read = source.read_payload
        if not source.has_condition and payload_annotation(source.agent) is not bytes:
            self._read = _leave_payload  # the run decodes it

    def task_of(self, record: BusRecord, arrived: float) -> NewTask | None:
        """The task of a record; None: the agent does not handle it. arrived: ms, by the clock of the process."""
        kind = type_of(record.message)
        if not self._source.consumes(kind):
            return None
        replay = replay_number(record.message)
        if replay and replayed_for(record.message) not in ("", self._agent.id, *self._source.aliases):
            return None  # another agent has failed
        place = place_of(record.topic, record.partition, record.offset)
        try:
            event = read_event(record.message, place, self._read)
        except ValueError:  # the run fails with this error, and the record becomes a dead letter
            return self._undecodable(record, kind, place, replay, arrived, "")
        except Exception as error:  # noqa: BLE001 - of the user's payload class
            problem = f"the payload of agent {self._agent.id!r} raised {type(error).__name__}: {error}"
            return self._undecodable(record, kind, place, replay, arrived, problem)
        try:
            if self._source.has_condition and not self._agent.accepts(event):
                return None
        except Exception as error:  # noqa: BLE001 - the user's; an event that nobody can judge is a dead letter
            problem = f"accepts of agent {self._agent.id!r} raised {type(error).__name__}: {error}"
            return self._undecodable(record, kind, place, replay, arrived, problem)
        return self._task(record, event, replay, arrived)

    def _task(self, record: BusRecord, event: Event[Any], replay: int, arrived: float) -> NewTask:
        fields: dict[str, Any] = {name: getattr(event, name) for name in EVENT_FIELDS} | {"topic": record.topic}
        problem = ""
        lane: str | None = None
        cost = 1.0
        label = event.type
        try:
            lane, cost = self._source.limit_definitions.lane(fields)
            if self._source.options.label:
                label = render_template(self._source.name, "label", self._source.options.label, fields)
        except (ArgumentError, BadLimit) as error:
            problem = str(error)
        options: AddOptions = {}
        if event.priority is not None:
            options = {"priority": event.priority}
        policy = task_policy(self._template, options, cost)
        body = self._body(record, event.id, event.type, replay, arrived, problem, label, event.correlation_id)
        return NewTask(task_uuid(self._agent.id, event.id, replay), self._source.name, body, lane=lane, policy=policy)

    def _fails_to(self) -> str:
        if self._agent.fails_as is None:
            return ""
        return self._source.host.settings().routes.topic_of(self._agent.fails_as)

    def _undecodable(
        self, record: BusRecord, kind: str, place: str, replay: int, arrived: float, problem: str
    ) -> NewTask:
        """A task that fails as soon as it runs."""
        event = message_attributes(record.message).get("id") or place
        body = self._body(record, event, kind, replay, arrived, problem, kind, None)
        policy = task_policy(self._template, {})
        return NewTask(task_uuid(self._agent.id, event, replay), self._source.name, body, policy=policy)

    def _body(
        self,
        record: BusRecord,
        event: str,
        kind: str,
        replay: int,
        arrived: float,
        problem: str,
        label: str,
        correlation_id: str | None,
    ) -> bytes:
        stored = stored_record(
            record,
            agent=self._agent.id,
            group=self._source.group,
            event=event,
            type=kind,
            arrived=int(arrived),
            replay=replay,
            fails_as=self._agent.fails_as,
            fails_to=self._fails_to(),
            dlt_suffix=self._source.host.settings().dlt_suffix,
            problem=problem,
        )
        return write_body(stored, label, correlation_id, _trace_of(record.message))


def _leave_payload(data: bytes) -> None:
    """For agents that do not look at the payload before the task runs."""


def _trace_of(message: BusMessage) -> TraceContext | None:
    """The span that has published a message, in a header of any case."""
    found: dict[str, str] = {}
    for name, value in message.headers:
        if (lower := name.lower()) in (PARENT_HEADER, STATE_HEADER):
            found[lower] = (value or b"").decode(errors="replace")
    return trace_of_headers(found) if found else None
