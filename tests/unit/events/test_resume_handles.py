"""Resume handles: a task, or code outside of tasks, continues after all expected events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from onthedot import App, AsyncTaskHandle, BadEvent, Expired, StoreRefused
from onthedot.events import Event, Events
from onthedot.events.resume_handles import HandleCompletion
from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import Arrival
from tests.support.services import valkey
from tests.support.waits import SOON, until

CREATED = "Shop.Part.Created"
FAILED = "Shop.Part.Failed"


@pytest.fixture
def app() -> Iterator[App]:
    app = App("shop", store="memory://", events=Events(results=("Shop.Part.*",)))
    yield app
    app.runtime.close()


async def arrive(app: App, *events: Event[Any]) -> None:
    """As the callback service does."""
    store = app.runtime.store
    assert isinstance(store, Outbox)
    encoded = [
        Arrival(
            each.correlation_id,
            each.id,
            each.type,
            b'{"id":"%s","type":"%s","aggregate_id":"%s","occurred_at":"%s"}'
            % tuple(text.encode() for text in (each.id, each.type, each.aggregate_id, each.occurred_at.isoformat())),
        )
        for each in events
    ]
    await store.record_arrivals(encoded)
    completion = HandleCompletion(store.complete_handles, store.signal)
    await completion.complete([each.correlation_id for each in events])


def part(number: int, kind: str = CREATED, correlation_id: str = "c1") -> Event[Any]:
    return Event(kind, {}, aggregate_id=str(number), id=f"e{number}", correlation_id=correlation_id)


async def is_waiting(handle: AsyncTaskHandle[Any]) -> bool:
    return (await handle.info()).state == "waiting"


async def test_code_outside_of_tasks_waits_for_all_events(app: App) -> None:
    async with app.running():
        handle = await app.expect({(CREATED, FAILED): 3}, correlation_id="c1", timeout=60)
        assert await handle.status() == "pending"
        waiting = asyncio.create_task(handle.wait())
        await arrive(app, part(2), part(1, FAILED))
        await arrive(app, part(2), part(9, correlation_id="c2"))
        assert await handle.status() == "pending"
        assert not waiting.done()
        await arrive(app, part(3))
        events = await asyncio.wait_for(waiting, SOON)
        assert [event.id for event in events] == ["e2", "e1", "e3"]
        assert await handle.status() == "resumed"
        assert [event.id for event in await app.resume_handle("c1").wait()] == ["e2", "e1", "e3"]


async def test_task_waits_without_a_slot(app: App) -> None:
    @app.task
    async def order() -> list[str]:
        handle = await app.expect({CREATED: 2}, correlation_id="c1", timeout=60)
        return [event.id for event in await handle.wait()]

    async with app.running():
        task = await order.enqueue()
        await until(lambda: is_waiting(task))
        await arrive(app, part(1), part(2))
        assert await task.result(SOON) == ["e1", "e2"]


async def test_events_may_come_first(app: App) -> None:
    async with app.running():
        await arrive(app, part(1), part(2))
        handle = await app.expect({CREATED: 2}, correlation_id="c1", timeout=60)
        assert len(await asyncio.wait_for(handle.wait(), SOON)) == 2


async def test_handle_expires_with_what_came(app: App) -> None:
    async with app.running():
        handle = await app.expect({(CREATED, FAILED): 3}, correlation_id="c1", timeout=0.2)
        await arrive(app, part(1))
        with pytest.raises(Expired) as raised:
            await asyncio.wait_for(handle.wait(), SOON)
        assert [event.id for event in raised.value.events] == ["e1"]
        assert raised.value.missing == {(CREATED, FAILED): 2}
        await arrive(app, part(2), part(3))
        assert await handle.status() == "expired"


async def test_task_gets_expired(app: App) -> None:
    @app.task
    async def order() -> str:
        handle = await app.expect({CREATED: 2}, correlation_id="c1", timeout=0.2)
        try:
            await handle.wait()
        except Expired as error:
            return str(error)
        return "complete"

    async with app.running():
        answer = await (await order.enqueue()).result(SOON)
    assert answer == "not all expected events came in time: 2 of Shop.Part.Created are missing; 0 came"


async def test_same_expectation_is_the_same_handle(app: App) -> None:
    first = await app.expect({CREATED: 2, FAILED: 1}, correlation_id="c1", timeout=60)
    again = await app.expect({FAILED: 1, CREATED: 2}, correlation_id="c1", timeout=30)
    assert again.id == first.id
    with pytest.raises(BadEvent, match="'c1' has a pending handle with another expectation"):
        await app.expect({CREATED: 3}, correlation_id="c1", timeout=60)


def test_sync_code_expects(app: App) -> None:
    with app.background():
        handle = app.sync.expect({CREATED: 1}, correlation_id="c1", timeout=60)
        assert handle.status() == "pending"
        asyncio.run(arrive(app, part(1)))
        assert [event.id for event in handle.wait()] == ["e1"]
        assert app.sync.resume_handle("c1").status() == "resumed"


async def test_sync_code_on_a_thread_with_an_event_loop_expects(app: App) -> None:
    async with app.running():
        handle = await asyncio.to_thread(lambda: asyncio.run(_expect_by_sync_code(app)))
        assert handle == "pending"
        assert await app.resume_handle("c1").status() == "pending"


async def _expect_by_sync_code(app: App) -> str:
    """A coroutine that calls sync code, as in a notebook."""
    return app.sync.expect({CREATED: 1}, correlation_id="c1", timeout=60).status()


@pytest.mark.parametrize(
    ("expected", "options", "problem"),
    [
        ({}, {}, "nothing is expected"),
        ({CREATED: 0}, {}, "must be 1 to 100,000, not 0"),
        ({CREATED: True}, {}, "must be 1 to 100,000, not True"),
        ({"Shop.Order.Placed": 1}, {}, r"'Shop.Order.Placed' is not received: add it to Events\(results="),
        ({CREATED: 1}, {"timeout": 0}, "timeout must be more than 0"),
        ({CREATED: 1}, {"correlation_id": ""}, "correlation_id is empty"),
    ],
)
async def test_wrong_expectation_is_refused(
    app: App, expected: dict[str, int], options: dict[str, Any], problem: str
) -> None:
    given = {"correlation_id": "c1", "timeout": 60, **options}
    with pytest.raises(BadEvent, match=problem):
        await app.expect(expected, **given)


async def test_redis_has_no_outbox() -> None:
    app = App(valkey.new_name(), store=valkey.url(), events=Events(results=(CREATED,)))
    with pytest.raises(StoreRefused, match=r"redis:// has no outbox; Events\(outbox="):
        await app.expect({CREATED: 1}, correlation_id="c1", timeout=60)
    with pytest.raises(StoreRefused, match="redis:// has no outbox"):
        await app.publish(part(1))
    app.runtime.close()


async def test_agent_on_redis_is_refused_and_names_no_other_outbox() -> None:
    app = App(valkey.new_name(), store=valkey.url())
    app.agent("printer", consumes=(CREATED,))(lambda event: None)
    with pytest.raises(StoreRefused, match=r"^agent 'printer': .* run it on postgresql:// or sqlite://$"):
        async with app.running():
            pass
    app.runtime.close()
