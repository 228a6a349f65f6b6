"""Wrong uses of events. mypy --strict and pyright report every line that is marked, and no other."""

from __future__ import annotations

from dataclasses import dataclass

from onthedot.events import Event, Events, Kafka, event_id


@dataclass
class Request:
    count: int


@dataclass
class Urgent(Request):
    by: str = ""


def takes_urgent(event: Event[Urgent]) -> None: ...
def takes_mapping(event: Event) -> None: ...


request = Event("Shop.Order.Requested", Request(1), aggregate_id="17")
Event("Shop.Order.Requested", Request(1))  # E no aggregate_id
Event("Shop.Order.Requested", Request(1), "17")  # E by name only
Event("Shop.Order.Requested", Request(1), aggregate_id=17)  # E no text
Event("Shop.Order.Requested", Request(1), aggregate_id="17", agregate_type="Order")  # E misspelt
Event("Shop.Order.Requested", Request(1), aggregate_id="17", headers={"a": 1})  # E no text
Event("Shop.Order.Requested", Request(1), aggregate_id="17", occurred_at="now")  # E no datetime
Event[Request]("Shop.Order.Requested", "1", aggregate_id="17")  # E another payload
request.payload.counts  # E misspelt
request.payload = Request(2)  # E frozen
request.id = "e2"  # E frozen
request.headers["a"] = "b"  # E frozen
takes_urgent(request)  # E a payload of the base class
takes_mapping(request)  # E no mapping
number: int = request.reply("Shop.Order.Shipped", "x").payload  # E a text
event_id(1.5)  # E no stable text

Kafka()  # E no servers
Kafka("h", 8)  # E by name only
Kafka("h", partition=8)  # E misspelt
Kafka("h", security_protocol="TLS")  # E unknown
Kafka("h").partitions = 9  # E frozen
Events(Kafka("h"))  # E by name only
Events(bus=5)  # E no bus
Events(topics={"Shop.Order.*": 1})  # E no topic
Events(keep_sent="7 days")  # E no time
