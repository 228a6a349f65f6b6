"""Delays of single events up to Kafka's acknowledgement, in an idle app: ``./dev bench events``."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from unittest.mock import patch

from benchmarks.event_paths import HANDLED_TYPE, Shop, p95
from benchmarks.postgres import server
from benchmarks.report import Figure
from onthedot import App
from onthedot.events import Event, Events
from onthedot.events.bus import BusMessage
from onthedot.events.kafka import KafkaBus
from tests.support.services import kafka_protocol
from tests.support.services.kafka_server import Broker

EVENTS = 100  # one at a time
PAUSE = 0.05  # seconds between them
TOPIC = "shop.order.events"


class Acknowledgements:
    """The moments at which Kafka has acknowledged what an app sends."""

    def __init__(self) -> None:
        self._moments: asyncio.Queue[float] = asyncio.Queue()

    @asynccontextmanager
    async def noted(self) -> AsyncGenerator[None]:
        send = KafkaBus.send

        async def noting(bus: KafkaBus, topic: str, partition: int, messages: Sequence[BusMessage]) -> None:
            await send(bus, topic, partition, messages)
            self._moments.put_nowait(time.perf_counter())

        with patch.object(KafkaBus, "send", noting):
            yield

    async def next(self) -> float:
        return await self._moments.get()


async def _delays(app: App, publish: Callable[[Event], Awaitable[float]], times: int) -> float:
    """ms, p95. publish: returns the moment from which it counts."""
    acknowledgements = Acknowledgements()
    took: list[float] = []
    async with acknowledgements.noted(), app.running():
        for number in range(times + 1):
            began = await publish(Event(HANDLED_TYPE, {"n": number}, aggregate_id="1"))
            took.append((await acknowledgements.next() - began) * 1000)
            await asyncio.sleep(PAUSE)
    return p95(took[1:])  # the first one looks up the topic


def acknowledged_sqlite(scale: float) -> list[Figure]:
    """From the call of publish, which has the commit in it."""
    broker = Broker()
    try:
        broker.start()
        kafka_protocol.create_topic(broker.address, TOPIC)
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            app = App("bench", store=f"sqlite:///{folder}/bench.db", events=Events(bus=f"kafka://{broker.address}"))

            async def publish(event: Event) -> float:
                began = time.perf_counter()
                await app.publish(event)
                return began

            times = max(5, int(EVENTS * scale))
            marked = asyncio.run(_marked(broker.address, times))  # first: its agent handles all that is in the topic
            delay = asyncio.run(_delays(app, publish, times))
    finally:
        broker.close()
    return [
        Figure(delay, 0, "ms", "publish called → acknowledged by Kafka, idle, p95", 20, least=False, difference=True),
        Figure(marked, 0, "ms", "event made → marked as sent to Kafka, idle, p95", None, least=False, difference=True),
    ]


def acknowledged_postgres(scale: float) -> list[Figure]:
    """From the COMMIT of the user's transaction."""
    broker = Broker()
    try:
        broker.start()
        kafka_protocol.create_topic(broker.address, TOPIC)
        with server() as url:
            delay = asyncio.run(_joined(url, broker.address, max(5, int(EVENTS * scale))))
    finally:
        broker.close()
    return [Figure(delay, 0, "ms", "COMMIT → acknowledged by Kafka, idle, p95", 20, least=False, difference=True)]


async def _joined(url: str, address: str, times: int) -> float:
    import asyncpg

    app = App("bench", store=url, events=Events(bus=f"kafka://{address}"))
    connection = await asyncpg.connect(url)

    async def publish(event: Event) -> float:
        transaction = connection.transaction()
        await transaction.start()
        await app.publish(event, connection=connection)
        began = time.perf_counter()
        await transaction.commit()
        return began

    delay = await _delays(app, publish, times)
    await connection.close()
    return delay


async def _marked(address: str, times: int) -> float:
    """By the times in the outbox, with an agent that handles each event before the next."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        shop = Shop(folder, f"kafka://{address}")
        async with shop.app.running():
            for number in range(times + 1):
                shop.wanted = number + 1
                shop.all_handled.clear()
                await shop.app.publish(Event(HANDLED_TYPE, {"n": number}, aggregate_id="1"))
                await shop.all_handled.wait()
                await asyncio.sleep(PAUSE)
            events = await shop.app.operations.outbox.events(limit=1000)
    took = [(each.sent_at - each.occurred_at).total_seconds() * 1000 for each in events if each.sent_at is not None]
    assert len(took) == times + 1
    return p95(took[1:])


MEASURES = [acknowledged_sqlite, acknowledged_postgres]
