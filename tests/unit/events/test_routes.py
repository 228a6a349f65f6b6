"""Topics: where an event is sent, what a subscription reads, and the names that Kafka takes."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onthedot import BadEvent
from onthedot.events import Event, Events
from onthedot.events.routes import Routes
from onthedot.events.topic_names import check_topic, dead_letter_topic, original_topic

ROUTES = Routes(
    {
        "Genesis.Session.*Requested": "genesis.requests",
        "Genesis.Session.Detail*": "genesis.details",
        "Genesis.Session.Part.*": "genesis.parts",
    }
)


@pytest.mark.parametrize(
    ("event_type", "topic"),
    [
        ("Genesis.Session.DetailBatchRequested", "genesis.requests"),
        ("Genesis.Session.DetailBatchCreated", "genesis.details"),
        ("Genesis.Session.Part.Created", "genesis.parts"),
        ("Genesis.Session.Ended", "genesis.session.events"),
        ("Genesis.Session.Detail.Created", "genesis.session.events"),
        ("Shop.OrderItem.Placed", "shop.orderitem.events"),
    ],
)
def test_first_pattern_that_matches_decides(event_type: str, topic: str) -> None:
    assert ROUTES.topic_of(event_type) == topic
    assert ROUTES.topic_for(Event(event_type, {}, aggregate_id="1")) == topic


def test_topic_of_the_event_itself_decides_first() -> None:
    assert ROUTES.topic_for(Event("Genesis.Session.Ended", {}, aggregate_id="1", topic="other")) == "other"


@pytest.mark.parametrize(
    ("consumes", "topics"),
    [
        (["Genesis.Session.DetailBatchRequested"], ["genesis.requests"]),
        (["Genesis.Session.Ended"], ["genesis.session.events"]),
        (["Genesis.Session.*"], ["genesis.requests", "genesis.details", "genesis.session.events"]),
        (["Genesis.Session.*Created"], ["genesis.details", "genesis.session.events"]),
        (["Genesis.Session.*Requested"], ["genesis.requests"]),
        (["Genesis.Session.Part.*ed"], ["genesis.parts"]),
        (["Genesis.Session.Part.Created", "Genesis.Session.Part.Ended"], ["genesis.parts"]),
        (["Shop.Order.*", "Genesis.Session.Ended"], ["shop.order.events", "genesis.session.events"]),
        ([], []),
    ],
)
def test_subscription_reads_every_topic_that_can_have_its_events(consumes: list[str], topics: list[str]) -> None:
    assert ROUTES.topics_of(consumes) == tuple(topics)


segments = st.text("AB*", min_size=1, max_size=3)
actions = st.text("AB", min_size=1, max_size=5)


@given(st.lists(segments, max_size=4), segments, actions)
def test_event_that_a_pattern_matches_is_in_a_topic_that_is_read(
    patterns: list[str], consumed: str, action: str
) -> None:
    routes = Routes({f"Shop.Order.{pattern}": f"t{number}" for number, pattern in enumerate(patterns)})
    matching = Routes({f"Shop.Order.{consumed}": "matches"})
    if matching.topic_of(f"Shop.Order.{action}") == "matches":
        assert routes.topic_of(f"Shop.Order.{action}") in routes.topics_of([f"Shop.Order.{consumed}"])


@pytest.mark.parametrize("consumes", ["*", "Shop.*", "shop.Order.Placed"])
def test_subscription_to_what_is_no_type_is_refused(consumes: str) -> None:
    with pytest.raises(BadEvent):
        ROUTES.topics_of([consumes])


def test_dead_letters_have_a_topic_of_their_own() -> None:
    assert dead_letter_topic("orders", "-dlt") == "orders-dlt"
    assert Events(topics={"Shop.Order.*": "orders"}).routes.topic_of("Shop.Order.Placed") == "orders"
    assert original_topic("orders-dlt", "-dlt") == "orders"
    assert original_topic("orders", "-dlt") is None
    assert original_topic("-dlt", "-dlt") is None


@pytest.mark.parametrize("topic", ["a", "A.b-c_1", "x" * 249, "..."])
def test_names_that_kafka_takes_are_accepted(topic: str) -> None:
    assert check_topic(topic) == topic


@pytest.mark.parametrize("topic", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", None, 1])
def test_names_that_kafka_refuses_are_refused(topic: object) -> None:
    with pytest.raises(BadEvent, match=r"is not a name for Kafka: 1 to 249 of A-Z a-z 0-9 \. _ -"):
        check_topic(topic)


def test_topic_must_leave_space_for_the_suffix_of_its_dead_letters() -> None:
    assert check_topic("x" * 245, suffix=".DLT")
    with pytest.raises(BadEvent, match=r"is too long: with '\.DLT' for its dead letters"):
        check_topic("x" * 246, suffix=".DLT")
