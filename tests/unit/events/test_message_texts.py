"""Messages as texts: byte by byte the same again, and the same event."""

from __future__ import annotations

from hypothesis import example, given, strategies as st

from onthedot.events.bus import BusMessage
from onthedot.events.cloudevents import event_parts, read_event
from onthedot.events.message_texts import texts_of
from onthedot.events.received_records import StoredRecord, decode_event_body, write_body

NAMES = ("ce_id", "CE_ID", "ce_type", "ce_subject", "Content-Type", "content-type", "onthedot-replay", "x", "X-Trace")
names = st.sampled_from(NAMES) | st.text(max_size=5)
headers = st.lists(st.tuples(names, st.sampled_from([b"", b"text/json", b"3"]) | st.binary(max_size=5)), max_size=6)
messages = st.builds(
    BusMessage,
    key=st.none() | st.binary(max_size=5),
    value=st.sampled_from([b"{}", b"[1]", b"null"]) | st.binary(max_size=5),
    headers=headers.map(tuple),
    timestamp=st.none() | st.integers(0, 2**40),
)


def stored(message: BusMessage) -> StoredRecord:
    """As the run of a task reads it."""
    texts = texts_of(message)
    record = StoredRecord(
        agent="a",
        group="shop.a",
        event="e1",
        type="",
        topic="orders",
        partition=0,
        offset=1,
        timestamp=texts.timestamp,
        key=texts.key,
        value=texts.value,
        headers=texts.headers,
        pairs=texts.pairs,
        binary=texts.binary,
    )
    return decode_event_body(write_body(record, "", None, None))[0]


@given(messages)
@example(BusMessage(b"k", b"{}", (("a", b"1"), ("b", b"2"), ("a", b"\xff"))))
def test_message_comes_back_from_the_body_of_its_task(message: BusMessage) -> None:
    assert stored(message).message() == message


@given(messages)
@example(BusMessage(b"k", b"{}", (("CE_Id", b"first"), ("ce_id", b"last"), ("x", b"1"))))
@example(BusMessage(b"k", b"{}", (("CE_Id", b"only"), ("X", b"1"))))
def test_event_of_the_body_is_that_of_the_message(message: BusMessage) -> None:
    parts = event_parts(stored(message).texts, "orders/0/1")
    try:
        expected = read_event(message, "orders/0/1", bytes)
    except ValueError:
        return
    event = parts.event(expected.payload)
    assert event.to_dict() | {"occurred_at": ""} == expected.to_dict() | {"occurred_at": ""}
    assert parts.data == expected.payload
