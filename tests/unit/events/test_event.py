"""Events as values: defaults, checks, replies, dicts."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError, dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from onthedot import ArgumentError, BadEvent, DeclarationError, Expired, OnTheDotError
from onthedot.events import Event, event_id

AT = datetime(2026, 1, 31, 12, 0, 0, 5000, tzinfo=UTC)


def event(**changes: Any) -> Event[Any]:
    return Event(**({"type": "Shop.Order.Placed", "payload": {"id": 17}, "aggregate_id": "17"} | changes))


def test_event_has_defaults() -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    made = event()
    assert UUID(made.id).version == 7
    assert (made.aggregate_type, made.key, made.correlation_id) == ("ShopOrder", "17", made.id)
    assert (made.causation_id, made.version, made.retries, made.priority, made.topic) == (None, 1, 0, None, None)
    assert before <= made.occurred_at <= datetime.now(UTC)
    assert made.headers == {}


def test_event_without_an_id_gets_one_of_its_own() -> None:
    assert event() != event()
    assert event(id="e1") == event(id="e1", payload={})
    assert len({event(id="e1"), event(id="e1"), event(id="e2")}) == 2
    assert event(id="e1") != "e1"


def test_event_is_frozen() -> None:
    made = event(headers={"a": "b"})
    with pytest.raises(FrozenInstanceError):
        made.payload = {}  # type: ignore[misc]
    with pytest.raises(TypeError):
        made.headers["c"] = "d"  # type: ignore[index]


def test_event_keeps_its_headers_when_the_caller_changes_its_own() -> None:
    headers = {"a": "b"}
    made = event(headers=headers)
    headers["a"] = "c"
    assert made.headers == {"a": "b"}


def test_event_can_be_copied_pickled_and_changed() -> None:
    made = event(id="e1", headers={"a": "b"}, priority=7)
    for twin in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert twin.to_dict() == made.to_dict()
    changed = replace(made, version=2)
    assert changed.to_dict() == made.to_dict() | {"version": 2}


def test_time_of_an_event_is_kept_in_utc_to_the_millisecond() -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 1999, tzinfo=timezone(timedelta(hours=2)))
    kept = event(occurred_at=moment).occurred_at
    assert kept == datetime(2026, 1, 31, 10, 0, 0, 1000, tzinfo=UTC)
    assert kept.tzinfo is UTC


def test_reply_is_caused_by_the_event() -> None:
    request = event(id="e1", key="task-3", correlation_id="cmd-7", aggregate_type="Order", retries=2, priority=9)
    reply = request.reply("Shop.Order.Shipped", {"at": "home"}, version=2)
    assert (reply.aggregate_id, reply.aggregate_type, reply.key) == ("17", "Order", "task-3")
    assert (reply.correlation_id, reply.causation_id) == ("cmd-7", "e1")
    assert (reply.retries, reply.priority, reply.version) == (0, None, 2)
    assert reply.id != request.id
    assert request.reply("Shop.Order.Shipped", {}, key="k", aggregate_id="18").key == "k"
    with pytest.raises(TypeError, match="'aggregat'"):
        request.reply("Shop.Order.Shipped", {}, aggregat="18")


@dataclass
class Order:
    id: int
    price: float


def test_event_becomes_a_dict_and_comes_back() -> None:
    made = event(
        payload=Order(17, 1.5), key="k", correlation_id="c", causation_id="p", version=3, retries=1, priority=10,
        headers={"traceparent": "00-1"}, topic="orders", occurred_at=AT,
    )  # fmt: skip
    data = json.loads(json.dumps(made.to_dict()))
    assert data["payload"] == {"id": 17, "price": 1.5}
    assert data["occurred_at"] == "2026-01-31T12:00:00.005+00:00"
    again = Event.from_dict(data | {"unknown": 1})
    assert again == made
    assert again.to_dict() == made.to_dict()
    assert again.occurred_at == made.occurred_at


def test_dict_of_an_event_of_another_program_needs_only_four_fields() -> None:
    data = {"id": "e1", "type": "com.example.order", "aggregate_id": "", "occurred_at": "2026-01-31T12:00:00Z"}
    read = Event.from_dict(data)
    assert (read.aggregate_id, read.key, read.correlation_id, read.payload) == ("e1", "e1", "e1", None)
    assert Event.from_dict(read.to_dict()).to_dict() == read.to_dict()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "missing required field `id`"),
        ({"id": 1}, r"Expected `str`, got `int` - at `\$.id`"),
        ({"id": "e", "type": "t", "aggregate_id": "a", "occurred_at": "now"}, r"\$.occurred_at"),
    ],
)
def test_dict_that_is_no_event_is_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(BadEvent, match=f"not an event: .*{message}"):
        Event.from_dict(data)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aggregate_id": ""}, "aggregate_id of an event is ''"),
        ({"key": ""}, "key of an event is ''"),
        ({"key": "k" * 513}, "key of an event is 'k+', of 513 bytes; it must have 1 to 512"),
        ({"key": "ä" * 257}, "of 514 bytes"),
        ({"key": "a\0b"}, "no NUL"),
        ({"id": ""}, "id of an event is ''"),
        ({"id": "\udcff"}, "id of an event has a lone surrogate at 0"),
        ({"correlation_id": ""}, "correlation_id of an event is ''"),
        ({"causation_id": ""}, "causation_id of an event is ''"),
        ({"aggregate_type": ""}, "aggregate_type of an event is ''"),
        ({"version": 0}, "version of an event must be a whole number from 1 to 2147483647, not 0"),
        ({"version": True}, "version of an event must be a whole number"),
        ({"version": 2**31}, "version of an event must be a whole number"),
        ({"retries": -1}, "retries of an event must be a whole number from 0 to"),
        ({"priority": 11}, "priority of an event must be a whole number from 1 to 10, not 11"),
        ({"occurred_at": AT.replace(tzinfo=None)}, "occurred_at of an event has no time zone"),
        ({"headers": {"a b": "c"}}, "header 'a b' of an event is not a name: 1 to 100 of A-Z a-z 0-9 _ . -"),
        ({"headers": {"a" * 101: "c"}}, "is not a name"),
        ({"headers": {"ce_id": "c"}}, "header 'ce_id' of an event is reserved"),
        ({"headers": {"CE_id": "c"}}, "header 'CE_id' of an event is reserved"),
        ({"headers": {"kafka_dlt-x": "c"}}, "is reserved"),
        ({"headers": {"onthedot-replay": "1"}}, "is reserved"),
        ({"headers": {"Content-Type": "text/plain"}}, "is reserved"),
        ({"headers": {"a": "\ud800"}}, "header 'a' of an event has a lone surrogate at 0"),
    ],
)
def test_value_that_an_event_cannot_have_is_refused_by_its_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadEvent, match=message) as refused:
        event(**changes)
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aggregate_id": 17}, "aggregate_id of an event must be a text, not 17, which is of type int"),
        ({"occurred_at": "now"}, "occurred_at of an event must be a datetime, not 'now'"),
        ({"headers": [("a", "b")]}, "headers of an event must be a dict of texts"),
        ({"headers": {"a": 1}}, "header 'a' of an event must be a text, not 1"),
        ({"topic": "a b"}, "topic of an event: 'a b' is not a name for Kafka"),
        ({"type": None}, "event type None is of type NoneType"),
    ],
)
def test_value_of_a_wrong_type_is_refused_by_its_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadEvent, match=message) as refused:
        event(**changes)
    assert isinstance(refused.value, DeclarationError)


def test_payload_is_checked_when_it_is_written() -> None:
    with pytest.raises(ArgumentError, match=r"payload of Shop.Order.Placed: \$.price is nan"):
        event(payload={"price": float("nan")}).to_dict()


def test_ids_from_parts_are_stable() -> None:
    ids = [event_id("cmd-7", 3), event_id("cmd-7", "3"), event_id("cmd-73"), event_id("cmd-7", 3, "")]
    assert len(set(ids)) == 4
    assert ids[0] == event_id("cmd-7", 3)
    assert event_id(UUID(ids[0]), datetime(2026, 1, 1, tzinfo=UTC))
    event(id=ids[0])


@pytest.mark.parametrize(("parts", "message"), [((), "at least one part"), (("a", 1.5), "of type float")])
def test_ids_from_nothing_or_from_values_without_a_stable_text_are_refused(
    parts: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        event_id(*parts)


def test_expired_has_what_came_and_what_is_missing() -> None:
    came = event()
    error = Expired([came], {("Shop.Order.Paid",): 1})
    assert error.events == [came]
    assert error.missing == {("Shop.Order.Paid",): 1}
    assert str(error) == "not all expected events came in time: 1 of Shop.Order.Paid is missing; 1 came"
    assert isinstance(error, OnTheDotError)
    assert isinstance(error, TimeoutError)
    again = pickle.loads(pickle.dumps(error))
    assert (again.events, again.missing) == (error.events, error.missing)
