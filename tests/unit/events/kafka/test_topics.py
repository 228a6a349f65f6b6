"""Topics: missing ones are created on request, and a server that does not answer costs a second."""

from __future__ import annotations

import asyncio
import socket

import pytest

from onthedot.events.bus import BusMessage, BusUnreachable, TopicUnavailable
from onthedot.events.kafka import KafkaBus
from onthedot.events.settings import Kafka
from tests.support.services import kafka_protocol
from tests.support.services.kafka import KafkaService
from tests.support.services.ports import free_port

pytestmark = pytest.mark.once


async def test_missing_topic_is_created_with_the_partitions_of_the_settings(kafka: KafkaService) -> None:
    bus = KafkaBus(Kafka(kafka.address, create_topics=True, partitions=3))
    name = kafka.name()
    assert await bus.partition_count(name) == 3
    await bus.send(name, 2, [BusMessage(None, b"1")])
    assert [record.partition async for record in bus.peek(name)] == [2]
    await bus.close()


async def test_topic_that_several_create_at_once_exists_once(kafka: KafkaService) -> None:
    name = kafka.name()
    buses = [KafkaBus(Kafka(kafka.address, create_topics=True, partitions=2)) for _ in range(4)]
    assert await asyncio.gather(*(bus.partition_count(name) for bus in buses)) == [2] * 4
    for bus in buses:
        await bus.close()


async def test_topic_that_cannot_be_created_is_not_available(kafka: KafkaService) -> None:
    bus = KafkaBus(Kafka(kafka.address, create_topics=True, replication=50))
    with pytest.raises(TopicUnavailable, match="replication factor"):
        await bus.partition_count(kafka.name())
    await bus.close()


async def test_looking_at_a_topic_does_not_create_it(kafka: KafkaService) -> None:
    bus = KafkaBus(Kafka(kafka.address))
    name = kafka.name()
    with pytest.raises(TopicUnavailable, match=name):
        await bus.partition_count(name)
    await bus.close()
    assert name not in kafka_protocol.topics(kafka.address)


async def test_subscription_creates_its_topics_on_request(kafka: KafkaService) -> None:
    bus = KafkaBus(Kafka(kafka.address, create_topics=True, partitions=2))
    name = kafka.name()

    async def on_revoked(_: object) -> None: ...

    subscription = await bus.subscribe(kafka.name(), [name], on_revoked)
    assert name in kafka_protocol.topics(kafka.address)
    await bus.send(name, 0, [BusMessage(b"a", b"1")])
    assert [record.message.value for record in await subscription.read(10, 10)] == [b"1"]
    await subscription.close()
    await bus.close()


async def test_server_that_is_not_there_is_named() -> None:
    port = free_port()
    bus = KafkaBus(Kafka(f"127.0.0.1:{port}"))
    for _ in range(2):
        with pytest.raises(BusUnreachable, match=f"Kafka at 127.0.0.1:{port} cannot be reached"):
            await bus.partition_count("orders")
    with pytest.raises(BusUnreachable):
        await bus.subscribe("group", ["orders"], lambda _: asyncio.sleep(0))
    await bus.close()


@pytest.mark.timed
async def test_server_that_does_not_answer_costs_one_second() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        bus = KafkaBus(Kafka(f"127.0.0.1:{silent.getsockname()[1]}"))
        for _ in range(2):
            async with asyncio.timeout(1.5):
                with pytest.raises(BusUnreachable, match="no answer"):
                    await bus.partition_count("orders")
        async with asyncio.timeout(1):
            await bus.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}
