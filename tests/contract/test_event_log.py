"""The store as a bus: what relays send gets a position in the log of its bucket, which groups read and commit."""

from __future__ import annotations

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import BUCKETS, MAX_READ_BYTES, NewEvent, Store
from tests.contract.event_steps import TOPIC, Reader, Relay, event, key_in, outbox
from tests.contract.test_hints import Listener

DAY = 86_400_000


async def log(store: Store, relay: Relay, *events: NewEvent) -> None:
    """Publish and relay."""
    await relay.open()
    await outbox(store).publish(events)
    assert await relay.send_all() == [each.id for each in events]


async def test_readers_get_the_log_in_order(store: Store) -> None:
    relay = Relay(store, to_log=True)
    await log(store, relay, *[event("a", event_id=str(number)) for number in range(3)])
    reader = await Reader(store, "s1").open()
    page = await reader.page()
    assert [(each.event.id, each.position, each.status) for each in page.events] == [
        ("0", 1, "sent"), ("1", 2, "sent"), ("2", 3, "sent"),
    ]  # fmt: skip
    assert await reader.read() == []
    await log(store, relay, event("a", event_id="3"))
    assert await reader.read() == ["3"]


async def test_large_events_of_the_log_are_read_in_parts(store: Store) -> None:
    """Every bucket may have an equal part of the bytes; the event that reaches it is the last of its bucket."""
    relay = Relay(store, to_log=True)
    part = b'"%s"' % (b"x" * (MAX_READ_BYTES // BUCKETS // 2))
    large = [event(key_in(3), event_id=str(number), payload=part) for number in range(5)]
    await log(store, relay, *large, event(key_in(4), event_id="small"))
    reader = await Reader(store, "s1").open()
    assert [await reader.read() for _ in range(4)] == [["0", "1", "small"], ["2", "3"], ["4"], []]


async def test_pending_events_are_not_in_the_log(store: Store) -> None:
    reader = await Reader(store, "s1").open()
    await outbox(store).publish([event(event_id="1")])
    assert await reader.read() == []


async def test_position_is_given_in_the_order_of_sending(store: Store) -> None:
    relay = await Relay(store, to_log=True).open()
    await outbox(store).publish([event("a", "x.y.events", event_id="1"), event("a", event_id="2")])
    await relay.read()
    await relay.turn(sent=["2", "1"])
    reader = await Reader(store, "s1", topics=(TOPIC, "x.y.events")).open()
    assert await reader.read() == ["2", "1"]


async def test_event_that_is_sent_twice_keeps_its_position(store: Store, clock: ManualClock) -> None:
    first = await Relay(store, "r1", to_log=True).open(lease=5000)
    await outbox(store).publish([event("a", event_id="1"), event("a", event_id="2")])
    await first.read()
    clock.advance(6000)
    second = await Relay(store, "r2", to_log=True).open()
    await second.read()
    await second.turn(sent=["1", "2"])
    await first.turn(sent=["1", "2"])
    reader = await Reader(store, "s1").open()
    assert await reader.read() == ["1", "2"]


async def test_topics_of_others_are_passed_over(store: Store) -> None:
    relay = Relay(store, to_log=True)
    await log(store, relay, event("a", event_id="1"), event("a", "x.y.events", event_id="2"), event("a", event_id="3"))
    reader = await Reader(store, "s1", topics=("x.y.events",)).open()
    page = await reader.page()
    assert [each.event.id for each in page.events] == ["2"]
    assert page.buckets[page.events[0].event.bucket] == 3, "it has read to the end"


async def test_limit_of_a_page_is_shared_by_buckets(store: Store) -> None:
    relay = Relay(store, to_log=True)
    keys = [key_in(bucket) for bucket in range(BUCKETS)]
    events = [event(key, event_id=f"{key}-{number}") for key in keys for number in range(3)]
    await log(store, relay, *events)
    reader = await Reader(store, "s1").open()
    assert await reader.read(limit=32) == [f"{key}-{number}" for key in keys for number in range(2)]
    assert await reader.read(limit=32) == [f"{key}-2" for key in keys]


async def test_group_reads_on_from_its_committed_position(store: Store) -> None:
    relay = Relay(store, to_log=True)
    await log(store, relay, *[event("a", event_id=str(number)) for number in range(4)])
    reader = await Reader(store, "s1").open()
    await reader.read()
    bucket = event("a").bucket
    await reader.commit({bucket: 2})
    await reader.commit({bucket: 1})
    await store.close_session("s1")
    assert await (await Reader(store, "s2").open()).read() == ["2", "3"]
    assert await (await Reader(store, "s3", group="other").open()).read() == ["0", "1", "2", "3"]


async def test_members_share_the_buckets_and_a_stale_one_commits_nothing(store: Store) -> None:
    relay = Relay(store, to_log=True)
    keys = [key_in(bucket) for bucket in range(BUCKETS)]
    await log(store, relay, *[event(key, event_id=key) for key in keys])
    first = await Reader(store, "s1").open()
    second = await Reader(store, "s2").open()
    assert await first.read() == keys
    old = dict(first.positions)
    assert await second.read() == [], "all are owned"
    assert await first.read() == []
    assert await first.read() == []
    assert sorted(first.positions) == list(range(8))
    assert await second.read() == keys[8:]
    await first.commit(old)
    await second.commit({})
    await store.close_session("s2")
    assert await first.read() == keys[8:], "what the second had not committed"


async def test_bucket_that_is_to_be_given_back_can_be_committed_once_more(store: Store) -> None:
    relay = Relay(store, to_log=True)
    keys = [key_in(bucket) for bucket in range(BUCKETS)]
    await log(store, relay, *[event(key, event_id=key) for key in keys])
    first = await Reader(store, "s1").open()
    second = await Reader(store, "s2").open()
    await first.read()
    old = dict(first.positions)
    await second.read()
    await first.read()
    assert sorted(first.positions) == list(range(8)), "the others are missing, and still its own"
    assert await second.read() == []
    await first.commit(old)
    await first.read()
    assert await second.read() == [], "all was done"
    assert sorted(second.positions) == list(range(8, 16))


async def test_unread_counts_by_topic_and_bucket(store: Store) -> None:
    relay = Relay(store, to_log=True)
    other = "x.y.events"
    await log(
        store, relay, event("a", event_id="1"), event("a", event_id="2"), event("a", other, event_id="3"),
        event(key_in(4), event_id="4"),
    )  # fmt: skip
    reader = await Reader(store, "s1").open()
    await reader.read()
    bucket = event("a").bucket
    assert bucket != 4
    await reader.commit({bucket: 1})
    counts = await outbox(store).unread("g", (TOPIC,))
    assert sorted((each.topic, each.bucket, each.count) for each in counts) == sorted(
        [(TOPIC, bucket, 1), (TOPIC, 4, 1)]
    )
    every = await outbox(store).unread("new", (TOPIC, other))
    assert sum(each.count for each in every) == 4


async def test_dead_reader_loses_its_buckets(store: Store, clock: ManualClock) -> None:
    relay = Relay(store, to_log=True)
    await log(store, relay, event("a", event_id="1"))
    first = await Reader(store, "s1").open(lease=5000)
    second = await Reader(store, "s2").open()
    assert await first.read() == ["1"]
    assert await second.read() == []
    clock.advance(6000)
    assert await second.read() == ["1"]
    assert not (await first.page()).alive


async def test_readers_get_a_hint(store: Store) -> None:
    relay = Relay(store, to_log=True)
    reader = await Reader(store, "s1").open()
    await reader.read()
    listener = Listener(store, "s1")
    await listener.connected()
    await log(store, relay, event())
    await listener.hears(lambda hint: hint.events)
    assert len(await reader.read()) == 1
    await listener.leave()


async def test_lag_of_a_group(store: Store) -> None:
    relay = Relay(store, to_log=True)
    await log(store, relay, *[event("a", event_id=str(number)) for number in range(3)])
    reader = await Reader(store, "s1").open()
    await reader.read()
    await reader.commit({event("a").bucket: 2})
    assert dict((await outbox(store).outbox_state()).lag) == {"g": 1}


async def test_log_goes_on_after_a_purge(store: Store, clock: ManualClock) -> None:
    relay = Relay(store, to_log=True)
    await relay.open(lease=30 * DAY)
    await outbox(store).publish([event("a", event_id="1"), event("a", event_id="2")])
    await relay.send_all()
    clock.advance(8 * DAY)
    assert await outbox(store).purge_events(100, keep_sent=7 * DAY, keep_arrivals=0) == 2
    await outbox(store).publish([event("a", event_id="3")])
    await relay.send_all()
    page = await (await Reader(store, "s1").open()).page()
    assert [(each.event.id, each.position) for each in page.events] == [("3", 3)]
