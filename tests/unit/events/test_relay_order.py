"""The relay keeps the order of a key and sends the others, also if a turn is late or an event cannot be encoded."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import RelayResult
from tests.support.waits import SOON, until
from tests.unit.events.relay_steps import TOPIC, Setup, event, settled


async def test_late_turn_does_not_overtake_events_that_were_given_back() -> None:
    setup = Setup()
    relay_verb = setup.store.relay
    is_late = False
    has_read = asyncio.Event()
    answers = asyncio.Event()

    class LateAnswers:
        def __getattr__(self, name: str) -> Any:
            return getattr(setup.store, name)

        async def relay(self, *args: Any, **options: Any) -> RelayResult:
            nonlocal is_late
            result = await relay_verb(*args, **options)
            if is_late and result.events:
                is_late = False
                has_read.set()
                await answers.wait()
            return result

    async with setup.relay(outbox=cast("Outbox", LateAnswers())) as relay:
        await setup.publish(event(event_id="first"))
        await settled(relay)
        setup.bus.gate.clear()
        await setup.publish(event(event_id="a"))
        await until(lambda: any(setup.bus.in_flight.values()))
        is_late = True
        await setup.publish(event(event_id="b"))
        await asyncio.wait_for(has_read.wait(), SOON)
        setup.bus.send_errors[TOPIC] = OSError("the broker restarts")
        setup.bus.gate.set()
        await until(lambda: not relay.held)
        setup.bus.send_errors.clear()
        setup.clock.advance(1_200)  # longer than the backoff of the topic
        answers.set()
        await until(lambda: not is_late)
        setup.clock.advance(2_000)
        await settled(relay)
    assert setup.bus.sent == ["first", "a", "b"]


async def test_event_that_the_store_bus_cannot_encode_fails_alone() -> None:
    setup = Setup()
    setup.bus.to_log = True
    await setup.publish(event("a", event_id="1", payload=b"unreadable"), event("b", event_id="2"))
    async with setup.relay() as relay:
        await settled(relay)
    assert await setup.statuses() == {"1": "failed", "2": "sent"}
