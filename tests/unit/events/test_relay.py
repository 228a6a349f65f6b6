"""The relay: what it sends in which order, what waits, and what it does when store or bus fail."""

from __future__ import annotations

import asyncio
import time

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreUnavailable
from onthedot.events.bus import BusUnreachable, TopicUnavailable
from onthedot.events.held_events import MAX_HELD_BYTES
from onthedot.stores.contract import MAX_READ_BYTES, Limit
from tests.support.waits import every_chance, until
from tests.unit.events.relay_steps import TOPIC, LeasedMemoryStore, Setup, TestBus, event, failing, settled

OTHER = "shop.stock.events"


async def test_published_events_are_sent_in_order_per_key() -> None:
    setup = Setup()
    ids = [f"{number:03}" for number in range(200)]
    await setup.publish(*[event(f"k{number % 7}", event_id=each) for number, each in enumerate(ids)])
    async with setup.relay() as relay:
        await settled(relay)
        assert sorted(setup.bus.sent) == ids
        for key in range(7):
            own = [each for each in setup.bus.sent if int(each) % 7 == key]
            assert own == sorted(own)
        assert set((await setup.statuses()).values()) == {"sent"}
        assert relay.event_count == 200
    assert setup.observer.named("relay_started") == [("a test",)]
    assert setup.observer.named("buckets_changed")[0] == (list(range(16)),)


async def test_new_event_is_sent_without_a_poll() -> None:
    setup = Setup()
    async with setup.relay() as relay:
        await settled(relay)
        (only,) = await setup.publish(event())
        await until(lambda: setup.bus.sent == [only])
        await until(lambda: relay.idle.is_set())
        assert await setup.statuses() == {only: "sent"}
    assert setup.clock.due_times() == [], "no timer is left, and none was needed"


async def test_one_batch_of_a_partition_is_in_flight() -> None:
    setup = Setup()
    setup.bus.gate.clear()
    async with setup.relay() as relay:
        for _ in range(5):
            await setup.publish(event("k"))
            await every_chance()
        assert [len(ids) for _, _, ids in setup.bus.batches] == []
        setup.bus.gate.set()
        await settled(relay)
        assert setup.bus.most_in_flight == 1
        assert [len(ids) for _, _, ids in setup.bus.batches] == [1, 4], "what came meanwhile goes as one batch"


async def test_batches_are_bounded_in_records_and_bytes() -> None:
    setup = Setup()
    setup.bus.partitions = 1
    await setup.publish(*[event("k") for _ in range(700)])
    await setup.publish(*[event("k", payload=b"x" * 200_000) for _ in range(5)])
    async with setup.relay() as relay:
        await settled(relay)
    sizes = [len(ids) for _, _, ids in setup.bus.batches]
    assert sum(sizes) == 705
    assert max(sizes) <= 500
    assert max(sizes[-2:]) <= 2, "two of 200 kB fit into 512 KiB"


async def test_relay_holds_a_bounded_number_of_events() -> None:
    setup = Setup()
    setup.bus.gate.clear()
    for topic in (TOPIC, OTHER, "a.b.events"):
        for _ in range(3):
            await setup.publish(*[event(f"k{number}", topic) for number in range(500)])
    async with setup.relay() as relay:
        await every_chance()
        assert len(relay.held) == 2_000
        assert relay.held.full_topics() == [TOPIC, OTHER], "one topic never takes all of it"
        setup.bus.gate.set()
        await settled(relay)
        assert len(setup.bus.sent) == 4_500


async def test_relay_holds_a_bounded_number_of_bytes() -> None:
    """The payloads are one object here; what counts is how many events it reads."""
    setup = Setup()
    setup.bus.gate.clear()
    payload = b"x" * 900_000
    await setup.publish(*[event(f"k{number}", payload=payload) for number in range(500)])
    async with setup.relay() as relay:
        await every_chance()
        assert MAX_HELD_BYTES <= relay.held.size < MAX_HELD_BYTES + MAX_READ_BYTES + len(payload)
        setup.bus.gate.set()
        await settled(relay)
        assert (len(setup.bus.sent), relay.held.size) == (500, 0)


