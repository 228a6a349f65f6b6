"""Events as messages of a bus: CloudEvents 1.0 in the binary mode of Kafka, and every form that can be read.

Read are the binary mode (headers ``ce_…``), the structured mode (``content-type: application/cloudevents+json``) and
plain JSON without either, whose id is its place and whose type is empty.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from onthedot.clock.epoch import from_ms, to_ms
from onthedot.events.bus import BusMessage
from onthedot.events.event import Event, received_event
from onthedot.events.event_checks import CONTENT_TYPE, LIBRARY_PREFIX
from onthedot.events.message_texts import MessageTexts, readable
from onthedot.events.payloads import encode_payload, payload_reader
from onthedot.stores.contract.events import NewEvent

JSON = "application/json"
STRUCTURED = "application/cloudevents+json"
PREFIX = "ce_"
_FIRST_HEADERS = ((CONTENT_TYPE, JSON.encode()), (f"{PREFIX}specversion", b"1.0"))
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_read_any = payload_reader(Any)


class ForeignContent(ValueError):
    """A payload whose content type is not JSON."""


def to_message(event: Event[Any], source: str) -> BusMessage:
    """The event as a message. source: of the CloudEvents, as in "/shop".

    >>> message = to_message(Event("Shop.Order.Placed", {"id": 17}, aggregate_id="17", id="e1"), "/shop")
    >>> message.key, message.value, dict(message.headers)["ce_type"]
    (b'17', b'{"id":17}', b'Shop.Order.Placed')
    """
    at = to_ms(event.occurred_at)
    users = [(name, value.encode()) for name, value in event.headers.items()]
    headers = binary_headers(event, at, users, source=source, priority=event.priority)
    return BusMessage(event.key.encode(), encode_payload(event.payload, event.type), headers, at)


def binary_headers(
    event: Event[Any] | NewEvent,
    at: int,
    headers: Iterable[tuple[str, bytes]],
    *,
    source: str,
    priority: int | str | None,
    sequence: int | None = None,
) -> tuple[tuple[str, bytes], ...]:
    """The headers of a message in binary mode: those of CloudEvents that are set, then the user's.

    event: or its row in the outbox. at: when it occurred, in ms. sequence: the number of its row.
    """
    encoded = [
        *_FIRST_HEADERS,
        ("ce_id", event.id.encode()),
        *_shared_headers(event.type, source),
        ("ce_time", time_text(at).encode()),
        ("ce_subject", event.aggregate_id.encode()),
        ("ce_aggregatetype", event.aggregate_type.encode()),
        ("ce_partitionkey", event.key.encode()),
    ]
    if event.correlation_id is not None:
        encoded.append(("ce_correlationid", event.correlation_id.encode()))
    if event.causation_id is not None:
        encoded.append(("ce_causationid", event.causation_id.encode()))
    encoded += _number_headers(event.version, event.retries)
    if priority is not None:
        encoded.append(("ce_priority", str(priority).encode()))
    if sequence is not None:
        encoded.append(("ce_sequence", b"%d" % sequence))
    encoded.extend(headers)
    return tuple(encoded)


@lru_cache(maxsize=1024)
def _shared_headers(event_type: str, source: str) -> tuple[tuple[str, bytes], ...]:
    return ("ce_type", event_type.encode()), ("ce_source", source.encode())


@lru_cache(maxsize=1024)
def _number_headers(version: int, retries: int) -> tuple[tuple[str, bytes], ...]:
    return ("ce_dataversion", b"%d" % version), ("ce_retries", b"%d" % retries)


def time_text(ms: int) -> str:
    """As in RFC 3339, in UTC.

    >>> time_text(1_769_860_800_005)
    '2026-01-31T12:00:00.005Z'
    """
    seconds, rest = divmod(ms, 1000)
    return f"{_second_text(seconds)}.{rest:03}Z"


@lru_cache(maxsize=1024)
def _second_text(seconds: int) -> str:
    return from_ms(seconds * 1000).isoformat(timespec="seconds").removesuffix("+00:00")


def type_of(message: BusMessage) -> str:
    """The type of the event, without decoding its payload; empty for plain JSON."""
    for name, value in message.headers:
        if name == "ce_type":
            return value.decode(errors="replace")
    return message_attributes(message).get("type", "")


def read_event(message: BusMessage, place: str, read: Callable[[bytes], Any] | None = None) -> Event[Any]:
    """The event of a message in any of the forms; ValueError for a message that has none of them.

    place: ``topic/partition/offset``, the id of plain JSON. read: decodes the payload (`payload_reader`); without it
    the payload remains plain JSON, or bytes if its content type is not JSON.

    >>> event = read_event(BusMessage(b"k", b'[1]'), "orders/3/17")
    >>> event.id, event.type, event.key, event.payload
    ('orders/3/17', '', 'k', [1])
    """
    headers = _read_headers([(name, readable(data)) for name, data in message.headers])
    parts = _parts(headers, readable(message.key or b""), message.value, message.timestamp, place)
    return parts.event(parts.payload(read))


def event_parts(texts: MessageTexts, place: str) -> EventParts:
    """The parts of an event of a message as texts; ValueError as for `read_event`."""
    if texts.is_regular:
        return _parts(_regular_headers(texts.headers), texts.key or "", texts.value.encode(), texts.timestamp, place)
    headers = _read_headers(texts.readable_headers())
    return _parts(headers, texts.readable_key(), texts.value_bytes(), texts.timestamp, place)


def message_attributes(message: BusMessage) -> dict[str, str]:
    """The attributes of a message as texts, as far as they can be read, without decoding the payload."""
    headers = _read_headers([(name, readable(data)) for name, data in message.headers])
    if not headers.is_structured:
        named = headers.named.items()
        return {name.removeprefix(PREFIX): text for name, text in named if name.startswith(PREFIX)}
    try:
        attributes = _structured_attributes(message.value)
    except ValueError:
        return {}
    return {name: str(value) for name, value in attributes.items() if isinstance(value, str | int)}


class EventParts(Struct, frozen=True, gc=False):
    """An event that was received, before its payload is decoded.

    named: has the attributes of the CloudEvent, with the names of headers in binary mode. headers: those of the
    publisher.
    """

    place: str
    key: str  # of the message; "": none
    timestamp: int | None  # of the message
    named: Mapping[str, str]
    headers: Mapping[str, str]
    data: bytes
    content_type: str

    @property
    def id(self) -> str:
        return self.named.get("ce_id") or self.place

    @property
    def type(self) -> str:
        return self.named.get("ce_type", "")

    @property
    def correlation_id(self) -> str:
        return self.named.get("ce_correlationid") or self.id

    @property
    def priority(self) -> int | None:
        return _number(self.named.get("ce_priority"), 1, 10)

    def payload(self, read: Callable[[bytes], Any] | None) -> Any:
        """Decoded by `read`, as for `read_event`. Raises ValueError."""
        if _is_json(self.content_type):
            return (read or _read_any)(self.data)
        if read is None or read is payload_reader(bytes):
            return self.data
        raise ForeignContent(
            f"the payload is {self.content_type[:100]!r}, not JSON; annotate the event as Event[bytes] to receive it"
        )

    def event(self, payload: Any) -> Event[Any]:
        """The event with its payload."""
        get = self.named.get
        return received_event(
            id=get("ce_id") or self.place,
            type=get("ce_type", ""),
            payload=payload,
            occurred_at=_time(get("ce_time"), self.timestamp),
            aggregate_id=get("ce_subject"),
            aggregate_type=get("ce_aggregatetype") or None,
            key=self.key or get("ce_partitionkey"),
            correlation_id=get("ce_correlationid"),
            causation_id=get("ce_causationid") or None,
            version=_number(get("ce_dataversion"), 1) or 1,
            retries=_number(get("ce_retries"), 0) or 0,
            priority=_number(get("ce_priority"), 1, 10),
            headers=self.headers,
        )


def _parts(headers: _Headers, key: str, value: bytes, timestamp: int | None, place: str) -> EventParts:
    if headers.is_structured:
        attributes = _structured_attributes(value)
        data = _structured_data(attributes)
        content = str(attributes.get("datacontenttype", JSON))
        given = attributes.items()
        named = {f"{PREFIX}{name}": str(text) for name, text in given if isinstance(text, str | int | float)}
        return EventParts(place, key, timestamp, named, headers.users, data, content)
    content = headers.named.get(CONTENT_TYPE, JSON)
    return EventParts(place, key, timestamp, headers.named, headers.users, value, content)


@lru_cache(maxsize=256)
def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower().endswith(("/json", "+json"))


def _structured_attributes(value: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(value, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the message is not a CloudEvent in JSON: {error}") from None


def _structured_data(attributes: Mapping[str, Any]) -> bytes:
    if "data_base64" in attributes:
        return b64decode(str(attributes["data_base64"]), validate=True)
    return msgspec.json.encode(attributes.get("data"))


class _Headers(Struct, frozen=True, gc=False):
    """The headers of a message. named: has those of the library, in lower case. users: those that the library has not.

    The attributes of a CloudEvent in binary mode are among the first.
    """

    named: Mapping[str, str]
    users: Mapping[str, str]

    @property
    def is_structured(self) -> bool:
        content_type = self.named.get(CONTENT_TYPE)
        return content_type is not None and _is_structured(content_type)


def _read_headers(headers: Iterable[tuple[str, str]]) -> _Headers:
    """Of any message. The last of several with a name counts."""
    named: dict[str, str] = {}
    users: dict[str, str] = {}
    for name, text in headers:
        if (known := _library_name(name)) is None:
            users[name] = text
        else:
            named[known] = text
    return _Headers(named, users)


def _regular_headers(headers: Mapping[str, str]) -> _Headers:
    """Most publishers give all their messages the same names, so these are looked at once."""
    users = _user_names(tuple(headers))
    if users is None:
        return _read_headers(headers.items())
    return _Headers(headers, {name: headers[name] for name in users} if users else _NO_HEADERS)


@lru_cache(maxsize=1024)
def _user_names(names: tuple[str, ...]) -> tuple[str, ...] | None:
    """The names of headers that the library has not; None: a name of the library is not in lower case."""
    users: list[str] = []
    for name in names:
        known = _library_name(name)
        if known is None:
            users.append(name)
        elif known != name:
            return None
    return tuple(users)


@lru_cache(maxsize=256)
def _is_structured(content_type: str) -> bool:
    return content_type.lower().startswith(STRUCTURED)


@lru_cache(maxsize=4096)
def _library_name(name: str) -> str | None:
    """The name of a header of the library, in lower case; None: it is the publisher's."""
    lower = name.lower()
    if lower == CONTENT_TYPE or lower.startswith((PREFIX, LIBRARY_PREFIX)):
        return lower
    return None


def _time(text: str | None, timestamp: int | None) -> datetime:
    """The time of an event, else that of its message, else now."""
    try:
        if text is not None:
            moment = msgspec.convert(text, datetime)
            return moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass  # another program's mistake must not hide its event
    if timestamp is None or timestamp < 0:
        return datetime.now(UTC)
    return from_ms(timestamp)


def _number(text: str | None, least: int, most: int = 2**31 - 1) -> int | None:
    """A number of another program; None if it is none, or out of range."""
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        return None
    if not least <= number <= most:
        return None
    return number
