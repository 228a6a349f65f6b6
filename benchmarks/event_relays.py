"""Relays that send to a Kafka server, beside bare loops that send the same messages: ``./dev bench events``.

Costs are the CPU time of this process and of the database, without Kafka's. The server has compiled its code before the
first measure: its first 10,000 messages take several times as long as the next.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any, NamedTuple

from benchmarks.cpu_times import children_cpu
from benchmarks.events import TURN, EventRounds
from benchmarks.postgres import server
from benchmarks.postgres_events import BareOutbox
from benchmarks.report import Figure
from onthedot.clock.system import SystemClock
from onthedot.events.bus_connection import BusConnection
from onthedot.events.component_session import ComponentSession
from onthedot.events.kafka import KafkaBus
from onthedot.events.outbox_rows import bus_message
from onthedot.events.relay import Relay, RelaySettings
from onthedot.events.settings import Kafka
from onthedot.model.uuid7 import new_uuid
from onthedot.observability.events import Observer
from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import NewEvent, Store
from onthedot.stores.schemes import connect
from tests.support.services import kafka_protocol
from tests.support.services.kafka_server import Broker

ROUNDS = 20  # of 500 events
TOPIC = "shop.order.events"  # as in `EventRounds`
_BATCH_BYTES = 1_000_000


class Message(NamedTuple):
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]
    timestamp: int


def plain_message(seq: int, event: NewEvent) -> Message:
    """As a program without this library would write it."""
    stored = json.loads(event.headers or b"{}")
    moment = datetime.fromtimestamp(event.occurred_at / 1000, UTC)
    attributes = {
        "specversion": "1.0",
        "id": event.id,
        "type": event.type,
        "source": stored["ce_source"],
        "time": moment.isoformat(timespec="milliseconds"),
        "subject": event.aggregate_id,
        "aggregatetype": event.aggregate_type,
        "partitionkey": event.key,
        "correlationid": event.correlation_id,
        "causationid": event.causation_id,
        "dataversion": event.version,
        "retries": event.retries,
        "sequence": seq,
    }
    headers = [("content-type", b"application/json")]
    headers += [(f"ce_{name}", str(value).encode()) for name, value in attributes.items() if value is not None]
    return Message(event.key.encode(), event.payload or b"", headers, event.occurred_at)


async def send_each(producer: Any, messages: Sequence[Message]) -> None:
    sent = [
        await producer.send(TOPIC, each.value, each.key, 0, timestamp_ms=each.timestamp, headers=each.headers)
        for each in messages
    ]
    await asyncio.gather(*sent)


async def send_batch(producer: Any, messages: Sequence[Message]) -> None:
    batch = producer.create_batch()
    for each in messages:
        added = batch.append(timestamp=each.timestamp, key=each.key, value=each.value, headers=each.headers)
        assert added is not None, "all of a round fit into one batch"
    await (await producer.send_batch(batch, TOPIC, partition=0))


Send = Callable[[Any, Sequence[Message]], Awaitable[None]]


@asynccontextmanager
async def bare_producer(address: str, send: Send) -> AsyncGenerator[Any]:
    from aiokafka import AIOKafkaProducer

    options: dict[str, Any] = {"max_batch_size": _BATCH_BYTES} if send is send_batch else {}
    producer: Any = AIOKafkaProducer(bootstrap_servers=address, acks="all", enable_idempotence=True, **options)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


class CountingObserver(Observer):
    """Knows when so many events are sent."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.all_sent = asyncio.Event()

    def events_sent(self, topic: str, count: int, ms: float) -> None:  # noqa: ARG002
        self._left -= count
        if self._left <= 0:
            self.all_sent.set()


async def relay_all(store: Store, address: str, number: int) -> None:
    """Starts a relay, which sends and marks so many events, and stops it."""
    assert isinstance(store, Outbox)
    clock = SystemClock()
    observer = CountingObserver(number)
    connection = BusConnection(KafkaBus(Kafka(address)), "Kafka", clock, observer)
    session = ComponentSession("relay", store, clock, observer, new_uuid)
    relay = Relay(
        store,
        session,
        connection,
        RelaySettings(),
        clock=clock,
        random=Random(),
        observer=observer,
        read_limits=store.limits,
        to_message=partial(bus_message, source="/shop"),
    )
    await relay.start()
    await observer.all_sent.wait()
    await relay.idle.wait()  # the last marks are written
    await relay.stop()
    await session.close()
    await connection.close()


