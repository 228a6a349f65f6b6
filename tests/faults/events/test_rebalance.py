"""Members of a group come and go every second or two while messages are read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

import pytest

from onthedot.events.bus import BusMessage, Subscription, TopicPartition
from onthedot.events.kafka import KafkaBus
from onthedot.events.settings import Kafka
from tests.faults import LONG, scaled
from tests.faults.events.bus_report import report_messages
from tests.support.services.kafka import KafkaService, new_name
from tests.support.waits import until

pytestmark = [pytest.mark.fault, pytest.mark.timed, pytest.mark.timeout(900 if LONG else 180)]

PARTITIONS = 4
INTERVAL = 2.0 if LONG else 1.0  # seconds
REBALANCES = scaled(3, 30)


class Reader:
    """A member that commits what it has read, at the latest when its partitions are revoked."""

    def __init__(self, bus: KafkaBus, read: list[tuple[int, int]]) -> None:
        self._bus = bus
        self._read = read
        self._offsets: dict[TopicPartition, int] = {}
        self._subscription: Subscription
        self._loop: asyncio.Task[None]

    async def start(self, group: str, topic: str) -> None:
        self._subscription = await self._bus.subscribe(group, [topic], self._on_revoked)
        self._loop = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self._loop.cancel()
        await asyncio.wait([self._loop])
        await self._commit()
        await self._subscription.close()

    async def partitions(self) -> set[TopicPartition]:
        return set(await self._subscription.lag())

    async def _run(self) -> None:
        while True:
            for record in await self._subscription.read(100, 1.0):
                self._read.append((record.partition, int(record.message.value)))
                self._offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1
            await self._commit()

    async def _commit(self) -> None:
        offsets = self._offsets
        self._offsets = {}
        await self._subscription.commit(offsets)

    async def _on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self._commit()


async def test_rebalances_lose_and_repeat_nothing(kafka: KafkaService) -> None:
    topic = kafka.topic(PARTITIONS)
    group = new_name()
    bus = KafkaBus(Kafka(kafka.address))
    sent = dict.fromkeys(range(PARTITIONS), 0)
    read: list[tuple[int, int]] = []
    durations: list[float] = []

    async def send() -> None:
        while True:
            for partition, number in sent.items():
                await bus.send(topic, partition, [BusMessage(b"key", b"%d" % number)])
                sent[partition] += 1
            await asyncio.sleep(0.02)

    members = [Reader(bus, read)]
    await members[0].start(group, topic)
    sending = asyncio.create_task(send())
    await until(lambda: len(read) > 20)
    for number in range(REBALANCES):
        began = time.monotonic()
        if number % 2:
            await members.pop().stop()
        else:
            members.append(Reader(bus, read))
            await members[-1].start(group, topic)

        async def is_settled() -> bool:
            owned = [await member.partitions() for member in members]
            return all(owned) and sum(map(len, owned)) == len(set().union(*owned)) == PARTITIONS

        await until(is_settled)
        durations.append(time.monotonic() - began)
        await asyncio.sleep(max(0.0, INTERVAL - durations[-1]))
    sending.cancel()
    await asyncio.wait([sending])
    await until(lambda: len(set(read)) >= sum(sent.values()))
    for member in members:
        await member.stop()
    await bus.close()
    report_messages(f"Kafka, {REBALANCES} rebalances", sent, read, durations).check(most_copies=0)
    assert max(durations) < 1
