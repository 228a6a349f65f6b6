"""Kafka as the bus, compared with the plain producer of aiokafka, by CPU time of this process in one run."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from benchmarks.report import Figure
from onthedot.events.bus import BusMessage
from onthedot.events.kafka import KafkaBus
from onthedot.events.settings import Kafka
from tests.support.services import kafka_protocol
from tests.support.services.kafka_server import Broker

TOPIC = "bench"
HEADERS = tuple((f"ce_header{number}", b"0198f0a2-7c1e-7000") for number in range(8))
VALUE = b'{"order":"' + b"x" * 100 + b'"}'


def kafka_send(scale: float) -> list[Figure]:
    """Rounds of one partition, each awaited before the next, as the relay sends them."""
    broker = Broker()
    try:
        broker.start()
        kafka_protocol.create_topic(broker.address, TOPIC)
        return asyncio.run(_measure(broker.address, max(3, int(60 * scale))))
    finally:
        broker.close()


async def _measure(address: str, rounds: int) -> list[Figure]:
    from aiokafka import AIOKafkaProducer

    bus = KafkaBus(Kafka(address))
    await bus.open()
    plain: Any = AIOKafkaProducer(bootstrap_servers=address, acks="all", enable_idempotence=True)
    await plain.start()
    figures = []
    for size in (500, 100):
        batch = [BusMessage(b"order-%d" % number, VALUE, HEADERS) for number in range(size)]
        ours, other = await _alternate(rounds, lambda b=batch: bus.send(TOPIC, 0, b), lambda b=batch: _send(plain, b))
        against = f"sent: {size} per round in one batch beside send() of each"
        figures.append(Figure(size / ours, size / other, "/s", against, 1.5, least=True))
    await plain.stop()
    await bus.close()
    return figures


async def _send(producer: Any, batch: Sequence[BusMessage]) -> None:
    sent = [
        await producer.send(TOPIC, message.value, message.key, 0, headers=list(message.headers)) for message in batch
    ]
    await asyncio.gather(*sent)


async def _alternate(rounds: int, *works: Callable[[], Awaitable[None]]) -> list[float]:
    """The median seconds of CPU of each, in turn."""
    costs: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, some in zip(works, costs, strict=True):
            began = time.process_time()
            await work()
            some.append(time.process_time() - began)
    return [statistics.median(some) for some in costs]


MEASURES = [kafka_send]
