"""Events in tests of users: the relay runs inside the calls that drive the clock."""

from __future__ import annotations

import pytest

from onthedot import App, BadEvent, current_task
from onthedot.events import Event, Events
from onthedot.stores.capabilities import Outbox
from onthedot.testing import TestApp

PLACED = "Shop.Order.Placed"
SHIPPED = "Shop.Order.Shipped"


def shop() -> App[None]:
    return App(
        "shop", store="redis://nowhere", events=Events(bus="kafka://127.0.0.1:1", outbox="postgresql://nowhere/x")
    )


def order(number: int, event_type: str = PLACED) -> Event[dict[str, int]]:
    return Event(event_type, {"id": number}, aggregate_id=str(number))


def statuses(test: TestApp) -> list[str]:
    store = test.app.runtime.store
    assert isinstance(store, Outbox)
    found = test.app.runtime.portal.run_sync(lambda _: store.find_events({}, 0, 2000))
    return [stored.status for stored in found]


async def test_relay_runs_until_nothing_is_left_to_send() -> None:
    app = shop()
    with TestApp(app) as test:
        await app.publish(*[order(number) for number in range(1000)])
        await app.publish(order(1000))
        assert set(statuses(test)) == {"pending"}
        await test.run_until_idle()
        assert statuses(test) == ["sent"] * 1001


async def test_time_does_not_go_on_for_the_relay() -> None:
    app = shop()
    with TestApp(app) as test:
        before = test.now()
        await app.publish(order(1))
        await test.drain()
        assert test.now() == before
        await test.advance(days=300)
        assert statuses(test) == ["sent"], "events are kept, as tasks are"


async def test_events_of_tasks_are_published_when_they_succeed() -> None:
    app = shop()

    @app.task(max_retries=1, backoff=[60])
    async def ship(number: int) -> None:
        context = current_task()
        context.publish(order(number, SHIPPED))
        if context.attempt == 1:
            raise OSError

    with TestApp(app) as test:
        await ship.enqueue(7)
        await test.run_until_idle()
        test.refute_published(SHIPPED)
        await test.advance(60)
        shipped = test.assert_published(SHIPPED, id=7, times=1)
        assert shipped.aggregate_id == "7"
        assert statuses(test) == ["sent"]


def test_assertions_say_what_was_published() -> None:
    app = shop()
    with TestApp(app) as test:
        app.sync.publish(order(1), order(2), order(3, SHIPPED))
        assert [event.payload["id"] for event in test.published(PLACED)] == [1, 2]
        assert [event.type for event in test.published()] == [PLACED, PLACED, SHIPPED]
        assert test.assert_published(PLACED).payload == {"id": 2}
        assert test.assert_published(PLACED, {"id": 1}).payload == {"id": 1}
        test.refute_published(PLACED, id=3)
        with pytest.raises(AssertionError) as caught:
            test.assert_published(PLACED, id=3)
        assert str(caught.value) == (
            "Shop.Order.Placed(id=3) was not published; there is of Shop.Order.Placed:\n"
            "  Shop.Order.Placed(id=1)\n  Shop.Order.Placed(id=2)\nothers: 1 Shop.Order.Shipped"
        )
        with pytest.raises(AssertionError, match="was published 2 times, not 3"):
            test.assert_published(PLACED, times=3)
        with pytest.raises(AssertionError, match=r"Placed\(id=1\) was published"):
            test.refute_published(PLACED, id=1)
        with pytest.raises(AssertionError, match=r"there is no Shop\.Stock\.Changed"):
            test.assert_published("Shop.Stock.Changed")


def test_misspelt_type_is_an_error() -> None:
    with TestApp(shop()) as test, pytest.raises(BadEvent, match="segment 2"):
        test.refute_published("Shop.order.Placed")
