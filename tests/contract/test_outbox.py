"""The outbox: events are kept until a relay has sent them, in order per key."""

from __future__ import annotations

from math import floor

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import (
    BUCKETS,
    MAX_READ_BYTES,
    Completed,
    Effects,
    Ended,
    NewEvent,
    OutboxEvent,
    Outcome,
    RelayRequest,
    Requeued,
    Store,
    Suspended,
    Wait,
)
from tests.contract.event_steps import TOPIC, Relay, event, key_in, outbox
from tests.contract.steps import Worker, add, task, tasks
from tests.contract.test_hints import Listener

DAY = 86_400_000


async def publish(store: Store, *events: NewEvent) -> list[bool]:
    return list(await outbox(store).publish(events))


async def stored(store: Store, event_id: str) -> OutboxEvent:
    (found,) = await outbox(store).find_events({"id": event_id}, 0, 10)
    return found


async def test_relay_gets_what_was_published_in_order(store: Store) -> None:
    relay = await Relay(store).open()
    assert await publish(store, event("a", event_id="1"), event("b", event_id="2")) == [True, True]
    assert await publish(store, event("a", event_id="3")) == [True]
    assert await relay.read() == ["1", "2", "3"]
    assert await relay.read() == [], "they are in flight"
    assert await relay.read(sent=["1", "2", "3"]) == []
    assert (await stored(store, "1")).status == "sent"


async def test_every_column_is_kept(store: Store, clock: ManualClock) -> None:
    relay = await Relay(store).open()
    full = NewEvent(
        "id-1", "a.b.events", "ключ", 7, "Shop.Order.Placed", 3, "ShopOrder", "o-1", "c-1", "p-1", 2,
        1_700_000_000_123, b'{"n":1,"text":"\\u00e9"}', None, b'{"ce_source":"/shop"}',
    )  # fmt: skip
    raw = NewEvent("id-2", "a.b.events.DLT", "k", 8, raw=b"\x00\xff not JSON")
    await publish(store, full, raw)
    first, second = (await relay.turn()).events
    assert (first.event, second.event) == (full, raw)
    assert (first.status, first.attempts, first.error, first.sent_at, first.position) == ("pending", 0, "", None, None)
    await relay.turn(sent=["id-1"])
    assert (await stored(store, "id-1")).sent_at == floor(clock.now())
    assert (await stored(store, "id-1")).event == full


async def test_first_event_of_an_id_stays(store: Store) -> None:
    relay = await Relay(store).open()
    assert await publish(store, event(event_id="1", payload=b"1"), event(event_id="1", payload=b"2")) == [True, False]
    assert await publish(store, event("other", event_id="1", payload=b"3")) == [False]
    (only,) = (await relay.turn()).events
    assert only.event.payload == b"1"
    await relay.turn(sent=["1"])
    assert await publish(store, event(event_id="1")) == [False], "a sent one is known, too"


async def test_limit_of_a_turn(store: Store) -> None:
    relay = await Relay(store).open()
    await publish(store, *[event(event_id=str(number)) for number in range(5)])
    result = await relay.turn(limit=2)
    assert ([each.event.id for each in result.events], result.more) == (["0", "1"], True)
    result = await relay.turn(limit=4)
    assert ([each.event.id for each in result.events], result.more) == (["2", "3", "4"], False)


