"""A subscription makes tasks of records and commits offsets after their ends. The test drives clock and bus."""

from __future__ import annotations

import pytest

from onthedot.errors import StoreUnavailable
from onthedot.events.bus import BusMessage, BusUnreachable, TopicPartition
from onthedot.events.received_records import task_uuid
from tests.unit.events.subscription_steps import TOPIC, new_member, running

P0 = TopicPartition(TOPIC, 0)
P1 = TopicPartition(TOPIC, 1)


async def test_event_becomes_a_task_and_its_offset_is_committed_after_the_end() -> None:
    member = new_member()
    async with running(member):
        assert member.bus.groups == [("shop.mailer", (TOPIC,))]
        member.send("e0")
        await member.quiet()
        assert await member.begin() == ["e0"]
        await member.advance(5000)
        assert member.offset() is None
        await member.end("e0")
        await member.quiet()
        assert member.offset() is None, "it is committed with others"
        await member.advance(1000)
        assert member.offset() == 1


async def test_twenty_ends_are_committed_at_once() -> None:
    member = new_member()
    async with running(member):
        for number in range(20):
            member.send(f"e{number}", key=str(number))
        await member.quiet()
        await member.begin()
        await member.end(*(f"e{number}" for number in range(19)))
        await member.quiet()
        assert member.offset() is None
        await member.end("e19")
        await member.quiet()
        assert member.offset() == 20


async def test_offset_never_passes_an_open_event() -> None:
    member = new_member()
    async with running(member):
        for number in range(4):
            member.send(f"e{number}", key=str(number))
        await member.settle()
        await member.begin()
        await member.end("e1", "e2", "e3")
        await member.settle()
        assert member.subscription.commits == []
        await member.end("e0")
        await member.settle()
        assert member.offset() == 4


async def test_events_of_a_key_run_one_after_another_through_retries() -> None:
    member = new_member()
    async with running(member):
        for event in ("e0", "e1"):
            member.send(event, key="a")
        member.send("e2", key="b")
        await member.settle()
        assert await member.begin() == ["e0", "e2"]
        for _ in range(3):
            await member.worker.settle(member.worker.retry(task_uuid("mailer", "e0"), after=500))
            await member.advance(499)
            assert await member.begin() == []
            await member.advance(1)
            assert await member.begin() == ["e0"]
        await member.end("e0")
        await member.quiet()
        assert await member.begin() == ["e1"]


async def test_without_order_events_of_a_key_run_at_once() -> None:
    member = new_member(ordered=False)
    async with running(member):
        member.send("e0")
        member.send("e1")
        await member.settle()
        assert await member.begin() == ["e0", "e1"]


async def test_failed_and_cancelled_events_are_ends_too() -> None:
    member = new_member(ordered=False)
    async with running(member):
        member.send("e0")
        member.send("e1")
        await member.settle()
        await member.begin()
        worker = member.worker
        await worker.settle(worker.failed(task_uuid("mailer", "e0")), worker.cancelled(task_uuid("mailer", "e1")))
        await member.settle()
        assert member.offset() == 2


async def test_other_types_are_skipped_and_their_payload_is_not_decoded() -> None:
    member = new_member()
    async with running(member):
        member.bus.append(BusMessage(b"k", b"\xff not json", (("ce_type", b"Shop.Order.Paid"), ("ce_id", b"e0"))))
        await member.quiet()
        await member.advance(1000)
        assert member.offset() == 1
        assert member.observer.counts == {"skipped": 1}
        assert await member.begin() == []


async def test_undecodable_record_becomes_a_task() -> None:
    member = new_member()
    async with running(member):
        headers = (("ce_type", b"Shop.Order.Placed"), ("content-type", b"application/cloudevents+json"))
        member.bus.append(BusMessage(None, b"\xff", headers))
        await member.settle()
        assert await member.begin() == [f"{TOPIC}/0/0"]


async def test_copies_make_one_task() -> None:
    member = new_member()
    async with running(member):
        member.send("e0")
        member.send("e0")
        member.send("e0", key="other", partition=1)
        await member.settle()
        assert await member.begin() == ["e0"]
        await member.end("e0")
        await member.settle()
        assert (member.offset(), member.offset(1)) == (2, 1)
        member.send("e0")
        await member.settle()
        assert await member.begin() == []
        assert member.offset() == 3
        assert member.observer.counts["duplicate"] == 2


async def test_batch_with_copies_inside_goes_on() -> None:
    member = new_member(ordered=False)
    async with running(member):
        for number in range(500):
            member.send(f"e{number // 2}", key=str(number))
        await member.settle()
        begun = await member.begin()
        assert len(begun) == len(set(begun)) == 250
        await member.end(*begun)
        await member.settle()
        assert member.offset() == 500


async def test_at_most_200_tasks_are_added_per_call() -> None:
    member = new_member()
    async with running(member):
        for number in range(450):
            member.send(f"e{number}", key=str(number))
        await member.settle()
        assert member.store.adds == [200, 200, 50]


# -- in flight


