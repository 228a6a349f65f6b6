"""The outbox as an operator sees it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from onthedot import App, StoreRefused
from onthedot.clock.manual import ManualClock
from onthedot.events import Event
from onthedot.operations import Operations
from onthedot.operations.move import Move
from onthedot.operations.outbox import OutboxStatus, PurgeInfo
from onthedot.operations.outbox_health import check_outbox
from onthedot.stores.contract import HandleRecord, NewEvent, RelayRequest
from onthedot.stores.memory import MemoryStore
from tests.support.app_stores import AppStore, open_store
from tests.support.services import valkey
from tests.support.waits import until
from tests.unit.events.relay_steps import TOPIC, LeasedMemoryStore, Setup, event, settled

OTHER = "shop.stock.events"


def operations(setup: Setup) -> Operations:
    return Operations(setup.store, "client", setup.clock)


async def failed(setup: Setup, *events: str) -> None:
    """Publishes events that the bus has refused."""
    await setup.publish(*[event(each, event_id=each) for each in events])
    await setup.store.heartbeat("r", b"{}", 10_000)
    result = await setup.store.relay("r", (), {}, RelayRequest())
    await setup.store.relay("r", (), {stored.seq: "too large" for stored in result.events}, None)
    await setup.store.close_session("r")


async def test_status_of_topics_and_relays() -> None:
    setup = Setup(LeasedMemoryStore(clock := ManualClock()), clock)
    setup.bus.refused = {"2"}
    async with setup.relay() as relay:
        await setup.publish(event("a", event_id="1"), event("b", event_id="2"), event("b", event_id="3"))
        await settled(relay)
        for _ in range(61):
            clock.advance(1_000)
            await settled(relay)
        await setup.publish(event("c", OTHER))
        found = await operations(setup).outbox.status()
    waiting, stuck = found.topics
    assert (stuck.topic, stuck.pending, stuck.failed, stuck.blocked_keys, stuck.error) == (OTHER, 1, 0, 0, "")
    assert (waiting.topic, waiting.pending, waiting.failed, waiting.blocked_keys) == (TOPIC, 1, 1, 1)
    assert (waiting.error, waiting.sent_per_minute) == ("too large", 1)
    assert (found.pending, found.failed) == (2, 1)
    (only,) = found.relays
    assert only.buckets == tuple(range(16))
    assert only.pid > 0


async def test_rate_of_a_minute_ago_is_not_shown() -> None:
    setup = Setup(LeasedMemoryStore(clock := ManualClock()), clock)
    async with setup.relay() as relay:
        await setup.publish(event())
        for _ in range(61):
            await settled(relay)
            clock.advance(1_000)
        await settled(relay)
        ((topic),) = (await operations(setup).outbox.status()).topics
        assert topic.sent_per_minute == 1
        for _ in range(61):
            clock.advance(1_000)
            await settled(relay)
        assert (await operations(setup).outbox.status()).topics == ()


async def test_failed_events_are_retried_or_discarded() -> None:
    setup = Setup()
    await failed(setup, "abc-1", "abd-2", "x")
    outbox = operations(setup).outbox
    assert await outbox.complete_ids(["abc", "2", "ab", "nope"]) == ["abc-1", "abd-2", "ab", "nope"]
    assert await outbox.retry("abc-1", "nope") == ["abc-1"]
    assert await outbox.discard("abd-2", reason="by hand") == ["abd-2"]
    found = {info.id: (info.status, info.error) for info in await outbox.events()}
    assert found == {"abc-1": ("pending", ""), "abd-2": ("discarded", "by hand"), "x": ("failed", "too large")}
    assert [info.id for info in await outbox.events(status="failed")] == ["x"]
    assert [info.id for info in await outbox.events(key="abd-2")] == ["abd-2"]
    (second,) = await outbox.events(after=1, limit=1)
    assert (second.id, second.number, second.attempts) == ("abd-2", 2, 1)


async def test_pause_is_seen_by_relays_and_by_no_list_of_sources() -> None:
    setup = Setup()
    verbs = operations(setup)
    assert not await verbs.outbox.pause(OTHER, "deploy")
    assert await verbs.outbox.pause(OTHER)
    assert not await verbs.outbox.pause()
    assert await verbs.sources() == []
    assert await verbs.limits.list() == []
    await setup.publish(event())
    async with setup.relay() as relay:
        await settled(relay)
        assert setup.bus.sent == []
        assert await verbs.outbox.resume()
        assert not await verbs.outbox.resume()
        setup.clock.advance(1_000)
        await until(lambda: setup.bus.sent)
    found = await verbs.outbox.status()
    assert found.paused is None
    assert [each.topic for each in found.topics if each.paused is not None] == [OTHER]


async def test_store_without_an_outbox_says_which_has_one() -> None:
    app = App("shop", store=valkey.url())
    try:
        with pytest.raises(StoreRefused, match=r"Events\(outbox="):
            await app.operations.outbox.status()
        found = await app.runtime.portal.run(lambda client: client.operations.outbox.find_status())
        assert found is None
        assert check_outbox(found) == []
    finally:
        app.shutdown()


async def test_operations_of_an_app() -> None:
    app = App("shop", store="memory://")
    await app.publish(Event("Shop.Order.Placed", {}, aggregate_id="1", id="e1"))
    assert [info.id for info in await app.operations.outbox.events(topic=TOPIC)] == ["e1"]
    assert await app.operations.outbox.retry("e1") == []
    assert await app.operations.outbox.discard("e1") == []
    assert not await app.operations.outbox.pause(TOPIC)
    assert await app.operations.outbox.resume(TOPIC)
    assert (await app.operations.outbox.status()).pending == 1
    outbox = app.sync.operations.outbox
    assert [info.id for info in outbox.events()] == ["e1"]
    assert (outbox.retry("e1"), outbox.discard("e1")) == ([], [])
    assert (outbox.pause(), outbox.resume()) == (False, True)
    assert outbox.status().pending == 1


# -- doctor


async def checked(setup: Setup) -> list[tuple[bool, str]]:
    status = await operations(setup).outbox.status()
    return [(check.ok, check.text) for check in check_outbox(status, setup.clock.moment())]


async def test_unused_outbox_is_not_mentioned() -> None:
    assert check_outbox(OutboxStatus()) == []
    assert await checked(Setup()) == []


async def test_old_events_without_a_relay_are_a_problem() -> None:
    setup = Setup()
    await setup.publish(event(event_id="1"))
    (check,) = check_outbox(await operations(setup).outbox.status(), setup.clock.moment())
    assert not check.ok, "it occurred in 1970"
    assert "no relay is alive" in check.text
    assert "onthedot outbox relay" in check.remedy


async def test_failed_and_paused_events_are_named() -> None:
    setup = Setup()
    await failed(setup, "1", "2")
    ((ok, text),) = await checked(setup)
    assert (ok, text) == (False, f"2 events of {TOPIC} failed, 2 keys blocked: too large")
    await operations(setup).outbox.pause(TOPIC, "deploy")
    (paused, _) = await checked(setup)
    assert paused[0]
    assert paused[1].startswith(f"{TOPIC} paused")
    setup.clock.advance(timedelta(hours=2).total_seconds() * 1000)
    (paused, _) = await checked(setup)
    assert not paused[0]


async def test_live_relay_and_nothing_unsent_is_fine() -> None:
    setup = Setup()
    async with setup.relay() as relay:
        await settled(relay)
        assert await checked(setup) == [(True, "0 unsent, 1 relay")]


async def test_old_events_in_spite_of_a_relay_are_a_problem() -> None:
    setup = Setup()
    setup.bus.gate.clear()
    async with setup.relay():
        await setup.publish(event())
        await until(lambda: any(setup.bus.in_flight.values()))
        ((ok, text),) = await checked(setup)
        assert not ok
        assert "although 1 relay is alive" in text


# -- move


async def test_move_refuses_while_events_are_unsent_or_handles_are_open() -> None:
    setup = Setup()
    target = MemoryStore(setup.clock)
    await failed(setup, "1")
    await setup.publish(event(event_id="2"))
    await setup.store.create_handle(HandleRecord("h", "c", ((("Done",), 1),), "signal", 60_000))
    with pytest.raises(StoreRefused, match="2 events are unsent and 1 resume handle is open here"):
        await Move(setup.store, target, "there").run()
    await setup.store.amend_events(["1"], "discard")
    async with setup.relay() as relay:
        await settled(relay)
    with pytest.raises(StoreRefused, match="0 events are unsent and 1 resume handle"):
        await Move(setup.store, target, "there").run()
    setup.clock.advance(60_001)
    assert (await Move(setup.store, target, "there").run()).tasks == 0


async def test_purge_marks_what_another_program_has_sent_and_deletes_it_later() -> None:
    setup = Setup()
    verbs = operations(setup)
    await failed(setup, "refused")
    await setup.publish(*[_occurred_now(setup, f"e{number}") for number in range(3)])
    setup.clock.advance(3_600_000)
    await setup.publish(_occurred_now(setup, "young"))
    hour = timedelta(hours=1)
    week = timedelta(days=7)
    assert await verbs.outbox.purge_sent_by_others(hour, week) == PurgeInfo(marked=3, deleted=0)
    assert await verbs.outbox.purge_sent_by_others(hour, week) == PurgeInfo(marked=0, deleted=0)
    found = {info.id: info.status for info in await verbs.outbox.events()}
    assert found == {"refused": "failed", "e0": "sent", "e1": "sent", "e2": "sent", "young": "pending"}
    setup.clock.advance(7 * 86_400_000 + 1)
    assert await verbs.outbox.purge_sent_by_others(hour, week) == PurgeInfo(marked=1, deleted=3)
    assert {info.id: info.status for info in await verbs.outbox.events()} == {"refused": "failed", "young": "sent"}


async def test_purge_is_refused_while_a_relay_is_alive() -> None:
    setup = Setup(LeasedMemoryStore(clock := ManualClock()), clock)
    async with setup.relay() as relay:
        await settled(relay)
        with pytest.raises(StoreRefused, match=r"a relay is alive .*--without relay"):
            await operations(setup).outbox.purge_sent_by_others(timedelta(), timedelta())


@pytest.mark.once
@pytest.mark.parametrize("outbox_store", ["sqlite", "postgres"], indirect=True)
async def test_purge_on_stores_that_several_processes_share(outbox_store: AppStore) -> None:
    """Events that were marked are not sent by a relay that starts later."""
    app = App(outbox_store.name, store=outbox_store.url)
    none = timedelta()

    async def purge() -> PurgeInfo:
        portal = app.runtime.outbox_portal
        return await portal.run(lambda client: client.operations.outbox.purge_sent_by_others(none, timedelta(days=7)))

    async with app:
        await app.publish(*[Event("Shop.Order.Placed", {}, aggregate_id="1", id=f"e{n}") for n in range(3)])
        assert await purge() == PurgeInfo(marked=3, deleted=0)
        before = [(info.id, info.sent_at) for info in await app.operations.outbox.events()]
    async with app.running():
        await app.publish(Event("Shop.Order.Placed", {}, aggregate_id="1", id="e3"))

        async def is_sent() -> bool:
            return {info.status for info in await app.operations.outbox.events()} == {"sent"}

        await until(is_sent)
        with pytest.raises(StoreRefused, match="a relay is alive"):
            await purge()
        assert [(info.id, info.sent_at) for info in await app.operations.outbox.events()][:3] == before
    app.runtime.close()


@pytest.fixture
def outbox_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AppStore]:
    yield from open_store(request, tmp_path)


def _occurred_now(setup: Setup, event_id: str) -> NewEvent:
    return replace(event(event_id, event_id=event_id), occurred_at=int(setup.clock.now()))
