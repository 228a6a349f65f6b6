"""Events as messages of a bus: CloudEvents 1.0 in the binary mode of Kafka, and every form that can be read.

Read are the binary mode (headers ``ce_…``), the structured mode (``content-type: application/cloudevents+json``) and
plain JSON without either, whose id is its place and whose type is empty.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from onthedot.clock.epoch import from_ms, to_ms
from onthedot.events.bus import BusMessage
from onthedot.events.event import Event, received_event
from onthedot.events.event_checks import CONTENT_TYPE, LIBRARY_PREFIX
from onthedot.events.payloads import encode_payload, payload_reader
from onthedot.stores.contract.events import NewEvent

JSON = "application/json"
STRUCTURED = "application/cloudevents+json"
PREFIX = "ce_"
_VERSION = "1.0"
_read_any = payload_reader(Any)


class ForeignContent(ValueError):
    """A payload whose content type is not JSON."""


def to_message(event: Event[Any], source: str) -> BusMessage:
    """The event as a message. source: of the CloudEvents, as in "/shop".

    >>> message = to_message(Event("Shop.Order.Placed", {"id": 17}, aggregate_id="17", id="e1"), "/shop")
    >>> message.key, message.value, dict(message.headers)["ce_type"]
    (b'17', b'{"id":17}', b'Shop.Order.Placed')
    """
    headers = binary_headers(event, event.occurred_at, event.headers, source=source, priority=event.priority)
    return BusMessage(event.key.encode(), encode_payload(event.payload, event.type), headers, to_ms(event.occurred_at))


def binary_headers(
    event: Event[Any] | NewEvent,
    moment: datetime,
    headers: Mapping[str, str],
    *,
    source: str,
    priority: int | str | None,
    sequence: int | None = None,
) -> tuple[tuple[str, bytes], ...]:
    """The headers of a message in binary mode: those of CloudEvents that are set, then the user's.

    event: or its row in the outbox. moment: when it occurred. sequence: the number of its row.
    """
    attributes: dict[str, int | str | None] = {
        "specversion": _VERSION,
        "id": event.id,
        "type": event.type,
        "source": source,
        "time": time_text(moment),
        "subject": event.aggregate_id,
        "aggregatetype": event.aggregate_type,
        "partitionkey": event.key,
        "correlationid": event.correlation_id,
        "causationid": event.causation_id,
        "dataversion": event.version,
        "retries": event.retries,
        "priority": priority,
        "sequence": sequence,
    }
    ours = [(f"{PREFIX}{name}", str(value)) for name, value in attributes.items() if value is not None]
    return tuple([(name, value.encode()) for name, value in [(CONTENT_TYPE, JSON), *ours, *headers.items()]])


def time_text(moment: datetime) -> str:
    """As in RFC 3339, in UTC.

    >>> time_text(datetime(2026, 1, 31, 12, 0, 0, 5000, tzinfo=UTC))
    '2026-01-31T12:00:00.005Z'
    """
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
    headers = _texts(message.headers)
    if _is_structured(headers):
        attributes = _structured_attributes(message.value)
        data = _structured_data(attributes)
        content = str(attributes.get("datacontenttype", JSON))
    else:
        attributes = _binary_attributes(headers)
        data = message.value
        content = headers.get(CONTENT_TYPE, JSON)
    return _event(message, attributes, headers, place, _payload(data, content, read))


def message_attributes(message: BusMessage) -> dict[str, str]:
    """The attributes of a message as texts, as far as they can be read, without decoding the payload."""
    headers = _texts(message.headers)
    if not _is_structured(headers):
        return _binary_attributes(headers)
    try:
        attributes = _structured_attributes(message.value)
    except ValueError:
        return {}
    return {name: str(value) for name, value in attributes.items() if isinstance(value, str | int)}


def _event(
    message: BusMessage, attributes: Mapping[str, Any], headers: Mapping[str, str], place: str, payload: Any
) -> Event[Any]:
    def text(name: str) -> str | None:
        value = attributes.get(name)
        return None if value in (None, "") else str(value)

    key = text("partitionkey")
    if message.key:
        key = message.key.decode(errors="backslashreplace")
    return received_event(
        id=text("id") or place,
        type=text("type") or "",
        payload=payload,
        occurred_at=_time(text("time"), message.timestamp),
        aggregate_id=text("subject"),
        aggregate_type=text("aggregatetype"),
        key=key,
        correlation_id=text("correlationid"),
        causation_id=text("causationid"),
        version=_number(attributes.get("dataversion"), 1) or 1,
        retries=_number(attributes.get("retries"), 0) or 0,
        priority=_number(attributes.get("priority"), 1, 10),
        headers={name: value for name, value in headers.items() if not _is_ours(name)},
    )


def _is_ours(header: str) -> bool:
    return header == CONTENT_TYPE or header.startswith((PREFIX, LIBRARY_PREFIX))


def _payload(data: bytes, content: str, read: Callable[[bytes], Any] | None) -> Any:
    kind = content.partition(";")[0].strip().lower()
    if kind.endswith(("/json", "+json")):
        return (read or _read_any)(data)
    if read is None or read is payload_reader(bytes):
        return data
    raise ForeignContent(
        f"the payload is {content[:100]!r}, not JSON; annotate the event as Event[bytes] to receive it"
    )


def _binary_attributes(headers: Mapping[str, str]) -> dict[str, Any]:
    return {name.removeprefix(PREFIX): value for name, value in headers.items() if name.startswith(PREFIX)}


def _structured_attributes(value: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(value, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the message is not a CloudEvent in JSON: {error}") from None


def _structured_data(attributes: Mapping[str, Any]) -> bytes:
    if "data_base64" in attributes:
        return b64decode(str(attributes["data_base64"]), validate=True)
    return msgspec.json.encode(attributes.get("data"))


def _is_structured(headers: Mapping[str, str]) -> bool:
    return headers.get(CONTENT_TYPE, "").lower().startswith(STRUCTURED)


def _texts(headers: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """Headers as texts; the names of the library's own ones in lower case. The last of several with a name counts."""
    texts: dict[str, str] = {}
    for name, value in headers:
        lower = name.lower()
        texts[lower if _is_ours(lower) else name] = (value or b"").decode(errors="backslashreplace")
    return texts


def _time(text: str | None, timestamp: int | None) -> datetime:
    """The time of an event, else that of its message, else now."""
    try:
        if text is not None:
            return msgspec.convert(text, datetime).astimezone(UTC)
    except (ValueError, OverflowError):
        pass  # another program's mistake must not hide its event
    if timestamp is None or timestamp < 0:
        return datetime.now(UTC)
    return from_ms(timestamp)


def _number(value: Any, least: int, most: int = 2**31 - 1) -> int | None:
    """A number of another program; None if it is none, or out of range."""
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    if not least <= number <= most:
        return None
    return number
