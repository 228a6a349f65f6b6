"""Sends batches with acknowledgement of all replicas. A producer that was refused something is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import time
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    CorruptRecordException,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
    kafka_errors,
)

from onthedot.clock.durations import HOUR
from onthedot.events.bus import BusMessage, BusUnreachable, RecordRefused, TopicPartition, TopicUnavailable
from onthedot.events.kafka.client_stop import stop_producer
from onthedot.events.kafka.connection import (
    RETRY_PAUSE,
    Client,
    client_options,
    reason_of,
)
from onthedot.events.kafka.topics import KafkaTopics
from onthedot.events.settings import Kafka

_BATCH_BYTES = 1_000_000  # Kafka's default for the largest batch is 1 MiB
_LEADER_TIMEOUT = 2.0  # seconds
_MAX_AGE = HOUR  # ms; Kafka deletes records by their timestamp, also records that nobody has read yet
_TRIES = 3  # of a batch that failed for another reason than its records or its topic


class _InvalidRecordError(BrokerResponseError):  # type: ignore[misc]  # aiokafka has no types
    """A server refuses a record by a rule of the topic: one that is compacted takes no record without a key."""

    errno = 87
    message = "INVALID_RECORD"
    description = "The topic does not accept a record of the batch; a compacted topic needs keys."


kafka_errors.setdefault(87, _InvalidRecordError)  # aiokafka has no name for it and reports an unknown error
_OF_RECORDS = (
    kafka_errors[87],
    CorruptRecordException,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    UnsupportedForMessageFormatError,
)
_OF_TOPIC = (
    ClusterAuthorizationFailedError,
    InvalidTopicError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)


class BatchRefused(Exception):
    """The records of a batch, or their number, are refused."""


@dataclass(eq=False)
class SharedProducer:
    """A producer, and the sends that use it now."""

    client: Client
    sends: int = 0
    is_retired: bool = False


class KafkaProducer:
    """One producer at a time.

    After a refusal, and after some outages, aiokafka counts sequence numbers that no server has seen, and the servers
    refuse everything that follows in that partition (aiokafka#1017). A new producer counts from the beginning. The old
    one completes what other partitions have in flight.
    """

    def __init__(self, settings: Kafka, topics: KafkaTopics) -> None:
        self._options: dict[str, Any] = {
            **client_options(settings),
            "acks": "all",
            "enable_idempotence": True,
            "compression_type": settings.compression,
            "max_batch_size": _BATCH_BYTES,
        }
        self._topics = topics
        self._timeout = settings.request_timeout
        self._current: SharedProducer | None = None
        self._starting = asyncio.Lock()
        self._all: set[SharedProducer] = set()
        self._stops: set[asyncio.Task[None]] = set()
        self.is_closing: bool = False
        self._closed = asyncio.Event()

    async def send(self, topic: str, partition: int, messages: Sequence[BusMessage]) -> None:
        """Send in order. A batch that is refused is halved, until a single record is refused."""
        target = TopicPartition(topic, partition)
        start = 0
        size = len(messages)
        while start < len(messages):
            part = messages[start : start + size]
            try:
                start += await self._send_part(target, part)
            except BatchRefused as refusal:
                if len(part) == 1:
                    raise RecordRefused(start, str(refusal)) from refusal
                size = len(part) // 2

    async def close(self) -> None:
        """Sends that are in flight are abandoned after 2 seconds."""
        self.is_closing = True
        try:
            await asyncio.gather(*(stop_producer(each.client) for each in self._all), *self._stops)
        finally:
            self._closed.set()

    async def _send_part(self, target: TopicPartition, messages: Sequence[BusMessage]) -> int:
        """The number of messages that fit into one batch, which was sent.

        A batch fails with its producer if an outage was longer than the request timeout and the partition has no leader
        yet; the next producer waits for one. A topic may refuse times of the last hour: then all records get the time
        of sending.
        """
        failures = 0
        has_own_times = True
        while True:
            producer = await self._producer()
            producer.sends += 1
            now = int(time() * 1000)
            try:
                oldest = now - _MAX_AGE if has_own_times else now
                return await self._send_batch(producer.client, target, messages, oldest, now)
            except KafkaError as error:
                self._retire(producer)
                reason = reason_of(error)
                if isinstance(error, InvalidTimestampError) and has_own_times:
                    has_own_times = False
                    continue
                if isinstance(error, _OF_RECORDS):
                    raise BatchRefused(reason) from error
                if isinstance(error, _OF_TOPIC):
                    raise TopicUnavailable(f"topic {target.topic!r} is not available: {reason}") from error
                failures += 1
                if failures == _TRIES:
                    raise TopicUnavailable(f"topic {target.topic!r}: {_TRIES} producers failed, {reason}") from error
            finally:
                producer.sends -= 1
                self._stop_unused(producer)
            await asyncio.sleep(RETRY_PAUSE)

    async def _send_batch(
        self, client: Client, target: TopicPartition, messages: Sequence[BusMessage], oldest: int, newest: int
    ) -> int:
        """Records of events between oldest and newest, in ms, have the times of the events; all others have newest."""
        await self._find_leader(client, target)
        batch = client.create_batch()
        for message in messages:
            headers = list(message.headers)
            timestamp = newest
            if message.timestamp is not None and oldest <= message.timestamp <= newest:
                timestamp = message.timestamp
            added = batch.append(timestamp=timestamp, key=message.key, value=message.value, headers=headers)
            if added is None:
                break
        count: int = batch.record_count()
        sent: asyncio.Future[Any] = await client.send_batch(batch, target.topic, partition=target.partition)
        await self._until_closed(sent)
        return count

    async def _until_closed(self, sent: asyncio.Future[Any]) -> None:
        """A producer that is abandoned never resolves its futures."""
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait([sent, closed], return_when=asyncio.FIRST_COMPLETED)
            if not sent.done():
                raise BusUnreachable("the bus was closed before it had sent the batch")
            sent.result()
        finally:
            closed.cancel()
            sent.cancel()

    async def _find_leader(self, client: Client, target: TopicPartition) -> None:
        """Without it a batch waits inside the producer, and its failure makes the producer unusable."""
        cluster = client.client.cluster
        if cluster.partitions_for_topic(target.topic) is None:
            await self._await_topic(target.topic)
            await client.partitions_for(target.topic)
        try:
            async with asyncio.timeout(_LEADER_TIMEOUT):
                while cluster.leader_for_partition(target) in (None, -1):
                    await client.client.force_metadata_update()
                    await asyncio.sleep(RETRY_PAUSE / 10)
        except TimeoutError:
            raise TopicUnavailable(f"partition {target.partition} of {target.topic!r} has no leader") from None

    async def _await_topic(self, topic: str) -> None:
        """Returns when the topic exists; waits while no server answers."""
        while not self.is_closing:
            try:
                await self._topics.partition_count(topic)
            except BusUnreachable:
                await asyncio.sleep(RETRY_PAUSE)
            else:
                return
        raise BusUnreachable("the bus is closed")

    async def _producer(self) -> SharedProducer:
        """Waits while no server answers."""
        async with self._starting:
            while self._current is None:
                if self.is_closing:
                    raise BusUnreachable("the bus is closed")
                if not await self._is_started():
                    await asyncio.sleep(RETRY_PAUSE)
            return self._current

    async def _is_started(self) -> bool:
        client: Client = AIOKafkaProducer(**self._options)
        try:
            async with asyncio.timeout(self._timeout):
                await client.start()
        except (KafkaError, OSError, TimeoutError):
            return False
        else:
            self._current = SharedProducer(client)
            self._all.add(self._current)
            return True
        finally:
            if self._current is None:
                await client.stop()

    def _retire(self, producer: SharedProducer) -> None:
        producer.is_retired = True
        if self._current is producer:
            self._current = None

    def _stop_unused(self, producer: SharedProducer) -> None:
        if producer.is_retired and producer.sends == 0 and producer in self._all and not self.is_closing:
            stop = asyncio.create_task(stop_producer(producer.client))
            self._stops.add(stop)
            stop.add_done_callback(self._stops.discard)
            self._all.discard(producer)
