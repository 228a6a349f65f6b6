"""Dead letters: original bytes and headers, plus the headers of Spring Kafka in Spring's encodings, and replays."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from onthedot.codec.task_failure import TaskFailure
from onthedot.events.bus import BusMessage, BusRecord
from onthedot.events.cloudevents import message_attributes
from onthedot.events.header_json import Headers
from onthedot.model.event_origin import event_id

_SPRING = "kafka_dlt-"
_TOPIC = "kafka_dlt-original-topic"
_PARTITION = "kafka_dlt-original-partition"
_OFFSET = "kafka_dlt-original-offset"
_TIMESTAMP = "kafka_dlt-original-timestamp"
_TIMESTAMP_TYPE = "kafka_dlt-original-timestamp-type"
_GROUP = "kafka_dlt-original-consumer-group"
_ERROR_TYPE = "kafka_dlt-exception-fqcn"
_ERROR_MESSAGE = "kafka_dlt-exception-message"
_TRACEBACK = "kafka_dlt-exception-stacktrace"
_AGENT = "onthedot-agent"
_ATTEMPTS = "onthedot-attempts"
_TASK = "onthedot-task"
REPLAY = "onthedot-replay"
"""The number of a replay, from 1. Other events have no such header."""
_OURS = frozenset({_AGENT, _ATTEMPTS, _TASK})
_MAX_TEXT = 8192  # bytes of an error message or a traceback
_INT32 = 4  # bytes, big-endian
_INT64 = 8


class DeadLetter(Struct, frozen=True):
    """A dead letter as it is read: where it came from, and why it failed. Fields that it has not are empty."""

    event_id: str = ""
    type: str = ""
    correlation_id: str = ""
    topic: str = ""  # that it came from, as partition, offset, timestamp (ms) and group
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    group: str = ""
    error_type: str = ""
    error_message: str = ""
    traceback: str = ""
    agent: str = ""
    attempts: int | None = None
    task: str = ""  # uuid
    replay: int = 0


def dead_letter(record: BusRecord, group: str, agent: str, task: str, failure: TaskFailure) -> BusMessage:
    """The dead letter of a record: its key and value unchanged, its headers, and why it failed.

    group: that received it. task: uuid of the task that handled it. failure: its stored error.
    """
    message = record.message
    timestamp = message.timestamp
    timestamp_type = "CreateTime"
    if timestamp is None:
        timestamp = -1
        timestamp_type = "NoTimestampType"
    headers: list[tuple[str, bytes]] = [
        (_TOPIC, record.topic.encode()),
        (_PARTITION, record.partition.to_bytes(_INT32, "big", signed=True)),
        (_OFFSET, record.offset.to_bytes(_INT64, "big", signed=True)),
        (_TIMESTAMP, timestamp.to_bytes(_INT64, "big", signed=True)),
        (_TIMESTAMP_TYPE, timestamp_type.encode()),
        (_GROUP, group.encode()),
        (_ERROR_TYPE, _shortened(failure.type)),
        (_ERROR_MESSAGE, _shortened(failure.message)),
        (_TRACEBACK, _shortened(failure.traceback)),
        (_AGENT, agent.encode()),
        (_ATTEMPTS, str(failure.attempt).encode()),
        (_TASK, task.encode()),
    ]
    return BusMessage(message.key, message.value, (*_original(message.headers), *headers))


def read_dead_letter(message: BusMessage) -> DeadLetter:
    """Why and where a message of a dead-letter topic failed; also one that Spring Kafka has written.

    >>> read_dead_letter(BusMessage(b"k", b"{}", ((_TOPIC, b"orders"), (_PARTITION, b"\\0\\0\\0\\3")))).partition
    3
    """
    headers = dict(message.headers)
    attributes = message_attributes(message)

    def text(name: str) -> str:
        return headers.get(name, b"").decode(errors="backslashreplace")

    return DeadLetter(
        event_id=attributes.get("id", ""),
        type=attributes.get("type", ""),
        correlation_id=attributes.get("correlationid", ""),
        topic=text(_TOPIC),
        partition=_number(_INT32, headers.get(_PARTITION)),
        offset=_number(_INT64, headers.get(_OFFSET)),
        timestamp=_number(_INT64, headers.get(_TIMESTAMP)),
        group=text(_GROUP),
        error_type=text(_ERROR_TYPE),
        error_message=text(_ERROR_MESSAGE),
        traceback=text(_TRACEBACK),
        agent=text(_AGENT),
        attempts=_whole_number(text(_ATTEMPTS)),
        task=text(_TASK),
        replay=replay_number(message),
    )


def dead_letter_id(original_id: str, agent: str, replay: int) -> str:
    """The id of a dead letter in the outbox: the same however often its end is settled."""
    return event_id("dead letter", original_id, agent, replay)


def replay_number(message: BusMessage) -> int:
    """How often the event was replayed; 0 for one that comes for the first time."""
    for name, value in reversed(message.headers):  # the last one counts
        if name == REPLAY:
            return _whole_number(value.decode(errors="replace")) or 0
    return 0


def replayed_for(message: BusMessage) -> str:
    """The agent that failed; it alone handles the replay. Empty: every agent does."""
    return dict(message.headers).get(_AGENT, b"").decode(errors="backslashreplace")


def replayed(message: BusMessage, number: int) -> BusMessage:
    """The original message of a dead letter, marked as a replay: with this number the agent that failed handles it."""
    headers = [(name, value) for name, value in _original(message.headers) if name != REPLAY]
    if agent := dict(message.headers).get(_AGENT):
        headers.append((_AGENT, agent))
    return BusMessage(message.key, message.value, (*headers, (REPLAY, str(number).encode())))


def replay_id(record: BusRecord, again: str = "") -> str:
    """The id of a replay in the outbox: the same dead letter is replayed once. again: makes another one."""
    return event_id("replay", record.topic, record.partition, record.offset, again)


def _original(headers: Iterable[tuple[str, bytes]]) -> Headers:
    """Without those of an earlier dead letter."""
    return tuple([(name, value) for name, value in headers if not name.startswith(_SPRING) and name not in _OURS])


def _shortened(text: str) -> bytes:
    """At most 8 KiB of UTF-8: the end, where an error is."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= _MAX_TEXT:
        return data
    mark = "…".encode()
    return mark + data[len(mark) - _MAX_TEXT :].decode(errors="ignore").encode()


def _number(size: int, data: bytes | None) -> int | None:
    """None: there is none, or another program has written it in another encoding."""
    if data is None or len(data) != size:
        return None
    return int.from_bytes(data, "big", signed=True)


def _whole_number(text: str) -> int | None:
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        return None
    return int(text)
