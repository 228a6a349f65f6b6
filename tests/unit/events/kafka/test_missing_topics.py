"""Topics that are deleted or created while a bus uses them."""

from __future__ import annotations

import asyncio

import pytest

from onthedot.events.bus import BusMessage, BusRecord, TopicUnavailable
from onthedot.events.kafka import KafkaBus
from onthedot.events.settings import Kafka
from tests.support.services import kafka_protocol
from tests.support.services.kafka import KafkaService, new_name
from tests.support.waits import until

pytestmark = pytest.mark.once


async def values(bus: KafkaBus, topic: str) -> list[bytes]:
    return [record.message.value async for record in bus.peek(topic)]


async def test_deleted_topic_is_not_available_and_others_are_sent(kafka: KafkaService) -> None:
    deleted = kafka.topic()
    other = kafka.topic()
    bus = KafkaBus(Kafka(kafka.address, request_timeout=1))
    await bus.send(deleted, 0, [BusMessage(b"a", b"1")])
    kafka_protocol.delete_topics(kafka.address, [deleted])
    sending = asyncio.create_task(bus.send(deleted, 0, [BusMessage(b"a", b"2")]))
    for number in range(20):
        await bus.send(other, 0, [BusMessage(b"a", b"%d" % number)])
    with pytest.raises(TopicUnavailable, match=deleted):
        await sending
    await bus.send(other, 0, [BusMessage(b"a", b"20")])
    assert await values(bus, other) == [b"%d" % number for number in range(21)]
    kafka_protocol.create_topic(kafka.address, deleted)
    await bus.send(deleted, 0, [BusMessage(b"a", b"3")])
    assert await values(bus, deleted) == [b"3"]
    await bus.close()


@pytest.mark.slow
async def test_subscription_reads_a_topic_that_is_created_later(kafka: KafkaService) -> None:
    """It is noticed within 10 seconds; other topics are read meanwhile."""
    present = kafka.topic()
    later = kafka.name()
    bus = KafkaBus(Kafka(kafka.address))
    read: list[BusRecord] = []

    async def on_revoked(_: object) -> None: ...

    async def has_read(topic: str) -> bool:
        read.extend(await subscription.read(10, 0.1))
        return any(record.topic == topic for record in read)

    subscription = await bus.subscribe(new_name(), [present, later], on_revoked)
    await bus.send(present, 0, [BusMessage(b"a", b"1")])
    await until(lambda: has_read(present))
    kafka_protocol.create_topic(kafka.address, later)
    await bus.send(later, 0, [BusMessage(b"a", b"2")])
    await until(lambda: has_read(later))
    await subscription.close()
    await bus.close()
