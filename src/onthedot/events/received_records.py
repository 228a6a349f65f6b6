"""The task of an event that an agent has received: all that a dead letter needs is in its body."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import msgspec
from msgspec import Struct

from onthedot.codec.body import Headers, Undecodable
from onthedot.events.bus import BusMessage, BusRecord
from onthedot.model.agent_names import AGENT_PREFIX
from onthedot.model.event_origin import event_id
from onthedot.model.traces import TraceContext

_KEY = "key"
_VALUE = "value"


def source_of(agent: str) -> str:
    """The source of an agent's tasks."""
    return AGENT_PREFIX + agent


def task_uuid(agent: str, event: str, replay: int = 0) -> str:
    """The task of an event: a copy of the event finds it. A replay has another one.

    >>> first = task_uuid("mailer", "e1")
    >>> first == task_uuid("mailer", "e1"), first == task_uuid("mailer", "e1", 1)
    (True, False)
    """
    if not replay:
        return event_id("agent", agent, event)
    return event_id("agent", agent, event, replay)


class StoredRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record of the bus as the arguments of a task. Texts are readable; bytes that are no text are base64.

    event, type: of the CloudEvent; the event's id is the place of the record if it has none. binary: the parts that
    are base64: "key", "value", or the number of a header. arrived: ms. fails_as, fails_to: type and topic of the event
    that tells of a failure. problem: why there is no event in it.
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
    headers: tuple[tuple[str, str], ...] = ()
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

    def message(self) -> BusMessage:
        """The message as it was received, byte by byte."""
        headers = tuple([(name, self._bytes(text, str(number))) for number, (name, text) in enumerate(self.headers)])
        key = None if self.key is None else self._bytes(self.key, _KEY)
        return BusMessage(key, self._bytes(self.value, _VALUE), headers, self.timestamp)

    def _bytes(self, text: str, part: str) -> bytes:
        return b64decode(text) if part in self.binary else text.encode()


class _AgentBody(Headers, frozen=True):
    """The body of a task; others read it like any body."""

    args: StoredRecord


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_AgentBody).decode


def place_of(topic: str, partition: int, offset: int) -> str:
    """Where a record is: the id of one that has no other."""
    return f"{topic}/{partition}/{offset}"


def stored_record(record: BusRecord, **fields: Any) -> StoredRecord:
    """A record with the other fields of `StoredRecord`."""
    message = record.message
    binary: list[str] = []

    def text(value: bytes, part: str) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            binary.append(part)
            return b64encode(value).decode()

    key = None if message.key is None else text(message.key, _KEY)
    value = text(message.value, _VALUE)
    headers = [(name, text(data, str(number))) for number, (name, data) in enumerate(message.headers)]
    return StoredRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=message.timestamp,
        key=key,
        value=value,
        headers=tuple(headers),
        binary=tuple(binary),
        **fields,
    )


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
