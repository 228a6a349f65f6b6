"""Where events are kept and sent, for tests that run relays as processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from onthedot import App
from onthedot.stores.capabilities import Outbox
from tests.faults import LONG
from tests.faults.events.relay_processes import Sent, read_topic
from tests.support.services.kafka import KafkaService

LEASE = 5 if LONG else 1  # seconds, of a relay; 5 is the default


class Place(NamedTuple):
    """Where events are kept and sent. database: the URL of the store for other programs."""

    name: str
    store: str
    database: str
    bus: str
    topic: str
    read: Callable[[App[Any]], Awaitable[list[Sent]]]


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """The parameter names the store and the bus."""
    store, bus = request.param
    name = f"{store}, {bus}"
    address = "store"
    topic = "shop.order.events"
    read = read_log
    if bus == "kafka":
        kafka: KafkaService = request.getfixturevalue("kafka")
        address = f"kafka://{kafka.address}"
        topic = kafka.topic(4)

        async def read(_: App[Any]) -> list[Sent]:
            return await read_topic(kafka.address, topic)

    if store == "sqlite":
        url = f"sqlite:///{tmp_path}/shop.db"
        yield Place(name, url, url, address, topic, read)
        return
    with request.getfixturevalue("postgres").database() as database:
        yield Place(name, f"{database}?lease={LEASE}", database, address, topic, read)


async def read_log(app: App[Any]) -> list[Sent]:
    """By position: it has no copies, since a position is given once."""
    store = app.runtime.store
    assert isinstance(store, Outbox)
    found = []
    after = 0
    while page := await store.find_events({}, after, 1000):
        found += [stored for stored in page if stored.position is not None]
        after = page[-1].seq
    found.sort(key=lambda stored: (stored.event.bucket, stored.position or 0))
    return [Sent(stored.event.key, int(stored.event.payload or b"-1"), stored.event.id) for stored in found]
