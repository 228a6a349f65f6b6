"""The store as a bus: what is particular to it. The conformance suite of buses has the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from math import inf

from onthedot.events.bus import BusMessage, BusRecord, TopicPartition
from onthedot.events.component_session import SessionPool
from onthedot.events.store_bus import StoreBus
from onthedot.events.store_subscription import StoreSubscription
from onthedot.stores.contract import OutboxEvent
from tests.support.waits import every_chance
from tests.unit.events.relay_steps import TOPIC, Setup, event, to_message

OTHER = "shop.stock.events"


class StoreSetup(Setup):
    """A store that is the bus of its own outbox."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: SessionPool = SessionPool(lambda: self.session("subscriptions"))
        self.store_bus: StoreBus = StoreBus(self.store, self.sessions, self.clock, to_message, polls=False)
        self.revoked: list[TopicPartition] = []

    async def send(self, *events: str, topic: str = TOPIC) -> None:
        """Publishes events with these ids, all with the key "k", and marks them."""
        await self.publish(*[event(topic=topic, event_id=each) for each in events])
        pending = await self.store.find_events({"status": "pending"}, 0, 1_000)
        await self.store.relay("r", [stored.seq for stored in pending], {}, None, to_log=True)

    async def subscribe(self, *topics: str, group: str = "g") -> StoreSubscription:
        return await self.store_bus.subscribe(group, topics or (TOPIC,), self.on_revoked)

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.revoked += partitions


@asynccontextmanager
async def store_setup() -> AsyncGenerator[StoreSetup, None]:
    setup = StoreSetup()
    yield setup
    await setup.store_bus.close()
    assert await setup.store.sessions() == {}


def ids(records: Collection[BusRecord]) -> list[str]:
    return [record.message.value.decode() for record in records]


