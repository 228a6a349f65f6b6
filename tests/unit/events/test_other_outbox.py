"""Tasks in Redis, events in Postgres: ``Events(outbox=…)`` is for data that are there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import pytest

from onthedot import App, StoreRefused, current_task
from onthedot.clock.manual import ManualClock
from onthedot.events import Event, Events
from onthedot.stores.capabilities import Outbox, capability
from onthedot.stores.redis import RedisStore
from tests.support.services import valkey
from tests.support.services.postgres import Service
from tests.support.waits import SOON, until

pytestmark = pytest.mark.once

CREATED = "Shop.Part.Created"
_IDS = "SELECT id FROM onthedot.event_outbox WHERE app = (SELECT id FROM onthedot.app WHERE name = %s)"


@pytest.fixture
def app(postgres: Service) -> Iterator[App[Any]]:
    name = valkey.new_name()
    app: App[Any] = App(name, store=valkey.url(), events=Events(outbox=postgres.url, results=(CREATED,)))
    yield app
    app.runtime.close()
    valkey.forget(RedisStore(valkey.url(), ManualClock(), name).prefix)
    assert valkey.connections() == [], "a connection is left"
    postgres.clean(name)


def part(number: int) -> Event[Any]:
    return Event(CREATED, {"n": number}, aggregate_id=str(number), key="one", id=f"e{number}", correlation_id="c1")


async def statuses(app: App[Any]) -> dict[str, str]:
    rows = await capability(app.runtime.outbox_store, Outbox, "test").find_events({}, 0, 1000)
    return {row.event.id: row.status for row in rows}


async def test_relay_sends_what_was_published_with_and_without_a_transaction(app: App[Any], postgres: Service) -> None:
    connection = await asyncpg.connect(postgres.url)
    try:
        async with app.running():
            await app.publish(part(1))
            transaction = connection.transaction()
            await transaction.start()
            await app.publish(part(2), connection=connection)
            await transaction.rollback()
            async with connection.transaction():
                await app.publish(part(3), connection=connection)
            await until(lambda: _are_sent(app, {"e1", "e3"}))
    finally:
        await connection.close()


async def _are_sent(app: App[Any], ids: set[str]) -> bool:
    found = await statuses(app)
    assert found.keys() <= ids, "what was rolled back is not there"
    return found == dict.fromkeys(ids, "sent")


def test_sync_code_publishes_in_its_transaction(app: App[Any], postgres: Service) -> None:
    with app.background():
        with psycopg.connect(postgres.url) as connection:
            app.sync.publish(part(1), connection=connection)
            connection.rollback()
            app.sync.publish(part(2), connection=connection)
        assert postgres.ask(_IDS, app.name) == [("e2",)]


async def test_task_in_redis_continues_after_all_events(app: App[Any]) -> None:
    @app.task
    async def order() -> list[int]:
        handle = await app.expect({CREATED: 2}, correlation_id="c1", timeout=60)
        await app.publish(part(1))  # not `ctx.publish`: the two databases have no common commit
        return sorted(event.payload["n"] for event in await handle.wait())

    async with app.running():
        task = await order.enqueue()

        async def is_waiting() -> bool:
            return (await task.info()).state == "waiting"

        await until(is_waiting)
        await app.publish(part(2))
        assert await task.result(SOON) == [1, 2]
        assert await app.resume_handle("c1").status() == "resumed"


async def test_code_outside_of_tasks_continues_after_all_events(app: App[Any]) -> None:
    async with app.running():
        handle = await app.expect({CREATED: 2}, correlation_id="c1", timeout=60)
        await app.publish(part(1), part(2))
        events = await asyncio.wait_for(handle.wait(), SOON)
    assert [event.id for event in events] == ["e1", "e2"]


async def test_event_wakes_a_task_in_redis_by_a_signal(app: App[Any]) -> None:
    app.on_event("Shop.Order.Paid", signal="paid:{order}")

    @app.task
    async def ship(order: int) -> Any:
        return (await current_task().wait_for(f"paid:{order}", timeout=60))["payload"]

    async with app.running():
        task = await ship.enqueue(17)
        await app.publish(Event("Shop.Order.Paid", {"order": 17}, aggregate_id="17"))
        assert await task.result(SOON) == {"order": 17}


async def test_event_with_the_end_of_a_task_is_refused(app: App[Any]) -> None:
    @app.task
    async def order() -> None:
        current_task().publish(part(1))

    async with app.running():
        task = await order.enqueue()
        with pytest.raises(Exception, match="two databases, which have no common commit"):
            await task.result(SOON)
        assert await statuses(app) == {}


def test_agent_is_refused(app: App[Any]) -> None:
    with pytest.raises(StoreRefused, match=r"agent 'printer': .* two databases, which have no common commit"):
        app.agent("printer", consumes=(CREATED,))(lambda event: None)
