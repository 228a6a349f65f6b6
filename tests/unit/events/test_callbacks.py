"""The callback service: events of the bus wake tasks and complete resume handles, on every store and bus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from onthedot import App, BadEvent, Expired, current_task
from onthedot.errors import StoreUnavailable
from onthedot.events import Event, Events, Kafka
from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import Arrival
from tests.support.app_stores import AppStore, open_store
from tests.support.services.kafka import KafkaService
from tests.support.waits import SOON, until

CREATED = "Shop.Part.Created"
KINDS = ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.once)]


@pytest.fixture(params=KINDS)
def outbox_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AppStore]:
    yield from open_store(request, tmp_path)


@pytest.fixture(params=["store", pytest.param("kafka", marks=pytest.mark.once)])
def events(request: pytest.FixtureRequest) -> Events:
    if request.param == "store":
        return Events(results=(CREATED,), topics={"Shop.Order.*": "shop"})
    kafka: KafkaService = request.getfixturevalue("kafka")
    topics = {"Shop.Order.*": kafka.topic(2), CREATED: kafka.topic(2)}
    return Events(results=(CREATED,), topics=topics, bus=Kafka(kafka.address))


@pytest.fixture
def app(outbox_store: AppStore, events: Events) -> Iterator[App]:
    app = App(outbox_store.name, store=outbox_store.url, events=events)
    app.on_event("Shop.Order.Paid", signal="paid:{order}")
    yield app
    app.runtime.close()


def part(number: int) -> Event[Any]:
    return Event(CREATED, {"n": number}, aggregate_id=str(number), id=f"e{number}", correlation_id="c1")


async def test_published_events_complete_a_handle(app: App) -> None:
    async with app.running():
        handle = await app.expect({CREATED: 2}, correlation_id="c1", timeout=60)
        await app.publish(part(1), part(2), part(1))
        events = await asyncio.wait_for(handle.wait(), SOON)
    assert sorted(event.payload["n"] for event in events) == [1, 2]


async def test_event_sends_a_signal(app: App) -> None:
    @app.task
    async def ship(order: int) -> Any:
        return await current_task().wait_for(f"paid:{order}", timeout=60)

    async with app.running():
        handle = await ship.enqueue(17)
        await app.publish(Event("Shop.Order.Paid", {"order": 17}, aggregate_id="17", id="p1", correlation_id="c7"))
        signal = await handle.result(SOON)
    assert signal == {"type": "Shop.Order.Paid", "payload": {"order": 17}, "id": "p1", "correlation_id": "c7"}


async def test_event_that_sends_a_signal_also_completes_a_handle(app: App) -> None:
    """Also if it comes before the handle."""
    paid = [Event("Shop.Order.Paid", {"order": n}, aggregate_id="1", id=f"p{n}", correlation_id="c1") for n in (1, 2)]
    async with app.running():
        await app.publish(paid[0])
        await until(lambda: _has_arrived(app, 1))
        handle = await app.expect({"Shop.Order.Paid": 2}, correlation_id="c1", timeout=60)
        await app.publish(paid[1])
        events = await asyncio.wait_for(handle.wait(), SOON)
    assert sorted(event.id for event in events) == ["p1", "p2"]


async def test_event_without_the_field_of_a_signal_is_passed_over(app: App, caplog: pytest.LogCaptureFixture) -> None:
    async with app.running():
        handle = await app.expect({CREATED: 1}, correlation_id="c1", timeout=60)
        await app.publish(Event("Shop.Order.Paid", {"other": 1}, aggregate_id="17", id="p1"))
        await app.publish(part(1))
        assert len(await asyncio.wait_for(handle.wait(), SOON)) == 1
        await until(lambda: "event p1 (Shop.Order.Paid) sends no signal: KeyError: 'order'" in caplog.text)


@pytest.mark.parametrize(
    ("event_type", "signal", "problem"),
    [
        ("Shop.Order", "paid", "has 2 segments, not 3 or 4"),
        ("Shop.Order.*", "paid", "call it for each type"),
        ("Shop.Order.Paid", "paid:{order", "expected '}'"),
        ("Shop.Order.Paid", "paid:{}", "name a field of the payload"),
        ("Shop.Order.Paid", "", "name a field of the payload"),
    ],
)
def test_signal_that_no_event_could_send_is_refused(event_type: str, signal: str, problem: str) -> None:
    with pytest.raises(BadEvent, match=problem):
        App("shop", store="memory://").on_event(event_type, signal=signal)


async def test_service_continues_where_it_stopped(app: App) -> None:
    async with app.running():
        handle = await app.expect({CREATED: 2}, correlation_id="c1", timeout=60)
        await app.publish(part(1))
        await until(lambda: _has_arrived(app, 1))
        await app.publish(part(2))
    async with app.running():
        assert len(await asyncio.wait_for(handle.wait(), SOON)) == 2


async def _has_arrived(app: App, number: int) -> bool:
    store = app.runtime.store
    assert isinstance(store, Outbox)
    return len(await store.arrivals("c1")) == number


async def test_page_is_stored_after_the_store_has_failed_once(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async with app.running():
        store = app.runtime.store
        assert isinstance(store, Outbox)
        record_arrivals = store.record_arrivals
        failures = [StoreUnavailable("no answer")]

        async def fail_once(arrivals: Sequence[Arrival]) -> None:
            if failures:
                raise failures.pop()
            await record_arrivals(arrivals)

        monkeypatch.setattr(store, "record_arrivals", fail_once)
        handle = await app.expect({CREATED: 2}, correlation_id="c1", timeout=60)
        await app.publish(part(1))
        await until(lambda: not failures)
        await app.publish(part(2))
        events = await asyncio.wait_for(handle.wait(), SOON)
    assert sorted(event.payload["n"] for event in events) == [1, 2]


async def test_signal_that_cannot_be_made_does_not_hold_up_others(app: App, caplog: pytest.LogCaptureFixture) -> None:
    app.on_event("Shop.Order.Packed", signal="packed:{items[0]}")

    @app.task
    async def ship(order: int) -> Any:
        return await current_task().wait_for(f"packed:{order}", timeout=60)

    async with app.running():
        handle = await ship.enqueue(17)
        await app.publish(
            Event("Shop.Order.Packed", {"items": []}, aggregate_id="17", id="p1"),
            Event("Shop.Order.Packed", {"items": [17]}, aggregate_id="17", id="p2"),
        )
        assert (await handle.result(SOON))["id"] == "p2"
    assert "event p1 (Shop.Order.Packed) sends no signal: IndexError" in caplog.text


@pytest.mark.timed
async def test_expired_comes_within_a_second_of_its_time(outbox_store: AppStore) -> None:
    """To a task and to other code. An event that comes later changes nothing."""
    app: App[Any] = App(outbox_store.name, store=outbox_store.url, events=Events(results=(CREATED,)))

    @app.task
    async def order() -> tuple[float, list[str]]:
        handle = await app.expect({CREATED: 2}, correlation_id="c2", timeout=1)
        try:
            await handle.wait()
        except Expired as error:
            return time.monotonic(), [event.id for event in error.events]
        raise AssertionError("it has not expired")

    async with app.running():
        began = time.monotonic()
        waiting = await order.enqueue()
        handle = await app.expect({CREATED: 2}, correlation_id="c1", timeout=1)
        await app.publish(part(1))
        with pytest.raises(Expired) as raised:
            await handle.wait()
        ended = time.monotonic()
        assert [event.id for event in raised.value.events] == ["e1"]
        task_ended, came = await waiting.result(SOON)
        assert came == []
        assert 1 <= ended - began < 2.2, "the first 0.2 s are for the start"
        assert 1 <= task_ended - began < 2.2
        await app.publish(part(2))
        await until(lambda: _has_arrived(app, 2))
        assert await handle.status() == "expired"
    app.runtime.close()
