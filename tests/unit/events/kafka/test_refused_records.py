"""Records that a rule of their topic refuses are refused alone; the topic stays available."""

from __future__ import annotations

import time

import pytest
from aiokafka import AIOKafkaProducer

from onthedot.events.bus import BusMessage, RecordRefused
from onthedot.events.kafka import KafkaBus
from onthedot.events.settings import Kafka
from tests.support.services import kafka_protocol
from tests.support.services.kafka import KafkaService, broker
from tests.support.waits import until

pytestmark = pytest.mark.once
HOUR = 3_600_000  # ms


async def test_record_without_key_is_refused_alone_by_a_compacted_topic(kafka: KafkaService) -> None:
    topic = kafka.topic(1, {"cleanup.policy": "compact"})
    bus = KafkaBus(Kafka(kafka.address))
    batch = [BusMessage(b"k" if number != 2 else None, b"%d" % number) for number in range(5)]
    with pytest.raises(RecordRefused, match="Error 87") as refusal:
        await bus.send(topic, 0, batch)
    assert refusal.value.index == 2
    await bus.send(topic, 0, batch[3:])
    values = [record.message.value async for record in bus.peek(topic)]
    await bus.close()
    assert values == [b"0", b"1", b"3", b"4"]


async def send_times(kafka: KafkaService, config: dict[str, str], *times: int) -> list[int]:
    """The timestamps of the records that a topic has after events of these times were sent in one batch."""
    topic = kafka.topic(1, config)
    bus = KafkaBus(Kafka(kafka.address))
    await bus.send(topic, 0, [BusMessage(b"k", b"%d" % each, (), each) for each in times])
    read = [record.message async for record in bus.peek(topic)]
    await bus.close()
    assert [message.value for message in read] == [b"%d" % each for each in times]
    return [message.timestamp or 0 for message in read]


async def test_event_of_another_time_than_the_last_hour_is_sent_with_the_time_of_sending(kafka: KafkaService) -> None:
    """Kafka refuses records that are more than an hour ahead, and negative times. It deletes old ones unread."""
    now = int(time.time() * 1000)
    recent, *others = await send_times(kafka, {}, now - HOUR // 2, now + 2 * HOUR, now - 9000 * HOUR, -5 * HOUR)
    assert recent == now - HOUR // 2
    assert all(now <= each <= time.time() * 1000 for each in others)


async def test_event_that_waited_longer_than_the_retention_of_its_topic_is_kept() -> None:
    old = int(time.time() * 1000) - 9000 * HOUR
    with broker({"log.initial.task.delay.ms": "50", "log.retention.check.interval.ms": "50"}) as own:
        kafka_protocol.create_topic(own.address, "held", 1)
        kafka_protocol.create_topic(own.address, "deleted", 1)
        bus = KafkaBus(Kafka(own.address))
        await bus.send("held", 0, [BusMessage(b"k", b"1", (), old)])
        producer = AIOKafkaProducer(bootstrap_servers=own.address)
        await producer.start()
        await producer.send_and_wait("deleted", b"1", timestamp_ms=old)
        await producer.stop()

        async def is_deleted() -> bool:
            return [record async for record in bus.peek("deleted")] == []

        await until(is_deleted)  # the server looks at all topics, one after another
        values = [record.message.value async for record in bus.peek("held")]
        await bus.close()
    assert values == [b"1"]


async def test_event_that_is_too_old_for_its_topic_is_sent_with_the_time_of_sending(kafka: KafkaService) -> None:
    now = int(time.time() * 1000)
    config = {"message.timestamp.before.max.ms": str(HOUR // 4)}
    times = await send_times(kafka, config, now - HOUR // 2, now)
    assert all(now <= each <= time.time() * 1000 for each in times)
