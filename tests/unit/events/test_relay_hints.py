"""Hints while the bus is away: their number does not decide how often the outbox is read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.events.bus import BusUnreachable
from onthedot.stores.contract import RelayResult
from onthedot.stores.memory import MemoryStore
from tests.support.waits import every_chance, until
from tests.unit.events.relay_steps import TOPIC, LeasedMemoryStore, Setup, event, settled

OTHER = "shop.stock.events"
PUBLISHED = 100


class CountingOutbox:
    """An outbox that counts the turns of its relay."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.purge_events: Callable[..., Awaitable[int]] = store.purge_events
        self.turns = 0

    async def relay(self, *args: Any, **options: Any) -> RelayResult:
        self.turns += 1
        return await self._store.relay(*args, **options)


@pytest.fixture(params=[MemoryStore, LeasedMemoryStore], ids=["hints are never lost", "hints may be lost"])
def setup(request: pytest.FixtureRequest) -> Setup:
    """Lets a hint come with each publish."""
    clock = ManualClock()
    return Setup(request.param(clock), clock)


async def publish_slowly(setup: Setup, topic: str = TOPIC) -> list[str]:
    """One event after another; the relay can take a turn for each."""
    ids: list[str] = []
    for _ in range(PUBLISHED):
        ids += await setup.publish(event("k", topic))
        await every_chance()
    return ids


async def stick_partition(setup: Setup) -> asyncio.Event:
    """Its batch is answered when the event is set; others are answered at once."""
    stuck = setup.bus.gate
    stuck.clear()
    await setup.publish(event("k"))
    await until(lambda: any(setup.bus.in_flight.values()))
    setup.bus.gate = asyncio.Event()
    setup.bus.gate.set()
    return stuck


async def test_each_hint_is_followed_while_the_bus_answers(setup: Setup) -> None:
    """Otherwise the tests below would count nothing."""
    outbox = CountingOutbox(setup.store)
    async with setup.relay(outbox=outbox) as relay:
        await settled(relay)
        before = outbox.turns
        assert await publish_slowly(setup) == setup.bus.sent
        assert outbox.turns - before >= PUBLISHED


async def test_hints_cause_no_turns_while_a_batch_is_not_answered(setup: Setup) -> None:
    outbox = CountingOutbox(setup.store)
    setup.bus.gate.clear()
    async with setup.relay(outbox=outbox) as relay:
        first = await setup.publish(event("k"))
        await until(lambda: any(setup.bus.in_flight.values()))
        setup.clock.advance(600)
        await every_chance()
        before = outbox.turns
        waiting = await publish_slowly(setup)
        assert outbox.turns == before
        for second in range(3):
            setup.clock.advance(1_000)
            await every_chance()
            assert outbox.turns == before + 1 + second, "the poll goes on"
        setup.bus.gate.set()
        await settled(relay)
        assert setup.bus.sent == first + waiting


async def test_hints_cause_no_turns_while_the_bus_is_unreachable(setup: Setup) -> None:
    outbox = CountingOutbox(setup.store)
    setup.bus.unavailable[TOPIC] = BusUnreachable("no broker")
    async with setup.relay(outbox=outbox) as relay:
        first = await setup.publish(event("k"))
        await until(lambda: setup.observer.named("bus_failed"))
        await every_chance()
        before = outbox.turns
        waiting = await publish_slowly(setup)
        assert outbox.turns == before
        del setup.bus.unavailable[TOPIC]
        setup.clock.advance(1_200)
        await settled(relay)
        assert setup.bus.sent == first + waiting


async def test_answer_for_one_partition_lets_hints_through_again(setup: Setup) -> None:
    """Partitions without a leader must not delay the events of others."""
    outbox = CountingOutbox(setup.store)
    async with setup.relay(outbox=outbox) as relay:
        stuck = await stick_partition(setup)
        setup.clock.advance(600)
        waiting = await setup.publish(event("k", OTHER))
        setup.clock.advance(1_000)
        await until(lambda: setup.bus.sent == waiting)
        assert await publish_slowly(setup, OTHER) == setup.bus.sent[1:]
        stuck.set()
        await settled(relay)


async def test_hints_are_followed_while_one_partition_of_several_is_stuck(setup: Setup) -> None:
    """Also after a pause in which the others had nothing to send."""
    outbox = CountingOutbox(setup.store)
    async with setup.relay(outbox=outbox) as relay:
        stuck = await stick_partition(setup)
        setup.clock.advance(100)
        await setup.publish(event("k", OTHER))
        await until(lambda: len(setup.bus.sent) == 1)
        setup.clock.advance(700)
        await every_chance()
        before = outbox.turns
        await setup.publish(event("k", OTHER))
        await until(lambda: len(setup.bus.sent) == 2)
        assert outbox.turns > before
        stuck.set()
        await settled(relay)
