"""Dead letters: original bytes, Spring's headers in Spring's encodings, replays."""

from __future__ import annotations

import struct

from hypothesis import given, strategies as st

from onthedot.codec.task_failure import TaskFailure
from onthedot.events import Event
from onthedot.events.bus import BusMessage, BusRecord
from onthedot.events.cloudevents import read_event, to_message
from onthedot.events.dead_letters import (
    DeadLetter,
    dead_letter,
    dead_letter_id,
    read_dead_letter,
    replay_id,
    replay_number,
    replayed,
    replayed_for,
)
from onthedot.events.outbox_rows import bus_message, raw_event
from onthedot.stores.contract.events import OutboxEvent

EVENT = Event("Shop.Order.Placed", {"id": 17}, aggregate_id="17", id="e1", correlation_id="cmd-7", headers={"x": "1"})
MESSAGE = to_message(EVENT, "/shop")
RECORD = BusRecord("orders", 3, 4_000_000_000, MESSAGE)
FAILURE = TaskFailure("shop.OutOfStock", "no pens", "Traceback …\nshop.OutOfStock: no pens", attempt=4)


def letter(record: BusRecord = RECORD, failure: TaskFailure = FAILURE) -> BusMessage:
    return dead_letter(record, "shop.packer", "packer", "0198", failure)


def test_dead_letter_has_the_headers_of_spring_in_its_encodings() -> None:
    """As `DeadLetterPublishingRecoverer` writes them: texts as UTF-8, numbers big-endian."""
    made = letter()
    ours = dict(made.headers[len(MESSAGE.headers) :])
    assert ours == {
        "kafka_dlt-original-topic": b"orders",
        "kafka_dlt-original-partition": struct.pack(">i", 3),
        "kafka_dlt-original-offset": struct.pack(">q", 4_000_000_000),
        "kafka_dlt-original-timestamp": struct.pack(">q", MESSAGE.timestamp),
        "kafka_dlt-original-timestamp-type": b"CreateTime",
        "kafka_dlt-original-consumer-group": b"shop.packer",
        "kafka_dlt-exception-fqcn": b"shop.OutOfStock",
        "kafka_dlt-exception-message": b"no pens",
        "kafka_dlt-exception-stacktrace": FAILURE.traceback.encode(),
        "onthedot-agent": b"packer",
        "onthedot-attempts": b"4",
        "onthedot-task": b"0198",
    }


def test_dead_letter_keeps_key_value_and_headers() -> None:
    made = letter()
    assert (made.key, made.value, made.headers[: len(MESSAGE.headers)]) == (MESSAGE.key, MESSAGE.value, MESSAGE.headers)
    assert made.timestamp is None
    undecodable = BusMessage(None, b"\xff{", (("h", b"\0\xff"), ("h", b"2")))
    kept = letter(BusRecord("orders", 0, 0, undecodable))
    assert (kept.key, kept.value, kept.headers[:2]) == (None, b"\xff{", undecodable.headers)
    assert struct.pack(">q", -1) in dict(kept.headers).values()
    assert dict(kept.headers)["kafka_dlt-original-timestamp-type"] == b"NoTimestampType"


def test_dead_letter_is_read_back() -> None:
    assert read_dead_letter(letter()) == DeadLetter(
        event_id="e1", type="Shop.Order.Placed", correlation_id="cmd-7", topic="orders", partition=3,
        offset=4_000_000_000, timestamp=MESSAGE.timestamp, group="shop.packer", error_type="shop.OutOfStock",
        error_message="no pens", traceback=FAILURE.traceback, agent="packer", attempts=4, task="0198", replay=0,
    )  # fmt: skip


def test_dead_letter_goes_through_the_outbox_unchanged() -> None:
    made = letter()
    row = raw_event(dead_letter_id("e1", "packer", 0), "orders.DLT", made, 5)
    sent = bus_message(OutboxEvent(1, row), "/shop")
    assert (sent.key, sent.value, sent.headers, sent.timestamp) == (made.key, made.value, made.headers, 5)
    assert row.correlation_id == "cmd-7"


def test_dead_letter_of_another_program_is_read_as_far_as_possible() -> None:
    assert read_dead_letter(BusMessage(None, b"")) == DeadLetter()
    odd = BusMessage(
        None,
        b"{",
        (
            ("kafka_dlt-original-partition", b"3"),
            ("kafka_dlt-original-topic", b"\xff"),
            ("onthedot-attempts", b"x"),
            ("onthedot-replay", b"-1"),
            ("content-type", b"application/cloudevents+json"),
        ),
    )
    assert read_dead_letter(odd) == DeadLetter(topic="\\xff")


def test_long_texts_are_cut_to_8_kib_and_keep_their_end() -> None:
    made = letter(failure=TaskFailure("E", "m" * 9000, "ä" * 5000 + "the end"))
    headers = dict(made.headers)
    message = headers["kafka_dlt-exception-message"].decode()
    traceback = headers["kafka_dlt-exception-stacktrace"]
    assert len(message.encode()) == 8192
    assert len(traceback) <= 8192
    assert traceback.decode().startswith("…ä")
    assert traceback.endswith("ä".encode() + b"the end")


@given(st.text())
def test_any_error_can_be_written(text: str) -> None:
    assert read_dead_letter(letter(failure=TaskFailure("E", text, text))).error_message == text


def test_error_with_a_lone_surrogate_can_be_written() -> None:
    assert read_dead_letter(letter(failure=TaskFailure("E", "a\udcff"))).error_message == "a\\udcff"


def test_replay_is_the_original_message_with_a_number() -> None:
    again = replayed(letter(), 1)
    assert (again.key, again.value) == (MESSAGE.key, MESSAGE.value)
    assert again.headers == (*MESSAGE.headers, ("onthedot-agent", b"packer"), ("onthedot-replay", b"1"))
    assert (replay_number(MESSAGE), replay_number(again)) == (0, 1)
    assert (replayed_for(MESSAGE), replayed_for(again)) == ("", "packer")
    event = read_event(again, "orders/3/18")
    assert event == EVENT
    assert event.headers == {"x": "1"}


def test_replay_that_fails_again_has_one_set_of_headers() -> None:
    second = letter(BusRecord("orders", 3, 9, replayed(letter(), 1)))
    names = [name for name, _ in second.headers]
    assert len(names) == len(set(names))
    assert read_dead_letter(second).offset == 9
    assert read_dead_letter(second).replay == 1
    third = replayed(second, 2)
    assert third.headers == (*MESSAGE.headers, ("onthedot-agent", b"packer"), ("onthedot-replay", b"2"))


def test_ids_of_dead_letters_and_replays_are_stable() -> None:
    ids = [dead_letter_id("e1", "packer", 0), dead_letter_id("e1", "packer", 1), dead_letter_id("e1", "other", 0)]
    assert len({*ids, dead_letter_id("e1", "packer", 0)}) == 3
    dead = BusRecord("orders.DLT", 0, 7, letter())
    assert replay_id(dead) == replay_id(dead)
    assert replay_id(dead) != replay_id(dead, "again")
    assert replay_id(dead) != replay_id(BusRecord("orders.DLT", 0, 8, letter()))