async def test_refused_event_fails_alone_and_blocks_its_key() -> None:
    setup = Setup()
    setup.bus.partitions = 1
    setup.bus.refused = {"2"}
    await setup.publish(
        event("a", event_id="1"), event("b", event_id="2"), event("a", event_id="3"), event("b", event_id="4"),
        event("c", event_id="5"),
    )  # fmt: skip
    async with setup.relay() as relay:
        await settled(relay)
        assert setup.bus.sent == ["1", "3", "5"]
        await setup.publish(event("b", event_id="6"))
        await settled(relay)
        assert await setup.statuses() == {
            "1": "sent", "2": "failed", "3": "sent", "4": "pending", "5": "sent", "6": "pending",
        }  # fmt: skip
        assert setup.observer.named("event_refused") == [("2", "too large")]
        setup.bus.refused = set()
        await setup.store.amend_events(["2"], "retry")
        await settled(relay)
        assert setup.bus.sent[3:] == ["2", "4", "6"], "in their old order"


async def test_key_is_blocked_at_once_also_for_what_is_read_meanwhile() -> None:
    """The refusal arrives while a turn that does not know of it reads on."""
    setup = Setup()
    setup.bus.partitions = 1
    setup.bus.refused = {"1"}
    setup.bus.gate.clear()
    slow = SlowOutbox(setup)
    async with setup.relay(outbox=slow):
        await setup.publish(event("a", event_id="1"))
        await until(lambda: setup.bus.in_flight.get((TOPIC, 0)) == 1)
        slow.hold = True
        await setup.publish(event("a", event_id="2"), event("b", event_id="3"))
        await until(lambda: slow.held)
        setup.bus.gate.set()
        await until(lambda: setup.observer.named("event_refused"))
        slow.release()
        await until(lambda: "3" in setup.bus.sent)
        await every_chance()
        assert setup.bus.sent == ["3"]


class SlowOutbox:
    """An outbox whose answers to a relay can be held back."""

    def __init__(self, setup: Setup) -> None:
        self._store = setup.store
        self.hold = False
        self.held = False
        self._gate = asyncio.Event()

    def __getattr__(self, verb: str) -> object:
        return getattr(self._store, verb)

    async def relay(self, *args: object, **options: object) -> object:
        result = await self._store.relay(*args, **options)  # type: ignore[arg-type]
        if self.hold:
            self.held = True
            await self._gate.wait()
        return result

    def release(self) -> None:
        self.hold = False
        self._gate.set()


async def test_event_that_cannot_be_encoded_fails_alone() -> None:
    setup = Setup()
    await setup.publish(event("a", event_id="1", payload=b"unreadable"), event("b", event_id="2"))
    async with setup.relay() as relay:
        await settled(relay)
    assert await setup.statuses() == {"1": "failed", "2": "sent"}


async def test_unknown_topic_backs_off_and_others_continue() -> None:
    setup = Setup()
    setup.bus.unavailable[OTHER] = TopicUnavailable("no such topic")
    await setup.publish(event(topic=OTHER, event_id="1"), event(event_id="2"), event(topic=OTHER, event_id="3"))
    async with setup.relay() as relay:
        await settled(relay)
        assert setup.bus.sent == ["2"]
        pauses: list[float] = []
        for _ in range(8):
            ((_, seconds),) = setup.observer.named("topic_unavailable")
            setup.observer.calls.clear()
            pauses.append(seconds)
            setup.clock.advance(seconds * 1000)
            await settled(relay)
        for expected, seconds in zip((1, 2, 4, 8, 16, 32, 60, 60), pauses, strict=True):
            assert expected <= seconds <= expected * 1.1, "each with its jitter"
        del setup.bus.unavailable[OTHER]
        setup.clock.advance(70_000)
        await settled(relay)
        assert setup.bus.sent == ["2", "1", "3"]
        assert set((await setup.statuses()).values()) == {"sent"}


async def test_topic_that_fails_while_sending_backs_off_and_keeps_its_order() -> None:
    setup = Setup()
    setup.bus.partitions = 1
    setup.bus.send_errors[OTHER] = TopicUnavailable("no leader")
    await setup.publish(*[event(topic=OTHER, event_id=str(number)) for number in range(5)], event(event_id="x"))
    async with setup.relay() as relay:
        await settled(relay)
        assert setup.bus.sent == ["x"]
        await setup.publish(event(topic=OTHER, event_id="5"))
        await settled(relay)
        assert setup.bus.sent == ["x"]
        setup.bus.send_errors.clear()
        setup.clock.advance(1_200)
        await settled(relay)
        assert setup.bus.sent == ["x", "0", "1", "2", "3", "4", "5"]
        assert len(setup.observer.named("topic_unavailable")) == 1


