"""Reads the state of topics and groups, for operators. Nothing is created or changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import KafkaError, for_code

from onthedot.events.bus import BusUnreachable, TopicUnavailable
from onthedot.events.kafka.client_stop import stop_consumer
from onthedot.events.kafka.connection import Client, client_options, reason_of
from onthedot.events.kafka.consumer import consumer_options
from onthedot.events.kafka.log_filter import limit_log_lines
from onthedot.events.kafka.topics import KafkaTopics
from onthedot.events.kafka_state import KafkaGroupState, KafkaState, KafkaTopicState
from onthedot.events.settings import Kafka

_MIN_IN_SYNC = "min.insync.replicas"
_RETENTION = "retention.ms"
_REBALANCES = ("PreparingRebalance", "CompletingRebalance")
_REBALANCE_PAUSE = 0.1  # seconds

T = TypeVar("T")
_Offsets = Mapping[TopicPartition, int]


async def inspect(
    settings: Kafka, group_prefix: str, topics: Collection[str], beside: Callable[[str, str], Collection[str]]
) -> KafkaState:
    """The state of these topics, of the groups whose names begin so, and of the topics that they read.

    beside: group and topic → other topics that belong to it. Raises BusUnreachable.
    """
    limit_log_lines()
    inspection = _Inspection(settings)
    try:
        async with asyncio.timeout(settings.request_timeout):
            await inspection.open()
            return await inspection.read(group_prefix, topics, beside)
    except (KafkaError, OSError, TimeoutError) as error:
        raise BusUnreachable(f"Kafka at {settings.servers} does not answer: {reason_of(error)}") from error
    finally:
        await inspection.close()


@asynccontextmanager
async def open_lag(settings: Kafka, group: str) -> AsyncGenerator[Callable[[], Awaitable[int]]]:
    """A function that counts the records which a group has not committed, in all topics that it has ever read.

    It raises BusError: also for a group that has never read, and for a partition without a leader.
    """
    limit_log_lines()
    inspection = _Inspection(settings)

    async def ask(work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(settings.request_timeout):
                return await work
        except (KafkaError, OSError, TimeoutError) as error:
            raise BusUnreachable(f"Kafka at {settings.servers} does not answer: {reason_of(error)}") from error

    try:
        await ask(inspection.open())
        yield lambda: ask(inspection.read_lag(group))
    finally:
        await inspection.close()


class _Inspection:
    """Three clients: aiokafka has no single one that can read all of it."""

    def __init__(self, settings: Kafka) -> None:
        self._topics = KafkaTopics(settings)
        self._admin: Client = AIOKafkaAdminClient(**client_options(settings))
        self._consumer: Client = AIOKafkaConsumer(**consumer_options(settings))

    async def open(self) -> None:
        await self._admin.start()
        await self._consumer.start()

    async def close(self) -> None:
        await asyncio.gather(self._admin.close(), stop_consumer(self._consumer), self._topics.close())

    async def read(
        self, group_prefix: str, topics: Collection[str], beside: Callable[[str, str], Collection[str]]
    ) -> KafkaState:
        cluster = await self._admin.describe_cluster()
        names = [name for name, *_ in await self._admin.list_consumer_groups() if name.startswith(group_prefix)]
        committed = {name: await self._committed(name) for name in sorted(names)}
        wanted = set(topics)
        for group, offsets in committed.items():
            for topic in {each.topic for each in offsets}:
                wanted |= {topic, *beside(group, topic)}
        states = await self._states(sorted(wanted))
        members = await self._members(committed)
        groups = [
            KafkaGroupState(group, members[group], await self._lag(offsets, {each.topic for each in offsets}, states))
            for group, offsets in committed.items()
        ]
        return KafkaState(len(cluster["brokers"]), list(states.values()), groups)

    async def read_lag(self, group: str) -> int:
        committed = await self._committed(group)
        topics = {each.topic for each in committed} | await self._assigned_topics(group)
        if not topics:
            raise TopicUnavailable(f"the group {group} has read nothing from this Kafka")
        states = await self._states(sorted(topics))
        if without_leader := [name for name, each in states.items() if each.without_leader]:
            raise TopicUnavailable(f"{', '.join(without_leader)}: a partition has no leader")
        return sum((await self._lag(committed, topics, states)).values())

    async def _assigned_topics(self, group: str) -> set[str]:
        """Also those of which it has committed nothing. While partitions are assigned anew no member has any."""
        while True:
            (found,) = await self._describe([group])
            if found["state"] not in _REBALANCES:
                break
            await asyncio.sleep(_REBALANCE_PAUSE)
        assignments = [each["member_assignment"] for each in found["members"]]
        decoded = [ConsumerProtocolMemberAssignment.decode(each) for each in assignments if each]
        return {place.topic for each in decoded for place in each.partitions()}

    async def _committed(self, group: str) -> dict[TopicPartition, int]:
        found = await self._admin.list_consumer_group_offsets(group)
        return {place: each.offset for place, each in found.items() if each.offset >= 0}

    async def _members(self, groups: Iterable[str]) -> dict[str, int]:
        return {each["group"]: len(each["members"]) for each in await self._describe(groups)}

    async def _describe(self, groups: Iterable[str]) -> list[dict[str, Any]]:
        answers = await self._admin.describe_consumer_groups(list(groups))
        return [each for answer in answers for each in answer.to_object()["groups"]]

    async def _lag(
        self, committed: _Offsets, topics: Iterable[str], states: Mapping[str, KafkaTopicState]
    ) -> dict[str, int]:
        """A partition without a committed offset is read from its beginning."""
        lag: dict[str, int] = {}
        for topic in sorted(topics):
            places = [TopicPartition(topic, number) for number in range(states[topic].partitions)]
            if places and not states[topic].without_leader:
                oldest = await self._consumer.beginning_offsets(places)
                ends = await self._consumer.end_offsets(places)
                lag[topic] = sum(ends[each] - max(committed.get(each, 0), oldest[each]) for each in places)
        return lag

    async def _states(self, names: list[str]) -> dict[str, KafkaTopicState]:
        if not names:
            return {}
        found = {each["topic"]: each for each in await self._topics.describe(names)}
        existing = [name for name in names if not found[name]["error_code"]]
        configs = await self._configs(existing)
        return {name: _state(name, found[name], configs.get(name, {})) for name in names}

    async def _configs(self, names: list[str]) -> dict[str, dict[str, int]]:
        """Settings by topic; a topic whose settings this user may not read is missing."""
        if not names:
            return {}
        wanted: Any = {_MIN_IN_SYNC: None, _RETENTION: None}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name, wanted) for name in names]
        answers = await self._admin.describe_configs(resources)
        found: dict[str, dict[str, int]] = {}
        for code, _, _, topic, entries in (each for answer in answers for each in answer.resources):
            if not code:
                found[topic] = {name: int(value) for name, value, *_ in entries}
        return found


def _state(name: str, found: Mapping[str, Any], config: Mapping[str, int]) -> KafkaTopicState:
    if found["error_code"]:
        return KafkaTopicState(name, error=for_code(found["error_code"]).__name__)
    partitions = found["partitions"]
    return KafkaTopicState(
        name,
        len(partitions),
        replicas=min(len(each["replicas"]) for each in partitions),
        in_sync=min(len(each["isr"]) for each in partitions),
        without_leader=sum(each["leader"] < 0 for each in partitions),
        min_in_sync=config.get(_MIN_IN_SYNC),
        retention_ms=config.get(_RETENTION),
    )
