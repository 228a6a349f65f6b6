"""Kafka as a kind of bus."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from onthedot.events.bus import Bus, BusMessage, BusRecord
from onthedot.events.kafka import KafkaBus
from onthedot.events.settings import Kafka
from tests.contract.bus import Numbered
from tests.support.services.kafka import KafkaService


class KafkaServer:
    """Messages are put there by a bus of its own."""

    has_unknown_topics = True
    refuses_records = True

    def __init__(self, service: KafkaService) -> None:
        self._service = service
        self._putter: Bus | None = None

    def new_bus(self) -> Bus:
        return KafkaBus(Kafka(self._service.address))

    def new_topic(self) -> str:
        return self._service.topic(4, {"max.message.bytes": "10000"})

    async def put(self, topic: str, messages: Sequence[Numbered]) -> None:
        if self._putter is None:
            self._putter = self.new_bus()
        count = await self._putter.partition_count(topic)
        batches: dict[int, list[BusMessage]] = defaultdict(list)
        for key, number in messages:
            message = BusMessage(key.encode(), str(number).encode())
            batches[self._putter.partition_of(key.encode(), count)].append(message)
        for partition, batch in batches.items():
            await self._putter.send(topic, partition, batch)

    def to_message(self, record: BusRecord) -> Numbered:
        assert record.message.key is not None
        return Numbered(record.message.key.decode(), int(record.message.value))

    async def close(self) -> None:
        if self._putter is not None:
            await self._putter.close()
