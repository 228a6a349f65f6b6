"""Kafka is stopped and killed under load: nothing is lost, and first copies are in order."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator

import pytest

from onthedot.events.bus import BusMessage, BusUnreachable, TopicPartition, TopicUnavailable
from onthedot.events.kafka import KafkaBus
from onthedot.events.settings import Kafka
from tests.faults import LONG, scaled
from tests.faults.events.bus_report import report_messages
from tests.support.services import kafka, kafka_protocol
from tests.support.services.kafka_server import Broker
from tests.support.waits import until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900 if LONG else 180)]

PARTITIONS = 3
ROUND = 100
FAULTS = ["kill", "stop"] * scaled(1, 5)
DOWN = [0.5, 3.0, 12.0] if LONG else [0.5]  # seconds without a broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with kafka.broker() as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    name = kafka.new_name()
    kafka_protocol.create_topic(broker.address, name, PARTITIONS)
    return name


class Load:
    """Sends numbers to every partition, as a relay does, and reads them in a group, as a subscription does."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._bus = KafkaBus(Kafka(broker.address))
        self._topic = topic
        self.sent = dict.fromkeys(range(PARTITIONS), 0)
        self.read: list[tuple[int, int]] = []
        self.read_at = 0.0
        self.errors: list[Exception] = []
        self._is_sending = True

    async def run(self) -> None:
        await self._bus.open()
        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(self._receive())
            senders = [tasks.create_task(self._send(partition)) for partition in self.sent]
            await asyncio.wait(senders)
            await until(lambda: len(set(self.read)) >= sum(self.sent.values()))
            reader.cancel()
        await self._bus.close()

    async def rounds(self, count: int) -> None:
        """Until every partition has sent so many more."""
        goal = {partition: sent + count * ROUND for partition, sent in self.sent.items()}
        await until(lambda: all(sent >= goal[partition] for partition, sent in self.sent.items()))

    async def next_read(self) -> float:
        """The seconds until messages are read again."""
        began = time.monotonic()
        return await until(lambda: self.read_at > began)

    def stop(self) -> None:
        self._is_sending = False

    async def _send(self, partition: int) -> None:
        while self._is_sending:
            start = self.sent[partition]
            batch = [BusMessage(b"key", b"%d" % number) for number in range(start, start + ROUND)]
            try:
                await self._bus.send(self._topic, partition, batch)
            except TopicUnavailable as error:  # the same again, as the relay does
                self.errors.append(error)
                await asyncio.sleep(0.5)
            else:
                self.sent[partition] += ROUND
                await asyncio.sleep(0.01)

    async def _receive(self) -> None:
        subscription = await self._bus.subscribe(self._topic, [self._topic], self._on_revoked)
        try:
            while True:
                records = await subscription.read(500, 1.0)
                self.read += [(record.partition, int(record.message.value)) for record in records]
                if records:
                    self.read_at = time.monotonic()
                    offsets = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
                    try:
                        await subscription.commit(offsets)
                    except BusUnreachable as error:
                        self.errors.append(error)
        finally:
            await subscription.close()

    async def _on_revoked(self, _: object) -> None: ...


async def test_no_message_is_lost_or_overtaken_when_the_broker_dies(broker: Broker, topic: str) -> None:
    load = Load(broker, topic)
    running = asyncio.create_task(load.run())
    recovery = []
    for number, fault in enumerate(FAULTS):
        await load.rounds(5)
        await asyncio.to_thread(broker.kill if fault == "kill" else broker.stop)
        await asyncio.sleep(DOWN[number % len(DOWN)])
        await asyncio.to_thread(broker.start)
        recovery.append(await load.next_read())
    load.stop()
    await running
    reader = KafkaBus(Kafka(broker.address))
    stored = [(record.partition, int(record.message.value)) async for record in reader.peek(topic)]
    await reader.close()
    print(f"\nerrors: {load.errors}")
    report_messages("Kafka, sent over kill -9 and stop", load.sent, stored).check(len(FAULTS) * PARTITIONS * ROUND)
    report_messages("Kafka, read over kill -9 and stop", load.sent, load.read, recovery).check(
        2 * len(FAULTS) * PARTITIONS * ROUND
    )


async def test_buses_close_while_the_broker_is_away(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With batches in flight, with a member of a group, and by a close that is cancelled.

    No task is left, and the log has one line of each kind. It is the last test that uses the broker.
    """
    bus, impatient, late = (KafkaBus(Kafka(broker.address)) for _ in range(3))
    await bus.open()
    subscription = await bus.subscribe(topic, [topic], lambda _: asyncio.sleep(0))
    for each in (bus, impatient):
        await each.send(topic, 0, [BusMessage(b"key", b"0")])
    assert await subscription.read(10, 20)
    broker.kill()
    with caplog.at_level(logging.WARNING, "aiokafka"):
        sends = [
            asyncio.create_task(each.send(topic, 0, [BusMessage(b"key", b"1")])) for each in (bus, impatient, late)
        ]
        assert list(await subscription.read(10, 3)) == []
        with pytest.raises(BusUnreachable):
            await bus.partition_count(topic)
        assert not any(send.done() for send in sends)
        async with asyncio.timeout(3):
            await subscription.close()
        async with asyncio.timeout(3):
            await bus.close()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await impatient.close()
        async with asyncio.timeout(3):
            await late.close()
    answers = await asyncio.gather(*sends, return_exceptions=True)
    assert [type(answer) for answer in answers] == [BusUnreachable] * 3
    assert asyncio.all_tasks() == {asyncio.current_task()}
    texts = [f"{record.name} {record.levelname} {str(record.msg).partition(' (')[0]}" for record in caplog.records]
    assert sorted(texts) == sorted(set(texts))