async def test_unreachable_bus_is_asked_again_soon() -> None:
    setup = Setup()
    setup.bus.unavailable[TOPIC] = BusUnreachable("no broker")
    await setup.publish(event(event_id="1"))
    async with setup.relay() as relay:
        for _ in range(10):
            await settled(relay)
            setup.clock.advance(2_300)
        del setup.bus.unavailable[TOPIC]
        setup.clock.advance(2_300)
        await settled(relay)
        assert setup.bus.sent == ["1"]
        assert setup.observer.named("bus_failed")[0] == (f"finding {TOPIC}", "no broker")


async def test_bus_that_cannot_be_opened_is_opened_later() -> None:
    setup = Setup()
    setup.bus.open_errors = [BusUnreachable("refused"), BusUnreachable("refused")]
    await setup.publish(event(event_id="1"))
    async with setup.relay() as relay:
        await every_chance()
        assert await setup.store.sessions() == {}, "it owns no bucket that it could not serve"
        setup.clock.advance(100)
        await every_chance()
        setup.clock.advance(200)
        await settled(relay)
        assert setup.bus.sent == ["1"]
    assert len(setup.observer.named("bus_failed")) == 2
    assert setup.observer.named("bus_recovered") == [("connecting",)]


async def test_silent_bus_is_reported_until_it_answers() -> None:
    setup = Setup(LeasedMemoryStore(clock := ManualClock()), clock)
    setup.bus.gate.clear()
    await setup.publish(event())
    async with setup.relay() as relay:
        await until(lambda: setup.bus.in_flight.get((TOPIC, setup.bus.partition_of(b"k", 4))))
        for _ in range(7):
            await every_chance()
            clock.advance(1_000)
        await every_chance()
        silences = setup.observer.named("bus_failed")
        assert silences[0] == ("sending", "no answer for 5 s, and 1 events wait here")
        setup.bus.gate.set()
        await settled(relay)
        assert setup.observer.named("bus_recovered") == [("sending",)]


async def test_paused_topic_and_paused_outbox_wait() -> None:
    setup = Setup()
    await setup.store.put_limits([Limit(f"@outbox/{OTHER}", paused=True, owner="operator")])
    await setup.publish(event(event_id="1"), event(topic=OTHER, event_id="2"))
    async with setup.relay() as relay:
        await settled(relay)
        assert setup.bus.sent == ["1"]
        await setup.store.put_limits([Limit("@outbox", paused=True, owner="operator")])
        setup.clock.advance(1_000)
        await settled(relay)
        await setup.publish(event(event_id="3"))
        await settled(relay)
        assert setup.bus.sent == ["1"]
        await setup.store.put_limits([Limit("@outbox", owner="operator"), Limit(f"@outbox/{OTHER}", owner="operator")])
        setup.clock.advance(1_000)
        await until(lambda: sorted(setup.bus.sent) == ["1", "2", "3"])


async def test_pauses_are_read_only_while_there_is_something_to_send() -> None:
    reads: list[float] = []
    setup = Setup(LeasedMemoryStore(clock := ManualClock()), clock)

    async def read_limits() -> list[Limit]:
        reads.append(clock.now())
        return []

    async with setup.relay(read_limits=read_limits) as relay:
        for _ in range(10):
            await every_chance()
            clock.advance(1_000)
        assert reads == []
        for number in range(5):
            await setup.publish(event())
            await until(lambda: relay.event_count > number)  # noqa: B023 - it is called at once
        assert len(reads) == 1


async def test_relay_waits_for_a_store_that_cannot_be_reached() -> None:
    setup = Setup()
    await setup.publish(event(event_id="1"))
    outbox = SlowOutbox(setup)
    outbox.relay = failing(setup.store.relay, 3, StoreUnavailable("gone"))  # type: ignore[method-assign]
    async with setup.relay(outbox=outbox) as relay:
        for ms in (100, 200, 400):
            await every_chance()
            setup.clock.advance(ms)
        await settled(relay)
        assert setup.bus.sent == ["1"]
        assert len(setup.observer.named("store_failed")) == 3
        assert setup.observer.named("store_recovered") == [("the relay",)]


async def test_marks_are_written_when_the_store_is_back() -> None:
    setup = Setup()
    outbox = SlowOutbox(setup)
    async with setup.relay(outbox=outbox) as relay:
        await settled(relay)
        setup.bus.gate.clear()
        setup.bus.refused = {"2"}
        await setup.publish(event("a", event_id="1"), event("b", event_id="2"))
        await until(lambda: len([each for each in setup.bus.in_flight.values() if each]) == 2)
        outbox.relay = failing(setup.store.relay, 1, StoreUnavailable("gone"))  # type: ignore[method-assign]
        setup.bus.gate.set()
        await until(lambda: setup.observer.named("store_failed"))
        setup.clock.advance(100)
        await settled(relay)
        assert setup.bus.sent == ["1"]
        assert await setup.statuses() == {"1": "sent", "2": "failed"}


