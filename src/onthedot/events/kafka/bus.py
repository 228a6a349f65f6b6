"""KafkaBus: the bus contract on aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from onthedot.events.bus import BusMessage, BusRecord, Revoked, Subscription
from onthedot.events.kafka import consumer
from onthedot.events.kafka.log_filter import limit_log_lines
from onthedot.events.kafka.partitions import partition_of
from onthedot.events.kafka.producer import KafkaProducer
from onthedot.events.kafka.topics import KafkaTopics
from onthedot.events.settings import Kafka


class KafkaBus:
    """Kafka as the bus. It belongs to the event loop in which it is used.

    Args:
        settings: addresses of the servers, login and timeouts.
        name: of the app, which servers log if the settings have no `client_id`.
    """

    to_log = False

    def __init__(self, settings: Kafka, name: str = "onthedot") -> None:
        self._settings = replace(settings, client_id=settings.client_id or name)
        self._topics = KafkaTopics(self._settings)
        self._producer = KafkaProducer(self._settings, self._topics)

    async def open(self) -> None:
        """Connects to nothing: a worker starts also while Kafka cannot be reached."""
        limit_log_lines()
        if self._producer.is_closing:
            self._producer = KafkaProducer(self._settings, self._topics)

    async def close(self) -> None:
        """Sends that are in flight are abandoned after 2 seconds."""
        await asyncio.gather(self._producer.close(), self._topics.close())

    async def partition_count(self, topic: str) -> int:
        return await self._topics.partition_count(topic)

    def partition_of(self, key: bytes, count: int) -> int:
        return partition_of(key, count)

    async def send(self, topic: str, partition: int, messages: Sequence[BusMessage]) -> None:
        await self._producer.send(topic, partition, messages)

    async def subscribe(self, group: str, topics: Sequence[str], on_revoked: Revoked) -> Subscription:
        if self._settings.create_topics:
            for topic in topics:
                await self._topics.partition_count(topic)
        subscription = consumer.KafkaSubscription(self._settings, group, on_revoked)
        await subscription.start(topics)
        return subscription

    async def peek(self, topic: str) -> AsyncIterator[BusRecord]:
        topics = [topic]
        if topic.startswith("*"):
            topics = [name for name in await self._topics.names() if name.endswith(topic[1:])]
        for name in topics:
            partitions = await self._topics.partition_count(name)
            async for record in consumer.peek(self._settings, name, partitions):
                yield record
