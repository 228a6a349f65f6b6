"""A subscription that loses partitions, is frozen, or stops. The test drives clock and bus."""

from __future__ import annotations

import asyncio

from onthedot.events.bus import TopicPartition
from onthedot.stores.contract import Limit
from tests.unit.events.subscription_steps import TOPIC, Member, new_member, running

P0 = TopicPartition(TOPIC, 0)
P1 = TopicPartition(TOPIC, 1)


async def test_revoke_commits_what_has_ended_and_does_not_wait_for_the_rest() -> None:
    member = new_member()
    async with running(member):
        for number in range(4):
            member.send(f"e{number}", key=str(number), partition=number % 2)
        await member.settle()
        await member.begin()
        await member.end("e0", "e1", "e3")
        await member.quiet()
        assert member.subscription.committed == {}
        await member.subscription.revoke(P0)
        assert member.subscription.committed == {P0: 1}
        assert member.component.in_flight == 0
        await member.settle()
        assert member.subscription.committed == {P0: 1, P1: 2}


async def test_new_owner_finds_the_tasks_and_keeps_the_order() -> None:
    old = new_member()
    new = Member(old.bus, old.store)
    async with running(old):
        for event in ("e0", "e1", "e2"):
            old.send(event, key="a")
        old.send("e3", key="b")
        await old.settle()
        assert await old.begin() == ["e0", "e3"]
        await old.end("e3")
        await old.quiet()
        await old.subscription.revoke(P0)
        assert old.offset() is None
        old.bus.subscriptions.clear()
        async with running(new):
            old.bus.offsets[P0] = 0
            for event in ("e0", "e1", "e2"):
                new.send(event, key="a")
            new.send("e3", key="b")
            await new.settle()
            assert await new.begin() == []
            await old.end("e0")  # it runs where it began
            await new.advance(1000)
            assert await new.begin() == ["e1"]
            await old.settle()
            assert not await new.exists("e2"), "the old owner adds nothing"
            await new.end("e1")
            await new.quiet()
            assert await new.begin() == ["e2"]
            await new.end("e2")
            await new.settle()
            assert new.offset() == 4


async def test_partition_that_comes_back_is_read_again() -> None:
    member = new_member()
    async with running(member):
        member.send("e0")
        await member.settle()
        await member.begin()
        await member.subscription.revoke(P0)
        member.bus.offsets[P0] = 0
        member.send("e0")
        await member.settle()
        assert await member.begin() == []
        await member.end("e0")
        await member.settle()
        assert member.offset() == 1


# -- freeze


async def test_frozen_agent_receives_nothing_and_its_open_tasks_end() -> None:
    member = new_member()
    async with running(member):
        member.send("e0", key="a")
        await member.settle()
        await member.begin()
        await member.store.put_limits([Limit("agent.mailer", owner="operator", mode="frozen")])
        await member.advance(1000)
        member.send("e1", key="b")
        await member.settle()
        assert await member.begin() == []
        assert member.subscription.paused == {P0}
        await member.end("e0")
        await member.settle()
        assert member.offset() == 1
        await member.store.put_limits([Limit("agent.mailer", owner="operator")])
        for _ in range(3):
            await member.advance(1000)
        assert await member.begin() == ["e1"]
        assert member.subscription.paused == set()


# -- stop


async def test_stop_commits_what_has_ended_and_leaves_the_group() -> None:
    member = new_member()
    async with running(member):
        for number in range(3):
            member.send(f"e{number}", key=str(number))
        await member.settle()
        await member.begin()
        await member.end("e0", "e2")
        await member.quiet()
        assert member.offset() is None
    assert member.offset() == 1
    assert member.subscription.is_closed


async def test_stop_does_not_wait_for_a_store_that_is_away() -> None:
    member = new_member()
    async with asyncio.timeout(5):
        async with running(member):
            member.store.is_down = True
            member.send("e0")
            await member.quiet()
    assert member.offset() is None
    assert not await member.exists("e0")
