from __future__ import annotations

import enum
from dataclasses import FrozenInstanceError
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from onthedot.errors import BadLimit, DeclarationError
from onthedot.model.limits import AtMost, LimitDefinitions, Rate, lane_key
from onthedot.stores.contract import Limit


@pytest.mark.parametrize(
    ("text", "per_second", "burst"),
    [
        ("10/s", 10, 10),
        ("100/m", 100 / 60, 100 / 60),
        ("30/m", 0.5, 1),
        ("5/2s", 2.5, 2.5),
        ("1000/h", 1000 / 3600, 1),
        ("3/d", 3 / 86_400, 1),
        ("0.5/s", 0.5, 1),
        (" 10 / 0.5 s ", 20, 20),
    ],
)
def test_a_rate_is_read_as_tokens_per_second(text: str, per_second: float, burst: float) -> None:
    assert Rate(text).per_second == pytest.approx(per_second)
    assert Rate(text).capacity == pytest.approx(burst)
    assert Rate(text, burst=7).capacity == 7


@pytest.mark.parametrize(
    "text", ["", "10", "10/", "/s", "10/w", "-1/s", "10 per s", "1e3/s", "inf/s", "10/-1s", 10, None]
)
def test_malformed_rates_are_refused(text: Any) -> None:
    with pytest.raises(BadLimit, match='cannot be read; write it as in "10/s"'):
        Rate(text)


def loosely(kind: Any, *args: Any, **keywords: Any) -> Any:
    return kind(*args, **keywords)


@pytest.mark.parametrize(
    ("args", "keywords", "message"),
    [
        (("0/s",), {}, "lets nothing through"),
        (("10/0s",), {}, "lets nothing through"),
        (("10/s",), {"burst": 0}, "burst: 0 is out of range"),
        (("10/s",), {"burst": float("inf")}, "burst"),
        (("10/s",), {"burst": "5"}, "burst: '5' is of type str"),
        (("10/s",), {"burst": 0.5}, "cost 1 is more than burst 0.5"),
        (("10/s",), {"by": "x", "burst": 5, "cost": 6}, "cost 6 is more than burst 5"),
        (("10/m",), {"by": "x", "cost": 2}, "cost 2 is more than burst 1"),
        (("10/s",), {"by": "x", "cost": 0}, "cost: 0 is out of range"),
        (("10/s",), {"by": "x", "cost": -1}, "cost"),
        (("10/s",), {"by": "x", "cost": True}, "cost: True is of type bool"),
        (("10/s",), {"by": "x", "cost": "not a name"}, "cost='not a name'"),
        (("10/s",), {"cost": 2}, "cost=2 needs a lane"),
        (("10/s",), {"cost": "tokens"}, "cost='tokens' needs a lane"),
        (("10/s",), {"by": ""}, "by=''"),
        (("10/s",), {"by": 5}, "by=5"),
        (("10/s",), {"name": "a/b"}, "name 'a/b'"),
        (("10/s",), {"name": ""}, "name ''"),
        (("10/s",), {"name": "x" * 201}, "1 to 200"),
    ],
)
def test_rates_with_wrong_parameters_are_refused(args: tuple[Any, ...], keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(BadLimit, match=message):
        loosely(Rate, *args, **keywords)


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "2", None])
def test_caps_that_are_not_whole_numbers_from_one_are_refused(n: Any) -> None:
    with pytest.raises(BadLimit, match="from 1"):
        AtMost(n)
    if n is not None:
        with pytest.raises(BadLimit, match="concurrency"):
            LimitDefinitions("send", concurrency=n)


def test_equal_limits_compare_and_hash_equal() -> None:
    assert Rate("10/s", by="x") == Rate("10/s", "x")
    assert len({AtMost(2), AtMost(2)}) == 1
    with pytest.raises(FrozenInstanceError):
        AtMost(2).n = 3  # type: ignore[misc]


def test_a_task_without_limits_has_no_record_and_no_lane() -> None:
    limits = LimitDefinitions("send")
    assert limits.records() == []
    assert limits.lane({"x": 1}) == (None, 1.0)


def test_limits_without_key_belong_to_the_source() -> None:
    wanted = [Limit("send", cap=2, rate=10.0, burst=10.0)]
    assert LimitDefinitions("send", concurrency=2, rate_limit="10/s").records() == wanted
    assert LimitDefinitions("send", limits=[AtMost(2), Rate("10/s")]).records() == wanted
    assert LimitDefinitions("send", rate_limit="10/s").records() == [Limit("send", rate=10.0, burst=10.0)]
    assert LimitDefinitions("send", 2, "10/s").lane({"x": 1}) == (None, 1.0)


