"""Types of events and patterns of them."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given, strategies as st

from onthedot import BadEvent
from onthedot.events import Event
from onthedot.events.event_types import TypePattern, check_action, check_type


@pytest.mark.parametrize(
    "event_type", ["Shop.Order.Placed", "Genesis.Session.Detail.Created", "A.B.C", "Web3.V2.Url2Added"]
)
def test_types_of_three_or_four_segments_are_accepted(event_type: str) -> None:
    assert Event(event_type, {}, aggregate_id="1").type == event_type


@pytest.mark.parametrize(
    ("event_type", "message"),
    [
        ("Order.Placed", "has 2 segments, not 3 or 4; write Domain.Aggregate.Action"),
        ("A.B.C.D.Placed", "has 5 segments, not 3 or 4"),
        ("", "has 1 segments"),
        ("shop.Order.Placed", "segment 1, 'shop', is not PascalCase; write 'Shop'"),
        ("Shop.order_item.Placed", "segment 2, 'order_item', is not PascalCase; write 'OrderItem'"),
        ("Shop.Order.", "segment 3, '', is not PascalCase; write Domain"),
        ("Shop.Order.Größe", "segment 3, 'Größe', is not PascalCase"),
        ("Shop.Order.Placed\n", "segment 3, 'Placed\\\\n', is not PascalCase; write 'Placed'"),
        ("Shop.3D.Placed", "segment 2, '3D', is not PascalCase"),
        ("Shop.Order." + "P" * 200, "has 211 characters; at most 200"),
    ],
)
def test_type_of_another_form_is_refused_by_its_segment(event_type: str, message: str) -> None:
    with pytest.raises(BadEvent, match=message):
        Event(event_type, {}, aggregate_id="1")


@pytest.mark.parametrize("event_type", ["Shop.Order.Placed", "Shop.Order.InvoicePaid", "Shop.Order.Line.Written"])
def test_actions_in_the_past_tense_are_accepted(event_type: str) -> None:
    check_action(event_type)


@pytest.mark.parametrize("event_type", ["Shop.Order.Place", "Shop.Order.Prepaid", "Shop.Order.PaidNow"])
def test_action_in_another_tense_is_refused_with_what_fits(event_type: str) -> None:
    with pytest.raises(BadEvent, match=r"past tense; it must end in 'ed' or in one of Sent, .*Events\(verbs="):
        check_action(event_type)


def test_own_verbs_are_accepted() -> None:
    check_action("Shop.Order.Split", ["Split"])
    with pytest.raises(BadEvent):
        check_action("Shop.Order.Sent", ["Split"])


@pytest.mark.parametrize(
    ("pattern", "event_type", "matches"),
    [
        ("Shop.Order.Placed", "Shop.Order.Placed", True),
        ("Shop.Order.Placed", "Shop.Order.PlacedAgain", False),
        ("Shop.Order.*", "Shop.Order.Placed", True),
        ("Shop.Order.*", "Shop.Order.Line.Placed", False),
        ("Shop.Order.Line.*", "Shop.Order.Line.Placed", True),
        ("Shop.Order.*", "Shop.Orders.Placed", False),
        ("Shop.Order.*ed", "Shop.Order.Placed", True),
        ("Shop.Order.*ed", "Shop.Order.Sent", False),
        ("Shop.Order.P*d", "Shop.Order.Placed", True),
        ("Shop.Order.*a*e*", "Shop.Order.Placed", True),
        ("Shop.Order.*", "", False),
    ],
)
def test_pattern_matches_within_the_last_segment(pattern: str, event_type: str, matches: bool) -> None:
    assert TypePattern.of(pattern).matches(event_type) is matches


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("Shop.*.Placed", r"\* may be in the last segment only, not in '\*'"),
        ("Shop.*", "has 2 segments"),
        ("*", "has 1 segments"),
        ("shop.Order.*", "segment 1, 'shop', is not PascalCase"),
        ("Shop.Order.placed*", "segment 3, 'placed\\*', is not PascalCase"),
        ("Shop.Order.", "segment 3"),
        (7, "is of type int"),
    ],
)
def test_pattern_that_no_type_can_match_is_refused(pattern: object, message: str) -> None:
    with pytest.raises(BadEvent, match=message):
        TypePattern.of(pattern)


ACTIONS = ["".join(letters) for size in range(1, 6) for letters in product("AB", repeat=size)]
patterns = st.text("AB*", min_size=1, max_size=4).map(lambda action: TypePattern("Shop.Order", action))


@given(patterns, patterns)
def test_patterns_meet_if_some_type_matches_both(left: TypePattern, right: TypePattern) -> None:
    both = [action for action in ACTIONS if all(matches(each, action) for each in (left, right))]
    covered = [action for action in ACTIONS if matches(right, action) and not matches(left, action)]
    if both:
        assert left.meets(right)
    if len(left.action.replace("*", "")) + len(right.action.replace("*", "")) <= 5 and set(
        left.action + right.action
    ) != {"*"}:
        assert left.meets(right) is bool(both)
    if left.covers(right):
        assert covered == []
    assert left.meets(right) is right.meets(left)


def matches(pattern: TypePattern, action: str) -> bool:
    """By a regular expression that is made in another way than theirs."""
    assert pattern.matches(f"Shop.Order.{action}") is bool(re.fullmatch(pattern.action.replace("*", "[AB]*"), action))
    return pattern.matches(f"Shop.Order.{action}")


def test_long_patterns_are_compared_quickly() -> None:
    left = TypePattern.of(f"Shop.Order.{'*A' * 80}")
    right = TypePattern.of(f"Shop.Order.{'*B' * 80}")
    assert not left.meets(right)


def test_pattern_covers_what_it_matches_always() -> None:
    assert TypePattern.of("Shop.Order.*").covers(TypePattern.of("Shop.Order.P*"))
    assert TypePattern.of("Shop.Order.P*").covers(TypePattern.of("Shop.Order.Placed"))
    assert not TypePattern.of("Shop.Order.P*").covers(TypePattern.of("Shop.Order.*"))
    assert str(TypePattern.of("Shop.Order.P*")) == "Shop.Order.P*"
    assert check_type(str(TypePattern.of("Shop.Order.Placed"))) == "Shop.Order.Placed"
