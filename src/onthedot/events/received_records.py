"""The task of an event that an agent has received: all that a dead letter needs is in its body."""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from onthedot.codec.body import Headers, Undecodable
from onthedot.events.bus import BusMessage
from onthedot.events.message_texts import MessageTexts
from onthedot.model.agent_names import AGENT_PREFIX
from onthedot.model.event_origin import event_id
from onthedot.model.traces import TraceContext

_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def source_of(agent: str) -> str:
    """The source of an agent's tasks."""
    return AGENT_PREFIX + agent


def task_uuid(agent: str, event: str, replay: int = 0) -> str:
    """The task of an event: a copy of the event finds it. A replay has another one.

    The task of an event whose id begins with a time, as a uuid7, begins with that time: new tasks are at the end of the
    index of uuids, where one page has many of them.

    >>> first = task_uuid("mailer", "e1")
    >>> first == task_uuid("mailer", "e1"), first == task_uuid("mailer", "e1", 1)
    (True, False)
    """
    uuid = event_id("agent", agent, event, replay) if replay else event_id("agent", agent, event)
    if _UUID7.fullmatch(event):
        return f"{event[:14]}8{uuid[15:]}"  # version 8: of an own form
    return uuid


class StoredRecord(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A record of the bus as the arguments of a task.

    event, type: of the CloudEvent; the event's id is the place of the record if it has none. timestamp, key, value,
    headers, pairs, binary: the message, see `MessageTexts`. arrived: ms. fails_as, fails_to: type and topic of the
    event that tells of a failure. problem: why there is no event in it.
    """

    agent: str
    group: str
    event: str
    type: str
    topic: str
    partition: int
    offset: int
    timestamp: int | None = None
    key: str | None = None
    value: str = ""
    headers: dict[str, str] = {}
    pairs: tuple[tuple[str, str], ...] = ()
    binary: tuple[str, ...] = ()
    arrived: int = 0
    replay: int = 0
    fails_as: str | None = None
    fails_to: str = ""
    dlt_suffix: str = ".DLT"
    problem: str = ""

    @property
    def place(self) -> str:
        """Where it was read."""
        return place_of(self.topic, self.partition, self.offset)

    @property
    def texts(self) -> MessageTexts:
        """The message as texts."""
        return MessageTexts(self.key, self.value, self.headers, self.pairs, self.binary, self.timestamp)

    def message(self) -> BusMessage:
        """The message as it was received, byte by byte."""
        return self.texts.message()


class _AgentBody(Headers, frozen=True):
    """The body of a task; others read it like any body."""

    args: StoredRecord


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_AgentBody).decode


def place_of(topic: str, partition: int, offset: int) -> str:
    """Where a record is: the id of one that has no other."""
    return f"{topic}/{partition}/{offset}"


def write_body(record: StoredRecord, label: str, correlation_id: str | None, trace: TraceContext | None) -> bytes:
    """The body of the task of a record. trace: of the code that has published the event."""
    metadata = None if correlation_id is None else {"correlation_id": correlation_id}
    parent, state = trace or ("", "")
    return _encode(_AgentBody(args=record, label=label, metadata=metadata, trace=parent, trace_state=state))


def decode_event_body(body: bytes) -> tuple[StoredRecord, Headers]:
    """The record in a body, and its headers. Raises Undecodable."""
    try:
        stored = _decode(body)
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"the stored record cannot be read: {error}") from error
    headers = Headers(label=stored.label, metadata=stored.metadata, trace=stored.trace, trace_state=stored.trace_state)
    return stored.args, headers
