"""Reads topics: as a member of a group with offsets that are committed by hand, or all of a topic without a group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition as KafkaPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    IllegalStateError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from onthedot.events.bus import (
    BusError,
    BusMessage,
    BusRecord,
    BusUnreachable,
    Revoked,
    TopicPartition,
    TopicUnavailable,
)
from onthedot.events.kafka.client_stop import stop_consumer
from onthedot.events.kafka.connection import (
    Client,
    client_options,
    reason_of,
)
from onthedot.events.settings import Kafka

_FETCH_WAIT = 0.2  # seconds that a server waits for messages; a partition that is resumed is fetched after that
_RETRY_PAUSE = 0.05  # seconds; a member that joins always tries twice
_METADATA_AGE = 10.0  # seconds until a new topic or partition is noticed
_HEARTBEAT = 0.5  # seconds; its answer says that partitions are assigned anew
_JOIN_TIME = 5.0  # seconds that an answer may take longer than the slowest member of the group
_PEEK_LIMIT = 500
_PEEK_PAUSE = 0.1  # seconds


class KafkaSubscription:
    """A member of a group. Its partitions are assigned anew when members come or go (eager rebalancing)."""

    def __init__(self, settings: Kafka, group: str, on_revoked: Revoked) -> None:
        session = settings.session_timeout
        options = consumer_options(settings)
        options["request_timeout_ms"] = int(max(settings.request_timeout, session + _JOIN_TIME) * 1000)
        self._consumer: Client = AIOKafkaConsumer(
            **options,
            group_id=group,
            session_timeout_ms=int(session * 1000),
            heartbeat_interval_ms=int(min(session / 3, _HEARTBEAT) * 1000),
        )
        self._timeout = settings.request_timeout
        self._on_revoked = on_revoked
        self._committed: dict[TopicPartition, int] = {}

    async def start(self, topics: Sequence[str]) -> None:
        """Connect and subscribe; partitions are assigned later, and those of missing topics when these exist."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._consumer.start()
        except (KafkaError, OSError, TimeoutError) as error:
            await self.close()
            raise BusUnreachable(f"Kafka cannot be reached: {reason_of(error)}") from error
        except asyncio.CancelledError:
            await self.close()
            raise
        self._consumer.subscribe(topics, listener=RebalanceListener(self._revoke))

    async def read(self, limit: int, timeout: float) -> Sequence[BusRecord]:
        """Up to `limit` messages.

        `getmany` takes messages only in its last step, without suspension. So a timeout loses none, and no partition
        can be revoked between that step and the return.
        """
        try:
            async with asyncio.timeout(timeout):
                found = await self._consumer.getmany(timeout_ms=int(timeout * 1000), max_records=limit)
        except TimeoutError:  # while partitions are assigned `getmany` waits longer than its own timeout
            return []
        except (ConsumerStoppedError, KafkaError) as error:
            raise read_error(error) from error
        return [record_of(each) for records in found.values() for each in records]

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._consumer.pause(*self._assigned(partitions))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._consumer.resume(*self._assigned(partitions))

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Offsets of partitions that were revoked, or that this member has lost without a word, are ignored."""
        assigned = {each: offsets[TopicPartition(*each)] for each in self._assigned(offsets)}
        if not assigned:
            return
        try:
            async with asyncio.timeout(self._timeout):
                await self._consumer.commit(assigned)
        except (CommitFailedError, IllegalStateError):
            return
        except (KafkaError, TimeoutError) as error:
            raise BusUnreachable(f"Kafka did not accept the offsets: {reason_of(error)}") from error
        self._committed.update({TopicPartition(*each): offset for each, offset in assigned.items()})

    async def lag(self) -> Mapping[TopicPartition, int]:
        assigned = list(self._consumer.assignment())
        if not assigned:
            return {}
        try:
            async with asyncio.timeout(self._timeout):
                _, ends = await asyncio.gather(self._find_committed(assigned), self._ends(assigned))
        except (KafkaError, TimeoutError) as error:
            raise BusUnreachable(f"Kafka did not tell the offsets: {reason_of(error)}") from error
        return {each: max(0, end - self._committed[each]) for each, end in ends.items() if each in self._committed}

    async def close(self) -> None:
        await stop_consumer(self._consumer)

    def _assigned(self, partitions: Iterable[TopicPartition]) -> list[Any]:
        assigned = self._consumer.assignment()
        return [each for each in (KafkaPartition(*partition) for partition in partitions) if each in assigned]

    async def _revoke(self, partitions: Collection[Any]) -> None:
        if partitions:
            await self._on_revoked([TopicPartition(*each) for each in partitions])
            self._committed.clear()

    async def _ends(self, assigned: Sequence[Any]) -> dict[TopicPartition, int]:
        ends = await self._consumer.end_offsets(assigned)
        return {TopicPartition(*each): end for each, end in ends.items()}

    async def _find_committed(self, assigned: Sequence[Any]) -> None:
        """Of partitions that this member has not committed itself; a new group begins with the oldest message."""
        unknown = [each for each in assigned if TopicPartition(*each) not in self._committed]
        if not unknown:
            return
        oldest = await self._consumer.beginning_offsets(unknown)
        for each in unknown:
            committed = await self._consumer.committed(each)
            self._committed[TopicPartition(*each)] = oldest[each] if committed is None else committed


class RebalanceListener:
    """Tells a subscription that its partitions are assigned anew."""

    def __init__(self, revoke: Any) -> None:
        self._revoke = revoke

    async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        await self._revoke(revoked)

    async def on_partitions_assigned(self, assigned: Collection[Any]) -> None: ...


ConsumerRebalanceListener.register(RebalanceListener)


async def peek(settings: Kafka, topic: str, partitions: int) -> AsyncIterator[BusRecord]:
    """All messages from the oldest to those that are the newest now."""
    consumer: Client = AIOKafkaConsumer(**consumer_options(settings))
    try:
        await consumer.start()
        assigned = [KafkaPartition(topic, number) for number in range(partitions)]
        oldest = await consumer.beginning_offsets(assigned)
        ends = await consumer.end_offsets(assigned)
        left = {each for each in assigned if oldest[each] < ends[each]}
        consumer.assign(left)
        for each in left:
            consumer.seek(each, oldest[each])
        while left:
            async with asyncio.timeout(settings.request_timeout):
                found = await read_some(consumer, left)
            for each in found:
                if each.offset < ends[KafkaPartition(topic, each.partition)]:
                    yield record_of(each)
            left = {each for each in left if await consumer.position(each) < ends[each]}
    except (KafkaError, OSError, TimeoutError) as error:
        raise read_error(error) from error
    finally:
        await stop_consumer(consumer)


async def read_some(consumer: Client, partitions: Collection[Any]) -> list[Any]:
    """The next messages; empty if only the position of a partition has changed, as behind the end of a transaction."""
    before = [await consumer.position(each) for each in partitions]
    while True:
        found = await consumer.getmany(*partitions, timeout_ms=int(_PEEK_PAUSE * 1000), max_records=_PEEK_LIMIT)
        if found or before != [await consumer.position(each) for each in partitions]:
            return [each for records in found.values() for each in records]


def consumer_options(settings: Kafka) -> dict[str, Any]:
    """Messages of transactions that were aborted are not read."""
    return {
        **client_options(settings),
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
        "fetch_max_wait_ms": int(_FETCH_WAIT * 1000),
        "metadata_max_age_ms": int(_METADATA_AGE * 1000),
        "retry_backoff_ms": int(_RETRY_PAUSE * 1000),
    }


def record_of(read: Any) -> BusRecord:
    headers = tuple((name, value or b"") for name, value in read.headers)  # a value may be null
    message = BusMessage(read.key, read.value or b"", headers, read.timestamp)
    return BusRecord(read.topic, read.partition, read.offset, message)


def read_error(error: Exception) -> BusError:
    if isinstance(error, TopicAuthorizationFailedError | UnknownTopicOrPartitionError):
        return TopicUnavailable(f"a topic is not available: {error}")
    return BusUnreachable(f"Kafka cannot be read: {reason_of(error)}")
