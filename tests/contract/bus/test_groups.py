"""Groups: each reads everything, its members share the partitions, and what is committed is not read again."""

from __future__ import annotations

from onthedot.events.bus import TopicPartition
from tests.contract.bus import BusHouse, BusServer, numbered, poll

KEYS = "abcdefghijklmnop"


async def test_every_group_reads_every_message(house: BusHouse, server: BusServer, topic: str, group: str) -> None:
    sent = numbered(KEYS, range(3))
    await server.put(topic, sent)
    for name in (f"{group}-1", f"{group}-2"):
        member = await house.join(name, topic)
        assert sorted(await member.read_messages(len(sent))) == sorted(sent)


async def test_new_group_begins_with_the_oldest_message(
    house: BusHouse, server: BusServer, topic: str, group: str
) -> None:
    first = await house.join(f"{group}-1", topic)
    await server.put(topic, numbered("a", range(3)))
    await first.read_messages(3)
    await first.commit()
    second = await house.join(f"{group}-2", topic)
    await server.put(topic, numbered("a", [3]))
    assert await second.read_messages(4) == numbered("a", range(4))


async def test_next_member_begins_behind_what_was_committed(
    house: BusHouse, server: BusServer, topic: str, group: str
) -> None:
    await server.put(topic, numbered("a", range(10)))
    first = await house.join(group, topic)
    await first.read_messages(10)
    last = first.records[6]
    await first.subscription.commit({TopicPartition(topic, last.partition): last.offset})
    await house.leave(first)
    second = await house.join(group, topic)
    assert await second.read_messages(4) == numbered("a", range(6, 10))


async def test_without_a_commit_everything_is_read_again(
    house: BusHouse, server: BusServer, topic: str, group: str
) -> None:
    await server.put(topic, numbered("a", range(5)))
    for _ in range(2):
        member = await house.join(group, topic)
        assert await member.read_messages(5) == numbered("a", range(5))
        await house.leave(member)


async def test_two_members_share_the_partitions(house: BusHouse, server: BusServer, topic: str, group: str) -> None:
    first = await house.join(group, topic)
    second = await house.join(group, topic)
    await house.owners(first, second)
    sent = numbered(KEYS, range(5))
    await server.put(topic, sent)
    await poll([first, second], lambda: len(first.records) + len(second.records) >= len(sent))
    assert sorted(first.messages + second.messages) == sorted(sent)
    for member in (first, second):
        read = {TopicPartition(topic, record.partition) for record in member.records}
        assert read
        assert read <= await member.partitions()


async def test_callback_has_the_partitions_that_a_member_loses(
    house: BusHouse, server: BusServer, topic: str, group: str
) -> None:
    first = await house.join(group, topic)
    await server.put(topic, numbered(KEYS, [0]))
    await first.read_messages(len(KEYS))
    assert first.revoked == []
    second = await house.join(group, topic)
    await house.owners(first, second)
    assert await second.partitions() <= set(first.revoked)
    assert second.revoked == []


async def test_offsets_that_are_committed_when_partitions_are_revoked_are_kept(
    house: BusHouse, server: BusServer, topic: str, group: str
) -> None:
    first = await house.join(group, topic)
    await server.put(topic, numbered(KEYS, [0]))
    await first.read_messages(len(KEYS))
    first.commits_at_revoke = True
    second = await house.join(group, topic)
    await house.owners(first, second)
    await server.put(topic, numbered(KEYS, [1]))
    await poll([first, second], lambda: len(first.records) + len(second.records) >= 2 * len(KEYS))
    assert {message.number for message in second.messages} == {1}
    assert sorted(first.messages + second.messages) == sorted(numbered(KEYS, [0, 1]))


async def test_a_member_that_leaves_hands_its_partitions_over(
    house: BusHouse, server: BusServer, topic: str, group: str
) -> None:
    first = await house.join(group, topic)
    second = await house.join(group, topic)
    await house.owners(first, second)
    await house.leave(first)
    sent = numbered(KEYS, range(3))
    await server.put(topic, sent)
    await poll([second], lambda: set(second.messages) == set(sent))


async def test_only_offsets_of_own_partitions_are_committed(
    house: BusHouse, server: BusServer, topic: str, group: str
) -> None:
    sent = numbered(KEYS, range(3))
    await server.put(topic, sent)
    first = await house.join(group, topic)
    await first.read_messages(len(sent))
    second = await house.join(group, topic)
    await house.owners(first, second)
    of_second = await second.partitions()
    await first.commit()  # its records are of all partitions
    await house.leave(second)
    await house.leave(first)
    third = await house.join(group, topic)
    expected = {
        message
        for record, message in zip(first.records, first.messages, strict=True)
        if TopicPartition(record.topic, record.partition) in of_second
    }
    await poll([third], lambda: len(third.records) >= len(expected))
    await third.read()
    assert set(third.messages) == expected


async def test_lag_counts_what_is_not_committed(house: BusHouse, server: BusServer, topic: str, group: str) -> None:
    await server.put(topic, numbered("a", range(5)))
    member = await house.join(group, topic)
    await member.read_messages(5)
    (partition,) = {record.partition for record in member.records}
    place = TopicPartition(topic, partition)
    lag = await member.subscription.lag()
    assert lag[place] == 5
    assert sum(lag.values()) == 5
    await member.subscription.commit({place: member.records[3].offset})
    assert (await member.subscription.lag())[place] == 2
    await server.put(topic, numbered("a", [5]))
    assert (await member.subscription.lag())[place] == 3
