"""Events as rows of the outbox, and rows as messages."""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, strategies as st

from onthedot import ArgumentError, BadEvent
from onthedot.clock.epoch import from_ms
from onthedot.events import Event, Events
from onthedot.events.bus import BusMessage
from onthedot.events.cloudevents import read_event, to_message
from onthedot.events.header_json import decode_headers, encode_headers
from onthedot.events.outbox_rows import bucket_of, bus_message, new_event, raw_event
from onthedot.stores.contract.events import NewEvent, OutboxEvent
from tests.unit.events.strategies import events

PLACE = "orders/3/17"
SETTINGS = Events(topics={"Shop.Order.*": "orders"}, source="/shop")


def request(**changes: Any) -> Event[Any]:
    fields = {
        "key": "t1", "correlation_id": "cmd-7", "causation_id": "e0", "version": 2, "retries": 1, "priority": 5,
        "id": "e1", "occurred_at": from_ms(1_769_860_800_005), "headers": {"x": "1"},
    }  # fmt: skip
    return Event("Shop.Order.Placed", {"id": 17}, aggregate_id="17", **(fields | changes))


def test_row_has_the_fields_of_the_event() -> None:
    assert new_event(request(), SETTINGS, "genesis", {"traceparent": "00-1", "x": "2"}) == NewEvent(
        id="e1", topic="orders", key="t1", bucket=crc32(b"t1") & 15, type="Shop.Order.Placed", version=2,
        aggregate_type="ShopOrder", aggregate_id="17", correlation_id="cmd-7", causation_id="e0", retries=1,
        occurred_at=1_769_860_800_005, payload=b'{"id":17}', raw=None,
        headers=b'{"traceparent":"00-1","x":"1","ce_source":"/shop","ce_priority":"5"}',
    )  # fmt: skip


def test_row_is_sent_as_the_event_would_be() -> None:
    message = bus_message(OutboxEvent(7, new_event(request(), SETTINGS, "shop")), "/other")
    expected = to_message(request(), "/shop")
    assert dict(message.headers) == dict(expected.headers) | {"ce_sequence": b"7"}
    assert (message.key, message.value, message.timestamp) == (expected.key, expected.value, expected.timestamp)


@given(events)
def test_event_comes_back_from_its_row(event: Event[Any]) -> None:
    row = new_event(event, SETTINGS, "shop")
    assert 0 <= row.bucket < 16
    message = bus_message(OutboxEvent(1, row), "/shop")
    assert read_event(message, PLACE).to_dict() == event.to_dict()
    assert dict(message.headers)["ce_source"] == b"/shop"


def test_row_without_headers_and_payload_has_the_source_of_the_relay() -> None:
    """As a row that SQL has inserted."""
    row = NewEvent("e1", "orders", "k", 3, "Shop.Order.Placed", aggregate_type="ShopOrder", aggregate_id="17")
    message = bus_message(OutboxEvent(1, row), "/shop")
    assert dict(message.headers)["ce_source"] == b"/shop"
    assert message.value == b"null"
    event = read_event(message, PLACE)
    assert (event.id, event.correlation_id, event.payload) == ("e1", "e1", None)


