"""The partitions of topics, on a connection of its own: a producer blocks for a topic that does not exist."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.metadata import MetadataRequest

from onthedot.events.bus import BusUnreachable, TopicUnavailable
from onthedot.events.kafka.connection import Client, client_options, reason_of
from onthedot.events.settings import Kafka

T = TypeVar("T")

ANSWER_TIMEOUT = 1.0  # seconds
_CLOSE = 0.5  # seconds that a connect has to end
_CREATED_PAUSE = 0.02  # seconds; servers know of a new topic shortly after it is created


class KafkaTopics:
    """Looks at topics, and creates them if the settings say so."""

    def __init__(self, settings: Kafka) -> None:
        self._settings = settings
        self._options: dict[str, Any] = client_options(settings)
        self._connection: asyncio.Task[Client] | None = None

    async def partition_count(self, topic: str) -> int:
        """Of a topic, within 1 second."""
        return await self._answer(self._find(topic), ANSWER_TIMEOUT)

    async def names(self) -> list[str]:
        """Of all topics that this client may see."""
        found = await self._answer(self._metadata(None), self._settings.request_timeout)
        return sorted(each["topic"] for each in found if not each["error_code"])

    async def describe(self, topics: list[str]) -> list[dict[str, Any]]:
        """Error code and partitions of each topic, as Kafka answers."""
        return await self._answer(self._metadata(topics), self._settings.request_timeout)

    async def _answer(self, coroutine: Coroutine[Any, Any, T], timeout: float) -> T:
        try:
            async with asyncio.timeout(timeout):
                return await coroutine
        except (KafkaError, OSError, TimeoutError) as error:
            if not self._is_connecting():
                await self.close()  # the next call begins with the addresses of the settings
            where = self._settings.servers
            raise BusUnreachable(f"Kafka at {where} cannot be reached: {reason_of(error)}") from error

    async def close(self) -> None:
        connection = self._connection
        self._connection = None
        if connection is None:
            return
        await asyncio.wait([connection], timeout=_CLOSE)  # a connect that is cancelled leaves its socket open
        connection.cancel()
        await asyncio.wait([connection])
        if not connection.cancelled() and connection.exception() is None:
            await connection.result().close()

    def _is_connecting(self) -> bool:
        """A slow login takes longer than one call may take; a later call finds it completed."""
        return self._connection is not None and not self._connection.done()

    async def _find(self, topic: str) -> int:
        is_created = False
        while True:
            (found,) = await self._metadata([topic])
            error: type[KafkaError] = for_code(found["error_code"])
            if not found["error_code"]:
                return len(found["partitions"])
            if error is not UnknownTopicOrPartitionError or not self._settings.create_topics:
                raise TopicUnavailable(f"topic {topic!r} is not available: {error.__name__}")
            if not is_created:
                await self._create(topic)
                is_created = True
            await asyncio.sleep(_CREATED_PAUSE)

    async def _metadata(self, topics: list[str] | None) -> list[dict[str, Any]]:
        """None: all. Without `allow_auto_topic_creation`: looking at a topic must not create it."""
        client = await self._connected()
        request: Any = MetadataRequest(topics, allow_auto_topic_creation=False)
        response = await client.send(client.get_random_node(), request)
        found: list[dict[str, Any]] = response.to_object()["topics"]
        return found

    async def _connected(self) -> Client:
        if self._connection is None:
            self._connection = asyncio.create_task(self._connect())
        return await asyncio.shield(self._connection)

    async def _connect(self) -> Client:
        client: Client = AIOKafkaClient(**self._options)
        await client.bootstrap()
        return client

    async def _create(self, topic: str) -> None:
        admin: Client = AIOKafkaAdminClient(**self._options)
        settings = self._settings
        assignments: Any = {} if settings.replication == -1 else None  # aiokafka wants one of the two
        new_topic: Any = NewTopic(topic, settings.partitions, settings.replication, assignments)
        try:
            await admin.start()
            response = await admin.create_topics([new_topic])
        finally:
            await admin.close()
        for _, code, message in response.topic_errors:
            if code not in (0, TopicAlreadyExistsError.errno):
                raise TopicUnavailable(f"topic {topic!r} cannot be created: {message or for_code(code).__name__}")
