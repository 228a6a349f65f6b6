"""Messages of a partition are read in the order in which they were put there."""

from __future__ import annotations

import asyncio

import pytest

from onthedot.events.bus import BusRecord
from tests.contract.bus import BusHouse, BusServer, numbered

KEYS = "abcdefgh"


async def test_numbers_of_a_key_are_read_in_order(house: BusHouse, server: BusServer, topic: str, group: str) -> None:
    sent = numbered(KEYS, range(40))
    for start in range(0, len(sent), 50):
        await server.put(topic, sent[start : start + 50])
    member = await house.join(group, topic)
    read = await member.read_messages(len(sent))
    assert sorted(read) == sorted(sent)
    for key in KEYS:
        assert [message.number for message in read if message.key == key] == list(range(40))


async def test_offsets_of_a_partition_grow(house: BusHouse, server: BusServer, topic: str, group: str) -> None:
    await server.put(topic, numbered(KEYS, range(10)))
    member = await house.join(group, topic)
    await member.read_messages(80)
    offsets: dict[int, list[int]] = {}
    for record in member.records:
        offsets.setdefault(record.partition, []).append(record.offset)
    assert len(offsets) > 1
    assert all(each == sorted(set(each)) for each in offsets.values())


async def test_a_key_has_one_partition(house: BusHouse, server: BusServer, topic: str, group: str) -> None:
    await server.put(topic, numbered(KEYS, range(3)))
    member = await house.join(group, topic)
    await member.read_messages(24)
    bus = await house.open_bus()
    partitions = await bus.partition_count(topic)
    for record in member.records:
        assert record.topic == topic
        assert record.message.key is not None
        assert record.partition == bus.partition_of(record.message.key, partitions)


async def test_two_topics_are_read_together(house: BusHouse, server: BusServer, topic: str, group: str) -> None:
    other = server.new_topic()
    await server.put(topic, numbered("a", [1]))
    await server.put(other, numbered("a", [2]))
    member = await house.join(group, topic, other)
    read = await member.read_messages(2)
    assert {(record.topic, message.number) for record, message in zip(member.records, read, strict=True)} == {
        (topic, 1),
        (other, 2),
    }


async def test_a_read_has_at_most_the_limit(house: BusHouse, server: BusServer, topic: str, group: str) -> None:
    await server.put(topic, numbered(KEYS, range(10)))
    member = await house.join(group, topic)
    batches: list[list[BusRecord]] = []
    while sum(map(len, batches)) < 80:
        batches.append(list(await member.subscription.read(7, 5)))
    assert max(map(len, batches)) <= 7


@pytest.mark.timed
async def test_a_read_without_messages_ends_after_its_timeout(house: BusHouse, topic: str, group: str) -> None:
    member = await house.join(group, topic)
    for _ in range(4):  # also while the member joins
        async with asyncio.timeout(0.6):
            assert list(await member.subscription.read(10, 0.3)) == []