class Speed(NamedTuple):
    """Events per second."""

    clock: float
    cpu: float

    def beside(self, other: Speed, against: str, target: float) -> list[Figure]:
        """The goals are about time by the clock, in which Kafka has a part."""
        return [
            Figure(self.clock, other.clock, "/s", against, target, least=True),
            Figure(self.cpu, other.cpu, "/s of CPU", f"{against}, CPU", None, least=True),
        ]


class SpeedMeter:
    """By the clock, and by the CPU time of this process and of the database."""

    def __init__(self, broker: Broker, number: int) -> None:
        assert broker.process is not None
        self._kafka = broker.process.pid
        self._number = number

    def cpu(self) -> float:
        """Seconds so far."""
        return time.process_time() + children_cpu(besides=self._kafka)

    async def of(self, work: Awaitable[None]) -> Speed:
        gc.collect()
        cpu = self.cpu()
        began = time.perf_counter()
        await work
        took = time.perf_counter() - began
        return Speed(self._number / took, self._number / (self.cpu() - cpu))


@contextmanager
def kafka() -> Iterator[Broker]:
    """With the topic, of one partition: a round is one batch."""
    broker = Broker()
    try:
        broker.start()
        kafka_protocol.create_topic(broker.address, TOPIC)
        yield broker
    finally:
        broker.close()


async def _warm_up(broker: Broker, messages: Sequence[Message], rounds: int) -> None:
    async with bare_producer(broker.address, send_batch) as producer:
        for _ in range(rounds):
            await send_batch(producer, messages)


async def _send_rounds(producer: Any, send: Send, bare: BareOutbox, rounds: int) -> None:
    for _ in range(rounds):
        found = await bare.read()
        assert len(found) == TURN
        await send(producer, [plain_message(seq, event) for seq, event in found])
        await bare.mark([seq for seq, _ in found])


async def _measure_postgres(url: str, broker: Broker, rounds: int) -> list[Figure]:
    import asyncpg

    number = rounds * TURN
    meter = SpeedMeter(broker, number)
    store = connect(url, SystemClock(), "bench")
    events = EventRounds(store)
    await events.open()
    connection = await asyncpg.connect(url)
    bare = BareOutbox(connection, meter.cpu)
    await bare.open([events.event() for _ in range(2 * number)])
    await connection.execute("VACUUM ANALYZE bare")
    await events.publish_all(number)
    await _warm_up(broker, [plain_message(seq, events.event()) for seq in range(TURN)], rounds)
    ours = await meter.of(relay_all(store, broker.address, number))
    figures: list[Figure] = []
    for send, name, target in ((send_each, "send() of each", 0.6), (send_batch, "send_batch", 0.5)):
        async with bare_producer(broker.address, send) as producer:
            other = await meter.of(_send_rounds(producer, send, bare, rounds))
        against = f"relay to Kafka, {TURN} per round, beside SELECT, {name}, UPDATE"
        figures += ours.beside(other, against, target)
    await connection.close()
    await events.close()
    return figures


def relay_postgres(scale: float) -> list[Figure]:
    with server() as url, kafka() as broker:
        return asyncio.run(_measure_postgres(url, broker, max(2, int(ROUNDS * scale))))


async def _measure_sqlite(folder: str, broker: Broker, rounds: int) -> list[Figure]:
    number = rounds * TURN
    meter = SpeedMeter(broker, number)
    store = connect(f"sqlite:///{folder}/relay.db", SystemClock(), "bench")
    events = EventRounds(store)
    await events.open()
    await events.publish_all(number)
    messages = [plain_message(seq, events.event()) for seq in range(TURN)]
    await _warm_up(broker, messages, rounds)
    ours = await meter.of(relay_all(store, broker.address, number))

    async def send_rounds(producer: Any) -> None:
        for _ in range(rounds):
            await send_batch(producer, messages)

    async with bare_producer(broker.address, send_batch) as producer:
        other = await meter.of(send_rounds(producer))
    await events.close()
    against = "relay to Kafka beside send_batch of messages that are ready, without a database"
    return ours.beside(other, against, 0.35)


def relay_sqlite(scale: float) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, kafka() as broker:
        return asyncio.run(_measure_sqlite(folder, broker, max(2, int(ROUNDS * scale))))


MEASURES = [relay_postgres, relay_sqlite]