@pytest.mark.parametrize(
    ("keywords", "record", "lane"),
    [
        ({"by": "customer"}, "send/*", "send/acme"),
        ({"name": "openai"}, "@openai", "@openai"),
        ({"by": "customer", "name": "openai"}, "@openai/*", "@openai/acme"),
    ],
)
def test_limits_with_key_or_name_make_lanes(keywords: dict[str, str], record: str, lane: str) -> None:
    both: list[Rate | AtMost] = [Rate("10/s", burst=5, cost=2, **keywords), AtMost(3, **keywords)]
    limits = LimitDefinitions("send", concurrency=9, limits=both)
    assert limits.records() == [Limit("send", cap=9), Limit(record, cap=3, rate=10.0, burst=5.0)]
    assert limits.lane({"customer": "acme", "other": 1}) == (lane, 2.0)


@pytest.mark.parametrize(
    "limits",
    [
        [AtMost(2, by="a"), AtMost(2, by="b")],
        [AtMost(2, by="a"), Rate("1/s", name="a")],
        [AtMost(2, by="a", name="n"), Rate("1/s", by="a")],
    ],
)
def test_limits_on_two_lanes_are_refused(limits: list[Rate | AtMost]) -> None:
    with pytest.raises(BadLimit, match="send: limits on two lanes"):
        LimitDefinitions("send", limits=limits)


def test_two_limits_on_the_same_thing_are_refused() -> None:
    for limits in ([AtMost(2, by="a"), AtMost(3, by="a")], [Rate("1/s", by="a"), Rate("9/m", by="a")], [AtMost(1)]):
        with pytest.raises(BadLimit, match="keep one"):
            LimitDefinitions("send", concurrency=2, limits=limits)
    with pytest.raises(BadLimit, match="rate_limit is for the whole source"):
        LimitDefinitions("send", rate_limit=Rate("1/s", by="a"))
    with pytest.raises(BadLimit, match="it takes Rate"):
        LimitDefinitions("send", limits=["10/s"])  # type: ignore[list-item]


def test_the_argument_of_a_limit_must_be_a_parameter() -> None:
    by = AtMost(2, by="customer")
    cost = Rate("10/s", name="n", cost="tokens")
    LimitDefinitions("send", limits=[by])
    LimitDefinitions("send", limits=[by], parameters=("customer",))
    for limit in (by, cost):
        with pytest.raises(
            BadLimit, match=r"send: (by='customer'|cost='tokens') is not a parameter; it takes to, body"
        ):
            LimitDefinitions("send", limits=[limit], parameters=("to", "body"))


def test_a_lane_uses_the_default_of_an_argument_left_out() -> None:
    limits = LimitDefinitions("send", limits=[AtMost(2, by="customer")], defaults={"customer": "nobody"})
    assert limits.lane({}) == ("send/nobody", 1.0)
    assert limits.lane({"customer": None}) == ("send/None", 1.0)
    with pytest.raises(BadLimit, match="the call passes no 'customer'"):
        LimitDefinitions("send", limits=[AtMost(2, by="customer")]).lane({})


def test_a_call_costs_the_value_of_its_argument() -> None:
    limits = LimitDefinitions(
        "ask", limits=[Rate("100/s", name="openai", burst=500, cost="tokens")], defaults={"tokens": 10}
    )
    assert limits.lane({"tokens": 500}) == ("@openai", 500.0)
    assert limits.lane({}) == ("@openai", 10.0)
    assert limits.lane({"tokens": 0}) == ("@openai", 0.0)
    with pytest.raises(BadLimit, match=r"ask: argument 'tokens': cost 501 is more than burst 500"):
        limits.lane({"tokens": 501})
    for bad in (-1, float("nan"), True, "5", None):
        with pytest.raises(BadLimit, match="cost"):
            limits.lane({"tokens": bad})


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("acme", "acme"),
        ("", ""),
        ("客户 7", "客户 7"),
        ("a/b*c%d", "a%2Fb%2Ac%25d"),
        ("nul\0line\n", "nul%00line%0A"),
        ("\ud800", "%D800"),
        (17, "17"),
        (1.5, "1.5"),
        (True, "True"),
        (None, "None"),
        (b"x", "b'x'"),
        (Colour.RED, "red"),
        (Decimal("1.10"), "1.10"),
        (date(2026, 1, 1), "2026-01-01"),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00+00:00"),
        (PurePosixPath("/x"), "%2Fx"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_a_value_becomes_a_lane_key(value: object, text: str) -> None:
    assert lane_key(value) == text


@pytest.mark.parametrize("value", [[1], {"a": 1}, (1,), object(), {1}])
def test_values_that_cannot_be_keys_are_refused(value: object) -> None:
    with pytest.raises(BadLimit, match="cannot be the key of a limit"):
        lane_key(value)


@given(st.text(max_size=400), st.text(max_size=400))
def test_lane_keys_are_short_and_different(one: str, other: str) -> None:
    first = lane_key(one)
    second = lane_key(other)
    assert len(first) <= 200
    assert not set(first) & set("/*\0\n")
    first.encode()
    assert (first == second) == (one == other)


def test_shortened_keys_equal_no_other_key() -> None:
    one = lane_key("x" * 300)
    other = lane_key("x" * 301)
    assert one != other
    assert lane_key(one) != one
    assert lane_key("x" * 200) == "x" * 200


def test_bad_limit_is_a_declaration_error() -> None:
    assert issubclass(BadLimit, DeclarationError)