@pytest.mark.parametrize(
    ("event", "error", "message"),
    [
        (request(topic="x" * 246), BadEvent, "topic of Shop.Order.Placed: 'x+' is too long"),
        (Event("Shop.Order.Place", {}, aggregate_id="1"), BadEvent, "not in the past tense"),
        (Event("Shop.Order.Placed", {"a": ...}, aggregate_id="1"), ArgumentError, r"\$\.a is of type ellipsis"),
    ],
)
def test_event_that_cannot_be_published_is_refused(event: Event[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        new_event(event, SETTINGS, "shop")


def test_event_that_is_too_large_is_refused_with_both_sizes() -> None:
    settings = Events(max_event=1000)
    large = Event("Shop.Order.Placed", "x" * 900, aggregate_id="1", id="e1", headers={"a": "y" * 100})
    problem = (
        r"event Shop\.Order\.Placed e1 is too large: its payload has 902 bytes and its headers 128, together more than "
        r"max_event=1,000"
    )
    with pytest.raises(ArgumentError, match=problem):
        new_event(large, settings, "shop")
    fitting = 1000 - len(json.dumps({"ce_source": "/shop"}, separators=(",", ":"))) - 2
    new_event(Event("Shop.Order.Placed", "x" * fitting, aggregate_id="1"), settings, "shop")
    with pytest.raises(ArgumentError, match="is too large"):
        new_event(Event("Shop.Order.Placed", "x" * (fitting + 1), aggregate_id="1"), settings, "shop")


header_names = st.sampled_from(["a", ";key", ";", ";base64", "a;base64", ";;key", "", "ce_id"]) | st.text(max_size=10)
headers = st.lists(st.tuples(header_names.filter(lambda name: "\0" not in name), st.binary(max_size=10)), max_size=5)
messages = st.builds(
    BusMessage,
    key=st.none() | st.binary(max_size=20) | st.text(max_size=5).map(str.encode) | st.just(b"k" * 600),
    value=st.binary(max_size=20),
    headers=headers.map(tuple),
    timestamp=st.integers(0, 2**42),
)


@given(messages)
def test_raw_row_is_sent_unchanged(message: BusMessage) -> None:
    row = raw_event("d1", "orders.DLT", message, 5)
    sent = bus_message(OutboxEvent(1, row), "/shop")
    assert sorted(sent.headers) == sorted(message.headers)
    for name in dict(message.headers):
        assert [value for key, value in sent.headers if key == name] == [
            value for key, value in message.headers if key == name
        ]
    assert (sent.key, sent.value, sent.timestamp) == (message.key, message.value, message.timestamp)
    assert 1 <= len(row.key.encode()) <= 512
    assert row.bucket == bucket_of(row.key)
    assert row.payload is None
    for text in (row.key, row.type, row.aggregate_id, row.aggregate_type, row.headers and row.headers.decode()):
        assert "\0" not in str(text)


def test_raw_row_can_be_found_by_the_attributes_of_its_event() -> None:
    row = raw_event("d1", "orders.DLT", to_message(request(), "/shop"), 5)
    assert (row.id, row.topic, row.key, row.bucket) == ("d1", "orders.DLT", "t1", bucket_of("t1"))
    assert (row.type, row.aggregate_type, row.aggregate_id) == ("Shop.Order.Placed", "ShopOrder", "17")
    assert (row.correlation_id, row.causation_id, row.occurred_at) == ("cmd-7", "e0", 1_769_860_800_005)


@pytest.mark.parametrize("timestamp", [None, -1])
def test_raw_row_of_a_message_without_a_time_has_that_of_the_call(timestamp: int | None) -> None:
    assert raw_event("d1", "orders", BusMessage(None, b"", (), timestamp), 5).occurred_at == 5


def test_messages_with_one_key_have_one_bucket_also_if_it_is_no_text() -> None:
    rows = [raw_event(number, "orders", BusMessage(b"\xff", b""), 0) for number in ("d1", "d2")]
    assert rows[0].key == rows[1].key
    apart = [raw_event(number, "orders", BusMessage(None, b""), 0).key for number in ("d1", "d2")]
    assert apart == ["d1", "d2"]


def test_headers_are_readable_json() -> None:
    stored = encode_headers([("a", b"x"), ("n", b"\0\0\0\3"), ("a", b"y"), (";key", b"z")], (None,))
    assert json.loads(stored) == {";key": None, "a": ["x", "y"], "n;base64": "AAAAAw==", ";;key": "z"}
    assert decode_headers(stored) == ((("a", b"x"), ("a", b"y"), ("n", b"\0\0\0\3"), (";key", b"z")), (None,))
    assert decode_headers(None) == ((), ())