async def test_two_relays_share_the_buckets() -> None:
    setup = Setup()
    other = TestBus()
    async with setup.relay(), setup.relay(other):
        await until(lambda: len(setup.observer.named("buckets_changed")) >= 3)
        await every_chance()
        await setup.publish(*[event(f"k{number}", event_id=f"{number}") for number in range(100)])
        await until(lambda: len(setup.bus.sent) + len(other.sent) == 100)
        assert setup.bus.sent
        assert other.sent
        assert not set(setup.bus.sent) & set(other.sent)


async def test_relay_whose_session_is_over_goes_on_as_a_new_one() -> None:
    setup = Setup()
    session = setup.session()
    async with setup.relay(session=session) as relay:
        await settled(relay)
        first = session.id
        await setup.store.close_session(first, crashed=True)
        await setup.publish(event(event_id="1"))
        await settled(relay)
        assert setup.bus.sent == ["1"]
        assert session.id != first


async def test_batch_in_flight_is_not_sent_again_by_the_next_session() -> None:
    setup = Setup()
    session = setup.session()
    setup.bus.gate.clear()
    setup.bus.partitions = 1
    async with setup.relay(session=session) as relay:
        await setup.publish(event(event_id="1"))
        await until(lambda: setup.bus.in_flight.get((TOPIC, 0)) == 1)
        await setup.publish(event(event_id="2"))
        await until(lambda: len(relay.held) == 2)
        await setup.store.close_session(session.id, crashed=True)
        await setup.publish(event(event_id="3"))
        await every_chance()
        setup.bus.gate.set()
        await settled(relay)
        assert setup.bus.sent == ["1", "2", "3"]
        assert setup.bus.most_in_flight == 1


async def test_lease_of_a_blocked_relay_runs_out_and_another_takes_over() -> None:
    setup = Setup(LeasedMemoryStore(clock := ManualClock()), clock)
    blocked = setup.session()
    await blocked.ready()
    await setup.store.relay(blocked.id, (), {}, None)
    heartbeat = setup.store.heartbeat

    async def no_heartbeat(session: str, info: bytes, lease: int) -> object:
        if session == blocked.id:
            raise StoreUnavailable("cut off")
        return await heartbeat(session, info, lease)

    setup.store.heartbeat = no_heartbeat  # type: ignore[assignment,method-assign]
    await setup.publish(event(event_id="1"))
    async with setup.relay() as relay:
        for _ in range(6):
            await every_chance()
            clock.advance(1_000)
        await settled(relay)
        assert setup.bus.sent == ["1"]
        assert list(await setup.store.sessions()) != [blocked.id]
    await blocked.close()


@pytest.mark.parametrize("answers", [True, False])
async def test_stop_is_bounded(answers: bool) -> None:
    setup = Setup()
    setup.bus.gate.clear()
    relay = setup.new_relay()
    await relay.start()
    await setup.publish(event(event_id="1"))
    await until(lambda: any(setup.bus.in_flight.values()))
    began = time.monotonic()
    stopping = asyncio.create_task(relay.stop())
    await every_chance()
    if answers:
        setup.bus.gate.set()
    await stopping
    assert time.monotonic() - began < 2
    assert await setup.statuses() == {"1": "sent" if answers else "pending"}
    assert await setup.store.sessions() == {}


async def test_old_events_are_purged_about_once_per_minute() -> None:
    setup = Setup(LeasedMemoryStore(clock := ManualClock()), clock)
    purges: list[float] = []
    purge = setup.store.purge_events

    async def purge_events(limit: int, *, keep_sent: int, keep_arrivals: int) -> int:
        purges.append(clock.now())
        return await purge(limit, keep_sent=keep_sent, keep_arrivals=keep_arrivals)

    setup.store.purge_events = purge_events  # type: ignore[method-assign]
    async with setup.relay() as relay:
        await setup.publish(event(event_id="1"))
        await settled(relay)
        for _ in range(300):
            clock.advance(1_000)
            await every_chance()
        assert 4 <= len(purges) <= 6
        assert await setup.statuses() == {"1": "sent"}
        clock.advance(8 * 86_400_000)
        await every_chance()
        assert await setup.statuses() == {}