async def test_partitions_are_paused_while_the_limit_is_reached_and_reads_go_on() -> None:
    member = new_member(max_in_flight=10)
    async with running(member):
        for number in range(30):
            member.send(f"e{number}", key=str(number))
        await member.settle()
        begun = await member.begin()
        assert len(begun) == member.component.in_flight == 10
        assert member.subscription.paused == {P0}
        reads = member.subscription.reads
        for _ in range(3):
            await member.advance(1000)
        assert member.subscription.reads >= reads + 3
        while begun:
            await member.end(*begun)
            await member.settle()
            assert member.component.in_flight <= 10
            begun = await member.begin()
        assert member.offset() == 30
        assert member.subscription.paused == set()


async def test_one_key_pauses_its_own_partition_only() -> None:
    member = new_member(max_in_flight=10)
    async with running(member):
        for number in range(8):
            member.send(f"e{number}", key="a")
        member.send("e8", key="b", partition=1)
        await member.settle()
        assert member.component.in_flight == 6
        assert member.subscription.paused == {P0}
        assert sorted(await member.begin()) == ["e0", "e8"]


# -- ends without hints


async def test_end_whose_hint_is_lost_is_found_within_a_second() -> None:
    member = new_member()
    async with running(member):
        member.send("e0")
        await member.settle()
        await member.begin()
        member.store.loses_hints = True
        await member.end("e0")
        await member.advance(999)
        assert member.component.in_flight == 1
        await member.advance(1)
        assert member.component.in_flight == 0


async def test_oldest_500_open_tasks_are_read_per_second() -> None:
    member = new_member(max_in_flight=2000)
    async with running(member):
        for number in range(1200):
            member.send(f"e{number}", key=str(number))
        await member.settle()
        member.store.reads.clear()
        for _ in range(4):
            await member.advance(1000)
        assert member.store.reads == [500, 500, 200, 500]


async def test_nothing_is_read_while_nothing_is_open() -> None:
    member = new_member()
    async with running(member):
        member.store.reads.clear()
        for _ in range(10):
            await member.advance(1000)
        assert member.store.reads == []


# -- the store cannot be reached


async def test_offsets_stay_and_partitions_are_paused_while_the_store_is_away() -> None:
    member = new_member()
    async with running(member):
        member.store.is_down = True
        for number in range(5):
            member.send(f"e{number}", key=str(number))
        member.send("other", ce_type="Shop.Order.Paid")
        await member.quiet()
        for _ in range(20):
            await member.advance(1000)
        assert member.subscription.paused == {P0}
        assert member.offset() is None
        assert "the agent mailer" in member.observer.failures
        member.store.is_down = False
        for _ in range(30):
            await member.advance(1000)
        begun = await member.begin()
        assert begun == [f"e{number}" for number in range(5)]
        assert member.subscription.paused == set()
        assert "the agent mailer" in member.observer.recovered
        await member.end(*begun)
        await member.settle()
        assert member.offset() == 6


async def test_add_whose_answer_was_lost_makes_no_second_task(monkeypatch: pytest.MonkeyPatch) -> None:
    member = new_member()
    async with running(member):
        add = member.store.add
        calls = 0

        async def lost(tasks, deadline=None):  # type: ignore[no-untyped-def]
            nonlocal calls
            calls += 1
            answer = await add(tasks, deadline)
            if calls == 1:
                raise StoreUnavailable("lost")
            return answer

        monkeypatch.setattr(member.store, "add", lost)
        member.send("e0")
        member.send("e1", key="b")
        await member.quiet()
        for _ in range(5):
            await member.advance(1000)
        assert sorted(await member.begin()) == ["e0", "e1"]
        await member.end("e0", "e1")
        await member.settle()
        assert member.offset() == 2


# -- the bus cannot be reached


async def test_reading_goes_on_after_the_bus_was_away() -> None:
    member = new_member()
    async with running(member):
        member.subscription.errors += [BusUnreachable("no broker"), BusUnreachable("no broker")]
        member.send("e0")
        await member.quiet()
        for _ in range(5):
            await member.advance(1000)
        assert await member.begin() == ["e0"]
        assert member.observer.failures == ["reading for agent mailer"] * 2
        assert member.observer.recovered == ["reading for agent mailer"]


async def test_member_leaves_its_group_also_if_the_last_commit_fails() -> None:
    member = new_member()
    async with running(member):
        member.send("e0")
        await member.settle()
        await member.begin()
        member.subscription.commit_errors += [BusUnreachable("no broker")] * 10
        await member.end("e0")
    assert member.subscription.is_closed


async def test_commit_is_repeated_after_the_bus_was_away() -> None:
    member = new_member()
    async with running(member):
        member.send("e0")
        await member.settle()
        await member.begin()
        member.subscription.commit_errors.append(BusUnreachable("no broker"))
        await member.end("e0")
        await member.quiet()
        await member.advance(1000)
        assert member.offset() is None
        await member.advance(1000)
        assert member.offset() == 1


async def test_subscription_waits_for_the_bus() -> None:
    member = new_member()
    member.bus.subscribe_errors += [BusUnreachable("no broker")]
    await member.component.start()
    await member.quiet()
    assert member.bus.subscriptions == []
    await member.advance(1000)
    member.send("e0")
    await member.settle()
    assert await member.begin() == ["e0"]
    await member.component.stop()
