"""Peek reads all messages of a topic without a group, and ends."""

from __future__ import annotations

from tests.contract.bus import BusHouse, BusServer, numbered


async def test_peek_reads_all_messages_and_ends(house: BusHouse, server: BusServer, topic: str) -> None:
    sent = numbered("abcdef", range(200))
    await server.put(topic, sent)
    bus = await house.open_bus()
    read = [server.to_message(record) async for record in bus.peek(topic)]
    assert sorted(read) == sorted(sent)
    for key in "abcdef":
        assert [message.number for message in read if message.key == key] == list(range(200))


async def test_peek_at_an_empty_topic_ends(house: BusHouse, topic: str) -> None:
    bus = await house.open_bus()
    assert [record async for record in bus.peek(topic)] == []


async def test_peek_changes_nothing_for_a_group(house: BusHouse, server: BusServer, topic: str, group: str) -> None:
    await server.put(topic, numbered("a", range(3)))
    bus = await house.open_bus()
    assert len([record async for record in bus.peek(topic)]) == 3
    member = await house.join(group, topic)
    assert await member.read_messages(3) == numbered("a", range(3))


async def test_peek_can_be_left_early(house: BusHouse, server: BusServer, topic: str) -> None:
    await server.put(topic, numbered("a", range(3)))
    bus = await house.open_bus()
    records = bus.peek(topic)
    assert server.to_message(await anext(records)).number == 0
    await records.aclose()  # type: ignore[attr-defined]


async def test_peek_reads_all_topics_with_an_end(house: BusHouse, server: BusServer, topic: str) -> None:
    other = server.new_topic()
    await server.put(topic, numbered("a", range(3)))
    await server.put(other, numbered("b", range(3)))
    bus = await house.open_bus()
    own = [server.to_message(record) async for record in bus.peek(f"*{topic[1:]}")]
    assert own == numbered("a", range(3))
    ours = [record.topic async for record in bus.peek("*") if record.topic in (topic, other)]
    assert sorted(ours) == sorted([topic] * 3 + [other] * 3)
    assert [record async for record in bus.peek(f"*{topic}.none")] == []
