"""Payloads as plain JSON: what is written, what is refused with its path, and how annotations read it."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, Field

from onthedot import ArgumentError, DeclarationError
from onthedot.events.payloads import encode_payload, payload_reader, plain_payload


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"


@dataclass
class Line:
    item: str
    price: Decimal
    tags: set[str] = field(default_factory=set)


class Order(msgspec.Struct, rename="camel", tag="order", omit_defaults=True):
    order_id: int
    lines: list[Line] = []
    at: datetime | None = None


class Customer(BaseModel):
    name: str = Field(alias="fullName")
    since: date


class Point(NamedTuple):
    x: int
    y: int


class Address(TypedDict, total=False):
    street: str


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ID = UUID("0193a1b2-0000-7000-8000-000000000000")
PLAIN = [
    ({"a": [1, 2.5, None, True, "ä"]}, {"a": [1, 2.5, None, True, "ä"]}),
    (OrderedDict(a=1), {"a": 1}),
    (MappingProxyType({"a": 1}), {"a": 1}),
    ((1, 2), [1, 2]),
    ({7}, [7]),
    (Point(1, 2), [1, 2]),
    (NOON, "2026-01-31T12:00:00Z"),
    (date(2026, 1, 31), "2026-01-31"),
    (time(12, 30), "12:30:00"),
    (timedelta(days=1, seconds=2), "P1DT2S"),
    (ID, str(ID)),
    (Decimal("1.50"), "1.50"),
    (b"a", "YQ=="),
    (PurePosixPath("/a/b"), "/a/b"),
    (Colour.RED, "red"),
    (Level.HIGH, 3),
    (Word.YES, "yes"),
    ({Word.YES: 1}, {"yes": 1}),
    (Line("pen", Decimal("1.50"), {"blue"}), {"item": "pen", "price": "1.50", "tags": ["blue"]}),
    (Order(7), {"type": "order", "orderId": 7}),
    (
        Order(7, [Line("pen", Decimal(2))], NOON),
        {
            "type": "order",
            "orderId": 7,
            "lines": [{"item": "pen", "price": "2", "tags": []}],
            "at": "2026-01-31T12:00:00Z",
        },
    ),
    (Customer(fullName="Ann", since=date(2026, 1, 31)), {"fullName": "Ann", "since": "2026-01-31"}),
    ([Customer(fullName="Ann", since=date(2026, 1, 31))], [{"fullName": "Ann", "since": "2026-01-31"}]),
    (Address(street="Main"), {"street": "Main"}),
    (None, None),
    (2**100, 2**100),
]


@pytest.mark.parametrize(("payload", "plain"), PLAIN, ids=lambda value: type(value).__name__)
def test_payload_is_plain_json(payload: object, plain: object) -> None:
    assert plain_payload(payload, "an event") == plain
    assert json.loads(encode_payload(payload, "an event")) == plain


class Holder(msgspec.Struct):
    value: Any


@dataclass
class Box:
    value: Any


DEEP: Any = 1
for _ in range(70):
    DEEP = [DEEP]
LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        ({"a": [1, float("nan")]}, "$.a[1] is nan, which is not JSON; pass None"),
        ({"a": {"b c": float("inf")}}, "$.a['b c'] is inf"),
        (float("-inf"), "$ is -inf"),
        ({"a": {1: 2}}, "$.a has a key of type int; keys of JSON are texts, so pass str(key)"),
        ({"a": {ID: 2}}, "$.a has a key of type uuid.UUID"),
        ({None: 2}, "$ has a key of type NoneType"),
        ({"a": [{(1, 2): 3}]}, "$.a[0] has a key of type tuple"),
        (
            {"a": object()},
            "$.a is of type object, which is not JSON; pass plain values, a dataclass, a Struct or a model",
        ),
        ({"a": 1j}, "$.a is of type complex"),
        ({"a": "x\udcff"}, "$.a has a lone surrogate at 1"),
        ({"a\udcff": 1}, "$ has a lone surrogate at 1"),
        ({"a": {1.5}}, None),
        ({"a": {float("nan")}}, "$.a[*] is nan"),
        (Holder(float("nan")), "$.value is nan"),
        (Holder({1: 2}), "$.value has a key of type int"),
        (Box(Holder([float("inf")])), "$.value.value[0] is inf"),
        (Box(Box(float("nan"))), "$.value.value is nan"),
        (Holder(object()), "is of type object"),
        (Point(1, float("nan")), "$[1] is nan"),  # type: ignore[arg-type]
        (DEEP, "is nested too deep"),
        (LOOP, "is nested too deep"),
        (1 << 13_000, "$ is a whole number of more than 12,000 bits"),
    ],
)
def test_value_that_json_has_not_is_refused_with_its_path(payload: object, problem: str | None) -> None:
    if problem is None:
        assert plain_payload(payload, "Shop.Order.Placed")
        return
    with pytest.raises(ArgumentError) as refused:
        encode_payload(payload, "Shop.Order.Placed")
    assert str(refused.value).startswith("payload of Shop.Order.Placed: $")
    assert problem in str(refused.value)


def test_model_that_holds_nan_is_refused() -> None:
    class Price(BaseModel):
        value: float

    with pytest.raises(ArgumentError, match=r"\$.value is nan"):
        encode_payload(Price(value=float("nan")), "Shop.Order.Placed")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_plain_json_comes_back_as_it_is(value: object) -> None:
    data = encode_payload(value, "an event")
    assert json.loads(data) == value
    assert payload_reader(Any)(data) == value


@given(
    st.builds(
        Order,
        order_id=st.integers(),
        lines=st.lists(st.builds(Line, item=st.text(), price=st.decimals(allow_nan=False, allow_infinity=False))),
        at=st.none() | st.datetimes(timezones=st.just(UTC)),
    )
)
def test_annotation_reads_what_was_written(order: Order) -> None:
    assert payload_reader(Order)(encode_payload(order, "an event")) == order


@pytest.mark.parametrize("customer", [Customer(fullName="Ann", since=date(2026, 1, 31))])
def test_models_are_read_by_their_own_validation(customer: Customer) -> None:
    assert payload_reader(Customer)(encode_payload(customer, "an event")) == customer
    assert payload_reader(list[Customer])(encode_payload([customer], "an event")) == [customer]
    with pytest.raises(ValueError, match=r"(?s)the payload does not fit .*Customer: .*since"):
        payload_reader(Customer)(b'{"fullName":"Ann","since":"yesterday"}')


def test_mapping_and_no_annotation_read_plain_json() -> None:
    assert payload_reader(Mapping[str, Any])(b'{"a":[1]}') == {"a": [1]}
    assert payload_reader(Any)(b'{"a":[1]}') == {"a": [1]}
    assert payload_reader(Any)(b"") is None


@pytest.mark.parametrize(
    ("annotation", "data", "message"),
    [
        (
            Order,
            b'{"type":"order","orderId":"7"}',
            r"does not fit .*Order: Expected `int`, got `str` - at `\$.orderId`",
        ),
        (Order, b'{"type":"order"}', "missing required field `orderId`"),
        (Mapping[str, Any], b"[1]", "Expected `object`, got `array`"),
        (Any, b"{", "is not JSON"),
        (Any, b"\xff\xfe", "is not JSON"),
        (Order, b"", "Expected `object`, got `null`"),
        (Any, b"[" * 100_000, "is not JSON"),
    ],
)
def test_payload_that_does_not_fit_is_refused(annotation: Any, data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        payload_reader(annotation)(data)


def test_annotation_that_cannot_be_read_is_refused_where_it_is_declared() -> None:
    with pytest.raises(DeclarationError, match="a payload cannot be decoded as dict"):
        payload_reader(dict[str, int] | list[Order] | Mapping[str, str])


class Unreadable:
    pass


def test_object_is_read_as_any_value() -> None:
    assert payload_reader(dict[str, object])(b'{"a":[1],"b":"c"}') == {"a": [1], "b": "c"}


def test_class_that_json_has_not_is_named() -> None:
    with pytest.raises(ValueError, match=r"Unreadable cannot be read from JSON; use a dataclass"):
        payload_reader(dict[str, Unreadable])(b'{"a":1}')
