"""Events ↔ the columns of the outbox, and a row → the message that the relay sends."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from zlib import crc32

from onthedot.clock.epoch import to_ms
from onthedot.errors import ArgumentError
from onthedot.events.bus import BusMessage
from onthedot.events.cloudevents import PREFIX, binary_headers, message_attributes
from onthedot.events.event import Event
from onthedot.events.header_json import decode_headers, encode_headers
from onthedot.events.payloads import encode_payload
from onthedot.events.topic_names import check_topic
from onthedot.model.stored_keys import stored_key, stored_text
from onthedot.stores.contract.events import BUCKETS, NewEvent, OutboxEvent

if TYPE_CHECKING:
    from onthedot.events.settings import Events

_SOURCE = f"{PREFIX}source"
_PRIORITY = f"{PREFIX}priority"
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def bucket_of(key: str) -> int:
    """The bucket of a key: the unit that one relay owns.

    >>> bucket_of("17")
    2
    """
    return crc32(key.encode()) & (BUCKETS - 1)


def new_event(event: Event[Any], settings: Events, app: str, more: Mapping[str, str] = _NO_HEADERS) -> NewEvent:
    """The event as it is published. BadEvent or ArgumentError: it cannot be.

    more: headers that the library adds, such as ``traceparent``; the user's own are kept.

    >>> from onthedot.events import Events
    >>> row = new_event(Event("Shop.Order.Placed", {"id": 17}, aggregate_id="17", priority=7), Events(), "shop")
    >>> row.topic, row.key, row.bucket, row.payload, row.headers
    ('shop.order.events', '17', 2, b'{"id":17}', b'{"ce_source":"/shop","ce_priority":"7"}')
    """
    settings.check(event)
    topic = check_topic(settings.routes.topic_for(event), f"topic of {event.type}:", settings.dlt_suffix)
    payload = encode_payload(event.payload, event.type)
    headers = {**more, **event.headers, _SOURCE: settings.source_of(app)}
    if event.priority is not None:
        headers[_PRIORITY] = str(event.priority)
    encoded = encode_headers([(name, value.encode()) for name, value in headers.items()])
    if len(payload) + len(encoded) > settings.max_event:
        raise ArgumentError(
            f"event {event.type} {event.id} is too large: its payload has {len(payload):,} bytes and its headers "
            f"{len(encoded):,}, together more than max_event={settings.max_event:,}; store large data elsewhere and "
            "publish where it is"
        )
    return NewEvent(
        id=event.id,
        topic=topic,
        key=event.key,
        bucket=bucket_of(event.key),
        type=event.type,
        version=event.version,
        aggregate_type=event.aggregate_type,
        aggregate_id=event.aggregate_id,
        correlation_id=event.correlation_id,
        causation_id=event.causation_id,
        retries=event.retries,
        occurred_at=to_ms(event.occurred_at),
        payload=payload,
        headers=encoded,
    )


def raw_event(id: str, topic: str, message: BusMessage, at: int) -> NewEvent:  # noqa: A002 - as the field is called
    """A message that is sent unchanged: a dead letter or a replay.

    id: its own in the outbox. at: ms, if the message has no time.
    """
    key = _row_key(message.key, id)
    is_exact = message.key is not None and key.encode() == message.key
    attributes = {name: stored_text(value) for name, value in message_attributes(message).items()}
    return NewEvent(
        id=id,
        topic=topic,
        key=key,
        bucket=bucket_of(key),
        type=attributes.get("type", ""),
        aggregate_type=attributes.get("aggregatetype", ""),
        aggregate_id=attributes.get("subject", ""),
        correlation_id=attributes.get("correlationid"),
        causation_id=attributes.get("causationid"),
        occurred_at=_time(message.timestamp, at),
        raw=message.value,
        headers=encode_headers(message.headers, () if is_exact else (message.key,)),
    )


def bus_message(row: OutboxEvent, source: str) -> BusMessage:
    """The message of a row. source: of the CloudEvents, for a row that has none."""
    event = row.event
    stored = decode_headers(event.headers)
    key: bytes | None = event.key.encode()
    for exact in stored.keys:
        key = exact
    if event.raw is not None:
        return BusMessage(key, event.raw, stored.headers, event.occurred_at)
    priority: str | None = None
    users: list[tuple[str, bytes]] = []
    for header in stored.headers:
        name, value = header
        if name == _SOURCE:
            source = value.decode()
        elif name == _PRIORITY:
            priority = value.decode()
        else:
            users.append(header)
    encoded = binary_headers(event, event.occurred_at, users, source=source, priority=priority, sequence=row.seq)
    return BusMessage(key, event.payload or b"null", encoded, event.occurred_at)


def _row_key(key: bytes | None, id: str) -> str:  # noqa: A002
    """The key as a column can have it: it decides about order only."""
    if not key:
        return id
    return stored_key(stored_text(key.decode(errors="backslashreplace")), "key")


def _time(timestamp: int | None, at: int) -> int:
    if timestamp is None or timestamp < 0:
        return at
    return timestamp
