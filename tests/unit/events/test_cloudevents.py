"""Events as messages: CloudEvents 1.0 in the binary mode of Kafka, and the forms that can be read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary, to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given

from onthedot.events import Event
from onthedot.events.bus import BusMessage
from onthedot.events.cloudevents import ForeignContent, read_event, to_message, type_of
from onthedot.events.payloads import payload_reader
from tests.unit.events.strategies import events

PLACE = "orders/3/17"
AT = datetime(2026, 1, 31, 12, 0, 0, 5000, tzinfo=UTC)


def request() -> Event[dict[str, Any]]:
    return Event(
        "Genesis.Session.DetailBatchGenerationRequested", {"task_id": "t1", "count": 5}, aggregate_id="s1", key="t1",
        aggregate_type="GenesisSession", correlation_id="cmd-7", causation_id="e0", version=2, retries=1, priority=5,
        id="e1", occurred_at=AT, headers={"traceparent": "00-1"},
    )  # fmt: skip


def test_message_has_the_attributes_of_cloudevents_as_headers() -> None:
    message = to_message(request(), "/genesis")
    assert dict(message.headers) == {
        "ce_specversion": b"1.0",
        "content-type": b"application/json",
        "ce_id": b"e1",
        "ce_type": b"Genesis.Session.DetailBatchGenerationRequested",
        "ce_source": b"/genesis",
        "ce_time": b"2026-01-31T12:00:00.005Z",
        "ce_subject": b"s1",
        "ce_aggregatetype": b"GenesisSession",
        "ce_partitionkey": b"t1",
        "ce_correlationid": b"cmd-7",
        "ce_causationid": b"e0",
        "ce_dataversion": b"2",
        "ce_retries": b"1",
        "ce_priority": b"5",
        "traceparent": b"00-1",
    }
    assert len(message.headers) == 15
    assert message.key == b"t1"
    assert json.loads(message.value) == {"task_id": "t1", "count": 5}
    assert message.timestamp == 1_769_860_800_005


def test_what_is_not_set_has_no_header() -> None:
    headers = dict(to_message(Event("Shop.Order.Placed", {}, aggregate_id="1"), "/shop").headers)
    assert headers.keys() & {"ce_causationid", "ce_priority"} == set()


def test_cloudevents_sdk_parses_our_messages() -> None:
    message = to_message(request(), "/genesis")
    parsed = from_binary(KafkaMessage(dict(message.headers), message.key, message.value), JSONFormat())
    assert isinstance(parsed, CloudEvent)
    assert (parsed.get_id(), parsed.get_type(), parsed.get_source()) == ("e1", request().type, "/genesis")
    assert (parsed.get_subject(), parsed.get_time()) == ("s1", AT)
    assert parsed.get_datacontenttype() == "application/json"
    assert parsed.get_data() == {"task_id": "t1", "count": 5}
    extensions = {
        "correlationid": "cmd-7", "causationid": "e0", "partitionkey": "t1", "aggregatetype": "GenesisSession",
        "dataversion": "2", "retries": "1", "priority": "5",
    }  # fmt: skip
    assert {name: parsed.get_extension(name) for name in extensions} == extensions


@given(events)
def test_event_comes_back_from_its_message(event: Event[Any]) -> None:
    message = to_message(event, "/shop")
    assert read_event(message, PLACE).to_dict() == event.to_dict()
    assert type_of(message) == event.type


@given(events)
def test_cloudevents_sdk_reads_and_writes_what_we_read(event: Event[Any]) -> None:
    message = to_message(event, "/shop")
    parsed = from_binary(KafkaMessage(dict(message.headers), message.key, message.value), JSONFormat())
    binary = to_binary(parsed, JSONFormat())
    structured = to_structured(parsed, JSONFormat())
    for written in (binary, structured):
        key = written.key
        assert isinstance(key, str)
        again = BusMessage(key.encode(), written.value, tuple(written.headers.items()))
        assert read_event(again, PLACE).to_dict() == event.to_dict() | {"headers": {}}
        assert type_of(again) == event.type


def test_payload_is_decoded_by_the_annotation() -> None:
    message = to_message(request(), "/genesis")
    assert read_event(message, PLACE, payload_reader(dict[str, str | int])).payload == {"task_id": "t1", "count": 5}
    with pytest.raises(ValueError, match="does not fit"):
        read_event(message, PLACE, payload_reader(dict[str, str]))


def test_plain_json_has_its_place_as_id_and_no_type() -> None:
    event = read_event(BusMessage(b"k1", b'{"a":1}', (("trace", b"7"),), 1_769_860_800_005), PLACE)
    assert (event.id, event.type, event.aggregate_type, event.correlation_id) == (PLACE, "", "", PLACE)
    assert (event.key, event.aggregate_id, event.payload) == ("k1", "k1", {"a": 1})
    assert event.occurred_at == AT
    assert event.headers == {"trace": "7"}
    assert type_of(BusMessage(b"k1", b"{}")) == ""


def test_plain_json_without_a_key_has_its_place_as_key() -> None:
    event = read_event(BusMessage(None, b"[]", (), -1), PLACE)
    assert (event.key, event.aggregate_id) == (PLACE, PLACE)
    assert (datetime.now(UTC) - event.occurred_at).total_seconds() < 10


def foreign(**attributes: str) -> BusMessage:
    attributes = {"specversion": "1.0", "id": "e1", "type": "com.example.order", "source": "/x"} | attributes
    return BusMessage(None, b"{}", tuple((f"ce_{name}", value.encode()) for name, value in attributes.items()))


def test_event_of_another_program_needs_neither_subject_nor_key() -> None:
    event = read_event(foreign(), PLACE)
    assert (event.type, event.aggregate_id, event.key, event.correlation_id) == ("com.example.order", "e1", "e1", "e1")
    assert (event.aggregate_type, event.version, event.retries, event.priority) == ("comexample", 1, 0, None)
    assert read_event(foreign(partitionkey="p"), PLACE).aggregate_id == "p"
    assert read_event(foreign(subject="s", partitionkey="p"), PLACE).aggregate_id == "s"


def test_bad_attributes_of_another_program_do_not_hide_its_event() -> None:
    event = read_event(foreign(time="yesterday", dataversion="1.2", retries="-1", priority="99"), PLACE)
    assert (event.version, event.retries, event.priority) == (1, 0, None)


def test_headers_that_are_no_text_are_escaped_and_the_last_of_a_name_counts() -> None:
    message = BusMessage(
        b"\xff", b"{}", (("x", b"1"), ("x", b"\xff"), ("CE_Id", b"e7"), ("Content-Type", b"text/json"))
    )
    event = read_event(message, PLACE)
    assert (event.id, event.key, event.headers) == ("e7", "\\xff", {"x": "\\xff"})


def structured(**attributes: object) -> BusMessage:
    data = {"specversion": "1.0", "id": "e1", "type": "Shop.Order.Placed", "source": "/x"} | attributes
    headers = (("content-type", b"application/cloudevents+json; charset=utf-8"), ("x", b"1"))
    return BusMessage(b"k", json.dumps(data).encode(), headers, 1_769_860_800_005)


def test_structured_form_is_read() -> None:
    event = read_event(structured(data={"a": 1}, subject="s", dataversion=3), PLACE)
    assert (event.id, event.key, event.aggregate_id, event.payload) == ("e1", "k", "s", {"a": 1})
    assert (event.version, event.headers, event.occurred_at) == (3, {"x": "1"}, AT)
    assert read_event(structured(), PLACE).payload is None
    assert read_event(structured(data_base64="eyJhIjoxfQ=="), PLACE).payload == {"a": 1}
    assert read_event(structured(data_base64="YQ==", datacontenttype="text/plain"), PLACE).payload == b"a"


@pytest.mark.parametrize("value", [b"{", b"[1]", b"", b"[" * 100_000, b'{"data_base64":"?"}'])
def test_structured_form_that_cannot_be_read_is_refused(value: bytes) -> None:
    message = BusMessage(b"k", value, (("content-type", b"application/cloudevents+json"),))
    with pytest.raises(ValueError):
        read_event(message, PLACE)
    assert type_of(message) == ""


def test_payload_of_another_content_type_needs_an_annotation_of_bytes() -> None:
    message = BusMessage(b"k", b"\0avro", (("ce_id", b"e1"), ("content-type", b"application/avro")))
    assert read_event(message, PLACE).payload == b"\0avro"
    assert read_event(message, PLACE, payload_reader(bytes)).payload == b"\0avro"
    with pytest.raises(ForeignContent, match=r"'application/avro', not JSON; annotate the event as Event\[bytes\]"):
        read_event(message, PLACE, payload_reader(dict[str, Any]))


def test_value_that_is_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="is not JSON"):
        read_event(BusMessage(b"k", b"{"), PLACE)