async def test_large_events_are_read_in_parts(store: Store) -> None:
    """However many a relay asks for: the event that reaches the limit in bytes is the last."""
    relay = await Relay(store).open()
    large = b'"%s"' % (b"x" * (MAX_READ_BYTES // 3))
    payloads = [large, b"1", large, large, b"2", large]
    for number, payload in enumerate(payloads):
        await publish(store, event(f"k{number}", event_id=str(number), payload=payload, headers=b"{}"))
    result = await relay.turn()
    assert ([each.event.id for each in result.events], result.more) == (["0", "1", "2", "3"], True)
    result = await relay.turn()
    assert ([each.event.id for each in result.events], result.more) == (["4", "5"], False)


async def test_refused_event_blocks_its_key_in_its_topic(store: Store) -> None:
    relay = await Relay(store).open()
    await publish(store, event("a", event_id="1"), event("b", event_id="2"))
    await relay.read()
    await publish(
        store, event("a", event_id="3"), event("a", "other.topic.events", event_id="4"), event("b", event_id="5")
    )
    assert await relay.read(refused={"1": "too large"}, sent=["2"]) == ["4", "5"]
    failed = await stored(store, "1")
    assert (failed.status, failed.error, failed.attempts) == ("failed", "too large", 1)
    assert await publish(store, event("a", event_id="1")) == [False]


async def test_operator_retries_or_discards_failed_events(store: Store, clock: ManualClock) -> None:
    relay = await Relay(store).open()
    await publish(store, event("a", event_id="1"), event("a", event_id="2"), event("b", event_id="3"))
    await relay.read()
    await relay.turn(refused={"1": "no", "3": "no"})
    relay.in_flight.clear()
    assert await outbox(store).amend_events(["2", "unknown"], "discard") == [], "only failed ones are amended"
    assert await outbox(store).amend_events(["1", "1"], "retry") == ["1"]
    assert await relay.read() == ["1", "2"], "in their old order"
    assert (await stored(store, "1")).attempts == 1
    assert await outbox(store).amend_events(["3"], "discard") == ["3"]
    assert await relay.read() == []
    gone = await stored(store, "3")
    assert (gone.status, gone.sent_at, gone.error) == ("discarded", floor(clock.now()), "no")
    await relay.turn(refused={"1": "no"})
    assert await outbox(store).amend_events(["1"], "discard", "sent by hand") == ["1"]
    assert (await stored(store, "1")).error == "sent by hand"


async def test_events_behind_a_failed_one_wait_and_go_on_in_order(store: Store) -> None:
    """They are pending all the time, also those that a relay has set aside."""
    relay = await Relay(store).open()
    await publish(store, *(event("a", event_id=f"a{number}") for number in range(6)), event("b", event_id="b0"))
    await relay.read(limit=2)
    assert await relay.read(refused={"a1": "no"}, sent=["a0"]) == ["b0"]
    await publish(store, event("a", event_id="a6"), event("b", event_id="b1"))
    assert await relay.read() == ["b1"]
    assert await relay.read() == []
    waiting = await outbox(store).find_events({"status": "pending", "key": "a"}, 0, 10)
    assert [each.event.id for each in waiting] == ["a2", "a3", "a4", "a5", "a6"]
    (state,) = (await outbox(store).outbox_state()).topics
    assert (state.pending, state.failed, state.blocked_keys) == (7, 1, 1)
    await outbox(store).amend_events(["a1"], "retry")
    assert await relay.read(limit=3) == ["a1", "a2", "a3"]
    assert await relay.read(refused={"a2": "no", "a1": "no"}) == []
    await outbox(store).amend_events(["a1"], "retry")
    assert await relay.read() == [], "another one of the key has failed"
    await outbox(store).amend_events(["a2"], "discard")
    await publish(store, event("a", event_id="a7"))
    assert await relay.read() == ["a1", "a4", "a5", "a6", "a7"]


async def test_failed_event_that_was_sent_frees_its_key(store: Store) -> None:
    """A relay that has lost its buckets may have sent it."""
    relay = await Relay(store).open()
    late = Relay(store, "late")
    await publish(store, event("a", event_id="1"), event("a", event_id="2"))
    await relay.read(limit=1)
    late.in_flight.update(relay.in_flight)
    assert await relay.read(refused={"1": "no"}) == []
    await late.turn(sent=["1"])
    assert await relay.read() == ["2"]


async def test_event_that_waits_may_have_been_sent_or_refused(store: Store) -> None:
    relay = await Relay(store).open()
    await publish(store, *(event("a", event_id=str(number)) for number in range(4)))
    await relay.read()
    await relay.turn(refused={"0": "no"})
    await relay.turn(sent=["1"], refused={"2": "no"})
    found = await outbox(store).find_events({}, 0, 10)
    assert [each.status for each in found] == ["failed", "sent", "failed", "pending"]
    relay.in_flight.clear()
    assert await outbox(store).amend_events(["0", "2"], "retry") == ["0", "2"]
    assert await relay.read() == ["0", "2", "3"]


async def test_topics_can_be_skipped(store: Store) -> None:
    relay = await Relay(store).open()
    relay.skip_topics = ("slow.topic.events",)
    await publish(store, event(topic="slow.topic.events", event_id="1"), event(event_id="2"))
    assert await relay.read() == ["2"]
    relay.skip_topics = ()
    assert await relay.read() == ["1"]


async def test_one_relay_owns_all_buckets_and_two_share_them(store: Store) -> None:
    first = await Relay(store, "r1").open()
    second = await Relay(store, "r2").open()
    assert list((await first.turn()).buckets) == list(range(BUCKETS))
    assert list((await second.turn()).buckets) == []
    assert list((await first.turn()).buckets) == list(range(8))
    assert list((await second.turn()).buckets) == list(range(8, 16))
    keys = [key_in(bucket) for bucket in range(BUCKETS)]
    await publish(store, *[event(key, event_id=key) for key in keys])
    assert await first.read() == keys[:8]
    assert await second.read() == keys[8:]


async def test_busy_bucket_is_given_back_after_its_events_are_sent(store: Store) -> None:
    first = await Relay(store, "r1").open()
    second = await Relay(store, "r2").open()
    low = key_in(0)
    high = key_in(15)
    await publish(store, event(high, event_id="1"), event(low, event_id="2"))
    assert await first.read() == ["1", "2"]
    assert list((await second.turn()).buckets) == []
    await publish(store, event(high, event_id="3"), event(low, event_id="4"))
    result = await first.turn()
    assert [each.event.id for each in result.events] == ["4"], "it drains the bucket that it will give back"
    assert list(result.buckets) == [*range(8), 15]
    assert list((await second.turn()).buckets) == list(range(8, 15))
    await first.turn(sent=["1"])
    assert await second.read() == ["3"]


async def test_buckets_of_a_closed_or_dead_relay_are_taken(store: Store, clock: ManualClock) -> None:
    first = await Relay(store, "r1").open(lease=5000)
    second = await Relay(store, "r2").open()
    await first.turn()
    assert list((await second.turn()).buckets) == []
    clock.advance(5001)
    assert list((await second.turn()).buckets) == list(range(BUCKETS))
    assert not (await first.turn()).alive
    third = await Relay(store, "r3").open()
    await third.turn()
    await store.close_session("r2")
    assert list((await third.turn()).buckets) == list(range(BUCKETS))


async def test_seventeenth_relay_owns_nothing(store: Store) -> None:
    relays = [await Relay(store, f"r{number:02}").open() for number in range(17)]
    for _ in range(3):
        owned = [list((await relay.turn()).buckets) for relay in relays]
    assert sorted(bucket for buckets in owned for bucket in buckets) == list(range(BUCKETS))
    assert sorted(map(len, owned)) == [0, *[1] * 16]


async def test_marks_of_a_dead_relay_are_accepted(store: Store, clock: ManualClock) -> None:
    first = await Relay(store, "r1").open(lease=5000)
    await publish(store, event(event_id="1"), event(event_id="2"))
    assert await first.read() == ["1", "2"]
    clock.advance(6000)
    second = await Relay(store, "r2").open()
    assert await second.read() == ["1", "2"], "copies"
    assert not (await first.turn(sent=["1"], refused={"2": "late"})).alive
    assert (await stored(store, "1")).status == "sent"
    assert (await stored(store, "2")).status == "failed"
    await second.turn(sent=["1", "2"])
    assert (await stored(store, "2")).status == "sent", "it is on the bus, although another relay was refused"


async def test_relay_without_a_session_gets_nothing(store: Store) -> None:
    await publish(store, event(event_id="1"))
    result = await outbox(store).relay("unknown", [], {}, RelayRequest())
    assert (result.alive, list(result.events)) == (False, [])
    assert not (await outbox(store).relay("unknown", [], {}, None)).alive


async def test_turn_without_a_request_only_marks(store: Store) -> None:
    relay = await Relay(store).open()
    await publish(store, event(event_id="1"))
    await relay.read()
    result = await outbox(store).relay("r1", list(relay.in_flight), {}, None)
    assert (result.alive, list(result.events), list(result.buckets)) == (True, [], [])
    assert (await stored(store, "1")).status == "sent"


@pytest.mark.parametrize("kind", ["completed", "requeued", "ended", "suspended"])
async def test_outcome_publishes(store: Store, worker: Worker, kind: str) -> None:
    await worker.heartbeat()
    relay = await Relay(store).open()
    await add(store, task())
    (uuid,) = await worker.runs()
    lease = worker.done(uuid).lease
    effects = Effects(events=(event(event_id="1"), event(event_id="2")))
    outcomes: dict[str, Outcome] = {
        "completed": Completed(lease, effects=effects),
        "requeued": Requeued(lease, 1000, counted=True, effects=effects),
        "ended": Ended(lease, "failed", b"{}", effects=effects),
        "suspended": Suspended(lease, Wait((("~never", 1),)), effects=effects),
    }
    assert await worker.settle(outcomes[kind]) == ["ok"]
    assert await worker.settle(outcomes[kind]) == ["repeat"]
    assert await relay.read() == ["1", "2"]


async def test_outcome_with_tasks_and_events(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    relay = await Relay(store).open()
    await add(store, *tasks(3))
    outcomes = [
        Completed(
            worker.done(uuid).lease,
            effects=Effects((task(uuid=f"next-{number}"),), (event(f"k{number}", event_id=str(number)),)),
        )
        for number, uuid in enumerate(await worker.runs())
    ]
    assert await worker.settle(*outcomes) == ["ok"] * 3
    assert sorted(await relay.read()) == ["0", "1", "2"]
    assert sorted(await worker.runs()) == ["next-0", "next-1", "next-2"]


async def test_lost_outcome_publishes_nothing(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    relay = await Relay(store).open()
    await add(store, task())
    (uuid,) = await worker.runs()
    lease = worker.done(uuid).lease
    await store.close_session(worker.name)
    other = Worker(store, "w2")
    await other.heartbeat()
    await other.runs()
    assert await worker.settle(Completed(lease, effects=Effects(events=(event(event_id="1"),)))) == ["lost"]
    assert await relay.read() == []


@pytest.mark.parametrize("kind", ["published", "settled", "amended", "freed"])
async def test_relays_get_a_hint(store: Store, worker: Worker, kind: str) -> None:
    await worker.heartbeat()
    other = await Relay(store, "r0").open()
    relay = await Relay(store).open()
    await publish(store, event(key_in(0), event_id="1"))
    await other.read()
    await other.turn(refused={"1": "no"})
    await relay.turn()
    await add(store, task())
    (uuid,) = await worker.runs()
    listener = Listener(store, relay.name)
    await listener.connected()
    match kind:
        case "published":
            await publish(store, event())
        case "settled":
            await worker.settle(Completed(worker.done(uuid).lease, effects=Effects(events=(event(),))))
        case "amended":
            await outbox(store).amend_events(["1"], "retry")
        case _:
            await store.close_session("r0")
    await listener.hears(lambda hint: hint.events)
    await listener.leave()


async def test_events_are_found_by_their_fields(store: Store) -> None:
    await publish(
        store,
        event("a", event_id="1", correlation_id="c1"),
        event("a", "other.topic.events", event_id="2", correlation_id="c1"),
        event("b", event_id="3", correlation_id="c2"),
    )

    async def found(after: int = 0, limit: int = 10, **where: str) -> list[str]:
        return [each.event.id for each in await outbox(store).find_events(where, after, limit)]

    assert await found() == ["1", "2", "3"]
    assert await found(topic=TOPIC) == ["1", "3"]
    assert await found(topic=f"*{TOPIC[3:]}") == ["1", "3"]
    assert await found(topic="*") == ["1", "2", "3"]
    assert await found(topic=f"*x{TOPIC}") == await found(topic="*.DLT") == []
    assert await found(correlation="c1") == ["1", "2"]
    assert await found(key="a", topic=TOPIC) == ["1"]
    assert await found(status="sent") == []
    assert await found(limit=2) == ["1", "2"]
    assert await found(after=(await stored(store, "2")).seq) == ["3"]


async def test_state_of_the_outbox(store: Store) -> None:
    relay = await Relay(store).open()
    await publish(
        store,
        event("a", event_id="1", occurred_at=500),
        event("a", event_id="2", occurred_at=400),
        event("b", event_id="3", occurred_at=300),
        event("b", "other.topic.events", event_id="4", occurred_at=200),
    )
    await relay.read()
    await relay.turn(refused={"3": "too large"}, sent=["1"])
    state = await outbox(store).outbox_state()
    other, shop = state.topics
    assert (other.topic, other.pending, other.oldest, other.failed) == ("other.topic.events", 1, 200, 0)
    assert (shop.topic, shop.pending, shop.oldest, shop.failed) == (TOPIC, 1, 400, 1)
    assert (shop.blocked_keys, shop.error) == (1, "too large")
    assert dict(state.owners[""]) == dict.fromkeys(range(BUCKETS), "r1")


async def test_sent_and_discarded_events_are_purged_after_their_time(store: Store, clock: ManualClock) -> None:
    relay = await Relay(store).open(lease=30 * DAY)
    await publish(store, *[event(str(number), event_id=str(number)) for number in range(6)])
    await relay.read()
    await relay.turn(sent=["0", "1", "2"], refused={"3": "no", "4": "no"})
    await outbox(store).amend_events(["3"], "discard")
    clock.advance(7 * DAY - 1)
    assert await outbox(store).purge_events(100, keep_sent=7 * DAY, keep_arrivals=3600_000) == 0
    clock.advance(1000)
    assert await outbox(store).purge_events(2, keep_sent=7 * DAY, keep_arrivals=3600_000) == 2
    assert await outbox(store).purge_events(100, keep_sent=7 * DAY, keep_arrivals=3600_000) == 2
    left = await outbox(store).find_events({}, 0, 10)
    assert [(each.event.id, each.status) for each in left] == [("4", "failed"), ("5", "pending")]
    assert await publish(store, event(event_id="0")) == [True], "a purged id is forgotten"
