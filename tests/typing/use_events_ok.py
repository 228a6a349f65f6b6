"""Events that mypy --strict and pyright accept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from onthedot import BadEvent, Expired
from onthedot.events import Event, Events, Kafka, event_id


@dataclass
class Request:
    count: int


@dataclass
class Urgent(Request):
    by: str = ""


placed = Event("Shop.Order.Placed", {"id": 17}, aggregate_id="17")
assert_type(placed, Event[dict[str, int]])
assert_type(placed.payload["id"], int)
assert_type(placed.reply("Shop.Order.Shipped", Request(3), key="k", version=2), Event[Request])
request = Event[Request](
    "Shop.Order.Requested", Request(1), aggregate_id="17", aggregate_type="Order", key="k", correlation_id="c",
    causation_id="e", version=2, retries=1, priority=5, id=event_id("cmd-7", 3), occurred_at=datetime.now(UTC),
    headers={"a": "b"}, topic="orders",
)  # fmt: skip
assert_type(request.payload.count, int)
assert_type(request.id, str)
assert_type(request.correlation_id, str)
assert_type(request.causation_id, str | None)
assert_type(request.headers, Mapping[str, str])
assert_type(request.occurred_at, datetime)
assert_type(request.to_dict(), dict[str, Any])
assert_type(Event.from_dict(request.to_dict()), Event[Any])


def by_default(event: Event) -> None:
    assert_type(event.payload, Mapping[str, Any])


def takes_request(event: Event[Request]) -> int:
    return event.payload.count


async def process(event: Event[Request]) -> Event | Sequence[Event] | None:
    if event.payload.count == 1:
        return event.reply("Shop.Order.Shipped", {"count": 1})
    return [event.reply("Shop.Order.Shipped", {"count": event.payload.count})]


by_default(placed)
takes_request(Event("Shop.Order.Requested", Urgent(1), aggregate_id="17"))
assert_type({placed: 1}[placed] == 1 and placed == request, bool)
try:
    pass
except Expired as error:
    assert_type(error.events, list[Event[Any]])
    assert_type(error.missing, dict[tuple[str, ...], int])
except (BadEvent, TimeoutError):
    pass

kafka = Kafka("h1:9092,h2:9092", security_protocol="SSL", compression="zstd", create_topics=True, request_timeout=2.5)
assert_type(Kafka.from_url("kafka://h"), Kafka)
settings = Events(
    bus=kafka, topics={"Shop.Order.*": "orders"}, results=["Shop.Order.Placed"], source="/shop", verbs=("Split",),
    keep_sent=timedelta(days=1), keep_arrivals=60, poll=0.5, outbox=None, prefect=None,
)  # fmt: skip
Events(bus="kafka://h")
assert_type(settings.kafka(), Kafka | None)