def place(record: BusRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


async def test_record_has_bucket_and_position() -> None:
    async with store_setup() as setup:
        subscription = await setup.subscribe()
        await setup.send("1", "2")
        first, second = await subscription.read(10, 0)
        assert (first.topic, first.partition) == (TOPIC, setup.store_bus.partition_of(b"k", 16))
        assert (first.offset, second.offset) == (1, 2)


async def test_subscriptions_of_different_groups_share_a_session() -> None:
    async with store_setup() as setup:
        subscriptions = [await setup.subscribe(group=group) for group in ("a", "b", "c")]
        member = await setup.subscribe(group="a")
        for each in (*subscriptions, member):
            await each.read(10, 0)
        assert len(await setup.store.sessions()) == 2, "one per member of a group"


async def test_member_that_leaves_a_shared_session_gives_its_buckets_to_others() -> None:
    async with store_setup() as setup:
        leaving = await setup.subscribe(group="a")
        staying = await setup.subscribe(group="b")
        other = await setup.subscribe(group="a")
        await setup.send("1")
        assert ids(await leaving.read(10, 0)) == ["1"]
        assert ids(await staying.read(10, 0)) == ["1"]
        await other.read(10, 0)
        await leaving.close()
        assert ids(await staying.read(10, 0)) == ["1"], "it has a new session, and had not committed"
        assert ids(await other.read(10, 0)) == ["1"]


async def test_position_moves_after_all_topics_of_a_bucket_are_done() -> None:
    async with store_setup() as setup:
        subscription = await setup.subscribe(TOPIC, OTHER)
        await setup.send("1")
        await setup.send("2", topic=OTHER)
        await setup.send("3")
        records = {record.message.value.decode(): record for record in await subscription.read(10, 0)}
        await subscription.commit({place(records["3"]): 4})
        assert await lag(setup) == 2, "2 is not done"
        await subscription.commit({place(records["2"]): 3})
        assert await lag(setup) == 0


async def lag(setup: StoreSetup, group: str = "g") -> int:
    """Events of the log that the group has not committed."""
    return (await setup.store.outbox_state()).lag[group]


async def test_other_topics_of_the_log_are_passed_over() -> None:
    async with store_setup() as setup:
        subscription = await setup.subscribe()
        for start in range(0, 1_500, 500):
            await setup.send(*[str(start + number) for number in range(500)], topic=OTHER)
        assert await subscription.read(10, 0) == []
        assert await lag(setup) == 0


async def test_idle_group_has_no_lag_of_other_topics() -> None:
    async with store_setup() as setup:
        subscription = await setup.subscribe()
        await setup.send("1", "2", topic=OTHER)
        assert await subscription.read(10, 0) == []
        assert await lag(setup) == 2, "not one commit per event"
        setup.clock.advance(5_000)
        assert await subscription.read(10, 0) == []
        assert await lag(setup) == 0


async def test_commit_of_a_lost_bucket_is_ignored() -> None:
    async with store_setup() as setup:
        first = await setup.subscribe()
        await setup.send("1")
        (record,) = await first.read(10, 0)
        await setup.store.close_session(next(iter(await setup.store.sessions())), crashed=True)
        await first.commit({place(record): 2})
        assert await lag(setup) == 1
        assert ids(await first.read(10, 0)) == ["1"]
        assert place(record) in setup.revoked


async def test_paused_partition_of_one_topic_does_not_hold_back_another() -> None:
    async with store_setup() as setup:
        subscription = await setup.subscribe(TOPIC, OTHER)
        await subscription.read(10, 0)
        bucket = setup.store_bus.partition_of(b"k", 16)
        subscription.pause([TopicPartition(TOPIC, bucket)])
        await setup.send("1")
        await setup.send("2", topic=OTHER)
        assert ids(await subscription.read(10, 0)) == ["2"]
        subscription.resume([TopicPartition(TOPIC, bucket)])
        assert ids(await subscription.read(10, 0)) == ["1"]


async def test_paused_partition_is_read_up_to_a_bound() -> None:
    async with store_setup() as setup:
        subscription = await setup.subscribe()
        await subscription.read(10, 0)
        bucket = setup.store_bus.partition_of(b"k", 16)
        subscription.pause([TopicPartition(TOPIC, bucket)])
        for start in range(0, 3_000, 500):
            await setup.send(*[str(start + number) for number in range(500)])
        for _ in range(100):
            assert await subscription.read(10, 0) == []
        assert 1_000 <= subscription.buffered < 1_100
        subscription.resume([TopicPartition(TOPIC, bucket)])
        read: list[str] = []
        while records := await subscription.read(700, 0):
            read += ids(records)
        assert read == [str(number) for number in range(3_000)]


async def test_read_waits_for_a_hint() -> None:
    async with store_setup() as setup:
        subscription = await setup.subscribe()
        reading = asyncio.create_task(subscription.read(10, inf))
        await every_chance()
        assert not reading.done()
        await setup.send("1")
        assert ids(await reading) == ["1"]
        assert setup.clock.due_times() == [], "without a poll"


async def test_read_is_fair_to_partitions() -> None:
    async with store_setup() as setup:
        subscription = await setup.subscribe()
        await setup.publish(*[event("k", event_id=f"k{number}") for number in range(100)], event("b", event_id="b"))
        pending = await setup.store.find_events({"status": "pending"}, 0, 1_000)
        await setup.store.relay("r", [stored.seq for stored in pending], {}, None, to_log=True)
        assert "b" in ids(await subscription.read(10, 0))


async def test_peek_reads_what_is_in_the_log() -> None:
    async with store_setup() as setup:
        await setup.send("1", "2")
        await setup.send("3", topic=OTHER)
        await setup.publish(event(event_id="unsent"))
        assert [record.message.value async for record in setup.store_bus.peek(TOPIC)] == [b"1", b"2"]


async def test_close_ends_a_read() -> None:
    async with store_setup() as setup:
        subscription = await setup.subscribe()
        reading = asyncio.create_task(subscription.read(10, inf))
        await every_chance()
        await subscription.close()
        assert await reading == ()


async def test_long_log_of_one_bucket_is_read_without_further_hints() -> None:
    async with store_setup() as setup:
        bus = StoreBus(setup.store, setup.sessions, setup.clock, to_message, polls=True)
        sent = [str(number) for number in range(400)]
        await setup.send(*sent)
        subscription = await bus.subscribe("g", (TOPIC,), setup.on_revoked)
        read: list[str] = []
        async with asyncio.timeout(5):
            while len(read) < len(sent):
                read += ids(await subscription.read(100, 1))
        assert read == sent
        await bus.close()


async def test_records_that_wait_are_bounded_in_bytes() -> None:
    async with store_setup() as setup:

        def with_payload(stored: OutboxEvent) -> BusMessage:
            return BusMessage(b"k", stored.event.payload or b"")

        bus = StoreBus(setup.store, setup.sessions, setup.clock, with_payload, polls=True)
        subscription = await bus.subscribe("g", (TOPIC,), setup.on_revoked)
        partition = TopicPartition(TOPIC, bus.partition_of(b"k", 16))
        await subscription.read(1, 0)
        subscription.pause([partition])
        payloads = [b"%03d" % number + b"x" * 900_000 for number in range(40)]
        await setup.publish(*[event(event_id=str(at), payload=each) for at, each in enumerate(payloads)])
        await setup.send()
        while subscription.buffered < 2:
            assert await subscription.read(100, 0.05) == []
        assert await subscription.read(100, 0.05) == []
        assert subscription.buffered == 2, "the second reaches 1 MiB"
        subscription.resume([partition])
        read: list[bytes] = []
        async with asyncio.timeout(5):
            while len(read) < len(payloads):
                read += [record.message.value for record in await subscription.read(500, 1)]
        assert read == payloads
        await bus.close()


async def test_bucket_that_was_full_is_read_on_after_it_is_resumed() -> None:
    async with store_setup() as setup:
        bus = StoreBus(setup.store, setup.sessions, setup.clock, to_message, polls=True)
        subscription = await bus.subscribe("g", (TOPIC,), setup.on_revoked)
        partition = TopicPartition(TOPIC, bus.partition_of(b"k", 16))
        await subscription.read(1, 0)
        subscription.pause([partition])
        sent = [str(number) for number in range(1_500)]
        for start in (0, 500, 1_000):
            await setup.send(*sent[start : start + 500])
        while subscription.buffered < 1_000:
            assert await subscription.read(100, 0.05) == []
        assert subscription.buffered < 1_100, "no more than a bound"
        subscription.resume([partition])
        read: list[str] = []
        async with asyncio.timeout(5):
            while len(read) < len(sent):
                read += ids(await subscription.read(500, 1))
        assert read == sent
        await bus.close()
