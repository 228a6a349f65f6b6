"""Sending: topics that do not exist, and records that are refused. On the store bus the relay sends by marking."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from onthedot.events.bus import BusMessage, RecordRefused, TopicUnavailable
from tests.contract.bus import BusHouse, BusServer

LARGE = b"." * 20_000
NOW = int(time.time() * 1000)  # a server deletes records that are older than the retention of their topic


@pytest.fixture(autouse=True)
def _kinds_that_send(server: BusServer) -> None:
    if not server.has_unknown_topics or not server.refuses_records:
        pytest.skip("every topic exists, and nothing is refused")


def message(number: int, value: bytes = b"") -> BusMessage:
    return BusMessage(b"a", value or b"%d" % number, (("ce_id", b"%d" % number),), NOW + number - 60_000)


async def ids(house: BusHouse, topic: str) -> list[int]:
    """Offsets are checked, too: they tell a message that was never written from one that was not read."""
    bus = await house.open_bus()
    records = [record async for record in bus.peek(topic)]
    next_offsets: Counter[int] = Counter()
    for record in records:
        offset = next_offsets[record.partition]
        assert record.offset == offset, f"partition {record.partition} has {record.offset} where {offset} is expected"
        next_offsets[record.partition] += 1
    return [int(dict(record.message.headers)["ce_id"]) for record in records]


async def test_all_of_a_message_is_kept(house: BusHouse, topic: str) -> None:
    bus = await house.open_bus()
    await bus.send(topic, 1, [message(0), message(1)])
    read = [record async for record in bus.peek(topic)]
    assert [record.message for record in read] == [message(0), message(1)]
    assert [(record.topic, record.partition) for record in read] == [(topic, 1)] * 2


async def test_a_topic_that_does_not_exist_is_not_available(house: BusHouse, server: BusServer, topic: str) -> None:
    bus = await house.open_bus()
    with pytest.raises(TopicUnavailable, match="nowhere"):
        await bus.partition_count("nowhere")
    with pytest.raises(TopicUnavailable, match="nowhere"):
        await bus.send("nowhere", 0, [message(0)])
    await bus.send(topic, 0, [message(0)])
    assert await ids(house, topic) == [0]


async def test_a_partition_that_does_not_exist_is_not_available(house: BusHouse, topic: str) -> None:
    bus = await house.open_bus()
    await bus.send(topic, 0, [message(0)])
    with pytest.raises(TopicUnavailable):
        await bus.send(topic, 99, [message(1)])
    await bus.send(topic, 0, [message(2)])
    assert await ids(house, topic) == [0, 2]


@pytest.mark.parametrize("place", [0, 1, 50, 98, 99])
async def test_a_record_that_is_too_large_is_refused_alone(house: BusHouse, topic: str, place: int) -> None:
    """The bus has those before it, and none of those after it."""
    bus = await house.open_bus()
    batch = [message(number, LARGE if number == place else b"") for number in range(100)]
    with pytest.raises(RecordRefused) as refusal:
        await bus.send(topic, 0, batch)
    assert refusal.value.index == place
    assert await ids(house, topic) == list(range(place))
    await bus.send(topic, 0, batch[place + 1 :])
    assert await ids(house, topic) == [number for number in range(100) if number != place]


async def test_a_batch_that_is_too_large_is_divided(house: BusHouse, topic: str) -> None:
    bus = await house.open_bus()
    await bus.send(topic, 0, [message(number, b"." * 3_000) for number in range(20)])
    assert await ids(house, topic) == list(range(20))


async def test_other_partitions_are_sent_while_records_are_refused(house: BusHouse, topic: str) -> None:
    bus = await house.open_bus()

    async def send_refused() -> None:
        for number in range(5):
            with pytest.raises(RecordRefused):
                await bus.send(topic, 0, [message(number), message(number, LARGE)])

    async def send_many(partition: int) -> None:
        for number in range(100):
            await bus.send(topic, partition, [message(number)])

    await asyncio.gather(send_refused(), send_many(1), send_many(2))
    found: dict[int, list[int]] = {}
    async for record in bus.peek(topic):
        found.setdefault(record.partition, []).append(int(dict(record.message.headers)["ce_id"]))
    assert found == {0: list(range(5)), 1: list(range(100)), 2: list(range(100))}


async def test_nothing_is_sent_for_an_empty_batch(house: BusHouse, topic: str) -> None:
    bus = await house.open_bus()
    await bus.send(topic, 0, [])
    assert await ids(house, topic) == []


async def test_bus_can_be_opened_again(house: BusHouse, topic: str) -> None:
    bus = await house.open_bus()
    await bus.send(topic, 0, [message(0)])
    await bus.close()
    await bus.open()
    await bus.send(topic, 0, [message(1)])
    assert await ids(house, topic) == [0, 1]
