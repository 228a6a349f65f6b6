"""Agents inside of the calls of TestApp: relay, subscription and worker run until nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from onthedot import App, Reject, current_task
from onthedot.events import AgentRegistry, BaseAgent, Event
from onthedot.testing import TestApp

PLACED = "Shop.Order.Placed"
PACKED = "Shop.Order.Packed"
SENT = "Shop.Order.Sent"


@pytest.fixture
def test() -> Iterator[TestApp]:
    with TestApp(App("shop")) as test:
        yield test


def placed(number: int, **fields: str) -> Event:
    return Event(PLACED, {"id": number}, aggregate_id=str(number), id=f"e{number}", **fields)


async def test_published_events_are_handled_and_their_results_too(test: TestApp) -> None:
    handled: list[str] = []

    @test.app.agent("packer", consumes=PLACED)
    async def pack(event: Event) -> Event:
        handled.append(f"pack {event.payload['id']}")
        return event.reply(PACKED, event.payload)

    @test.app.agent("sender", consumes=PACKED)
    def send(event: Event) -> list[Event]:
        handled.append(f"send {event.payload['id']}")
        return [event.reply(SENT, event.payload)]

    await test.app.publish(placed(1), placed(2))
    await test.run_until_idle()
    assert sorted(handled) == ["pack 1", "pack 2", "send 1", "send 2"]
    assert test.assert_published(SENT, id=2).correlation_id == "e2"


async def test_events_of_a_key_are_handled_in_order_through_retries(test: TestApp) -> None:
    handled: list[str] = []

    @test.app.agent("packer", consumes=PLACED)
    async def pack(event: Event) -> None:
        handled.append(f"{event.id} {current_task().attempt}")
        if event.id == "e1" and current_task().attempt < 3:
            raise ConnectionError("no answer")

    await test.app.publish(placed(1, key="a"), placed(2, key="a"), placed(3, key="b"))
    await test.run_until_idle()
    assert sorted(handled) == ["e1 1", "e3 1"]
    await test.drain()
    assert handled[2:] == ["e1 2", "e1 3", "e2 1"]


async def test_failed_event_is_a_dead_letter(test: TestApp) -> None:
    @test.app.agent("packer", consumes=PLACED, aliases=("the_packer",))
    async def pack(event: Event) -> None:
        raise Reject("no such order")

    await test.app.publish(placed(1))
    await test.run_until_idle()
    (letter,) = test.dead_letters("The-Packer")
    assert (letter.event_id, letter.error_message, letter.topic) == ("e1", "no such order", "shop.order.events")
    assert test.dead_letters("other") == []
    assert test.published() == [placed(1)]


async def test_agent_that_waits_for_a_signal_does_not_keep_drain_from_ending(test: TestApp) -> None:
    @test.app.agent("packer", consumes=PLACED, timeout=None)
    async def pack(event: Event) -> None:
        await current_task().wait_for("approved")

    await test.app.publish(placed(1))
    await test.drain()
    (task,) = (await test.app.operations.find(source="agent.packer")).tasks
    assert task.state == "waiting"
    await test.app.signal("approved")
    await test.drain()
    (task,) = (await test.app.operations.find(source="agent.packer")).tasks
    assert task.state == "succeeded"


def test_deliver_and_dead_letters_work_in_sync_tests(test: TestApp) -> None:
    @test.app.agent("packer", consumes=PLACED)
    def pack(event: Event) -> None:
        raise Reject("no such order")

    (uuid,) = test.deliver(placed(1))
    test.sync.run_until_idle()
    (letter,) = test.dead_letters("packer")
    assert letter.task == uuid
    assert test.deliver(placed(1)) == [uuid]


async def test_agents_that_are_registered_while_a_worker_runs_are_subscribed(test: TestApp) -> None:
    handled: list[str] = []

    class Packer(BaseAgent):
        id = "packer"
        consumes = (PLACED,)
        keep = timedelta(days=1)

        async def process(self, event: Event) -> None:
            handled.append(event.id)

    async with test.app.running():
        await test.app.publish(placed(1))
        await test.run_until_idle()
        test.app.agents.register(Packer())
        await test.run_until_idle()
        assert handled == ["e1"]
        test.app.agents.unregister("packer")
        await test.run_until_idle()
        await test.app.publish(placed(2))
        await test.run_until_idle()
        assert handled == ["e1"]
        test.app.agents.register(Packer())
        await test.run_until_idle()
        assert handled == ["e1", "e2"]


def test_two_apps_share_a_registry() -> None:
    registry = AgentRegistry()
    shop = App("shop", agents=registry)
    bakery = App("bakery", agents=registry)

    @shop.agent("packer", consumes=PLACED)
    def pack(event: Event) -> Event:
        return event.reply(PACKED, {"app": current_task().metadata["correlation_id"]})

    assert shop.agents is bakery.agents
    for app in (shop, bakery):
        with TestApp(app) as test:
            test.deliver(placed(1))
            test.sync.run_until_idle()
            test.assert_published(PACKED, app="e1", times=1)
