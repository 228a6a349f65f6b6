"""A paused partition is not read, keeps its place, and others are read meanwhile."""

from __future__ import annotations

from onthedot.events.bus import TopicPartition
from tests.contract.bus import BusHouse, BusServer, Member, numbered, poll


async def joined(house: BusHouse, server: BusServer, topic: str, group: str) -> tuple[Member, str, str]:
    """A member, and two keys in different partitions, of which it has read the number 0."""
    member = await house.join(group, topic)
    bus = await house.open_bus()
    count = await bus.partition_count(topic)
    others = (key for key in "bcdefgh" if bus.partition_of(key.encode(), count) != bus.partition_of(b"a", count))
    other = next(others)
    await server.put(topic, numbered(["a", other], [0]))
    await member.read_messages(2)
    return member, "a", other


def place(member: Member, key: str) -> TopicPartition:
    pairs = zip(member.records, member.messages, strict=True)
    record = next(record for record, message in pairs if message.key == key)
    return TopicPartition(record.topic, record.partition)


async def test_paused_partition_is_read_after_resume(
    house: BusHouse, server: BusServer, topic: str, group: str
) -> None:
    member, paused, other = await joined(house, server, topic, group)
    member.subscription.pause([place(member, paused)])
    await server.put(topic, numbered([paused, other], [1, 2, 3]))
    await poll([member], lambda: len([each for each in member.messages if each.key == other]) == 4)
    for _ in range(5):
        await member.read()
    assert [each.number for each in member.messages if each.key == paused] == [0]
    member.subscription.resume([place(member, paused)])
    await member.read_messages(8)
    assert [each.number for each in member.messages if each.key == paused] == [0, 1, 2, 3]


async def test_messages_that_had_arrived_before_the_pause_are_kept(
    house: BusHouse, server: BusServer, topic: str, group: str
) -> None:
    member, paused, _ = await joined(house, server, topic, group)
    await server.put(topic, numbered([paused], range(1, 101)))
    while len(member.records) == 2:
        member.records += await member.subscription.read(1, 1)
    member.subscription.pause([place(member, paused)])
    before = len(member.records)
    assert before == 3
    for _ in range(5):
        await member.read()
    assert len(member.records) == before
    member.subscription.resume([place(member, paused)])
    await member.read_messages(102)
    assert [each.number for each in member.messages if each.key == paused] == list(range(101))


async def test_partitions_of_others_can_be_paused_without_effect(
    house: BusHouse, server: BusServer, topic: str, group: str
) -> None:
    member, key, _ = await joined(house, server, topic, group)
    member.subscription.pause([TopicPartition(server.new_topic(), 0)])
    member.subscription.resume([TopicPartition(server.new_topic(), 0), place(member, key)])
    await server.put(topic, numbered([key], [1]))
    await member.read_messages(3)
