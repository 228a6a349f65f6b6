"""Publishing: from anywhere, with a task's end, in the caller's transaction."""

from __future__ import annotations

import asyncio

import pytest

from onthedot import App, ArgumentError, AsyncTaskHandle, Reject, StoreRefused, current_task
from onthedot.events import Event, Events
from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import OutboxEvent
from tests.contract.steps import Worker
from tests.support.waits import SOON, until


def placed(number: int = 17, **fields: object) -> Event:
    return Event("Shop.Order.Placed", {"id": number}, aggregate_id=str(number), **fields)  # type: ignore[arg-type]


@pytest.fixture
def app() -> App:
    return App("shop", store="memory://", events=Events(topics={"Shop.Order.*": "orders"}))


async def stored(app: App) -> list[OutboxEvent]:
    store = app.runtime.store
    assert isinstance(store, Outbox)
    return list(await store.find_events({}, 0, 100))


async def test_events_are_stored_when_publish_returns(app: App) -> None:
    ids = await app.publish(placed(1, id="e1"), placed(2, id="e2"))
    assert ids == ["e1", "e2"]
    first, second = await stored(app)
    assert (first.event.topic, first.event.key, first.event.payload) == ("orders", "1", b'{"id":1}')
    assert second.event.aggregate_type == "ShopOrder"


def test_sync_code_publishes(app: App) -> None:
    assert app.sync.publish(placed(id="e1")) == ["e1"]
    assert [each.event.id for each in asyncio.run(stored(app))] == ["e1"]


async def test_same_id_is_kept_once_and_another_payload_is_logged(app: App, caplog: pytest.LogCaptureFixture) -> None:
    await app.publish(placed(1, id="e1"))
    await app.publish(placed(1, id="e1"))
    assert caplog.text == ""
    assert await app.publish(placed(2, id="e1")) == ["e1"]
    assert len(await stored(app)) == 1
    assert "event e1 (Shop.Order.Placed) was published before with other content" in caplog.text


async def test_wrong_calls_are_refused(app: App) -> None:
    with pytest.raises(TypeError, match=r"publish\(\) takes events"):
        await app.publish({"id": 1})  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="1,001 events"):
        await app.publish(*[placed(number) for number in range(1001)])
    assert await stored(app) == []


async def test_task_publishes_with_its_success_only(app: App) -> None:
    @app.task
    async def ship(order: int, ok: bool) -> None:
        current_task().publish(placed(order))
        if not ok:
            raise Reject("no")

    async with app.running():
        good = await ship.enqueue(1, ok=True)
        bad = await ship.enqueue(2, ok=False)
        await good.result(SOON)
        with pytest.raises(Exception, match="no"):
            await bad.result(SOON)
    assert [each.event.key for each in await stored(app)] == ["1"]


async def test_repeated_run_publishes_the_same_ids(app: App) -> None:
    ids: list[str] = []

    @app.task(max_retries=1, backoff=0.001)
    async def ship() -> None:
        event = placed()
        ids.append(event.id)
        current_task().publish(event)
        if len(ids) == 1:
            raise OSError

    async with app.running():
        await (await ship.enqueue()).result(SOON)
    assert ids[0] == ids[1]
    assert [each.event.id for each in await stored(app)] == ids[:1]


async def _is_waiting(handle: AsyncTaskHandle[object]) -> bool:
    return (await handle.info()).state == "waiting"


async def test_request_and_wait_are_one_step(app: App) -> None:
    runs = 0

    @app.task
    async def ask() -> object:
        nonlocal runs
        runs += 1
        current_task().publish(placed())
        return await current_task().wait_for("answer", timeout=30)

    async with app.running():
        handle = await ask.enqueue()
        await until(lambda: _is_waiting(handle))
        assert len(await stored(app)) == 1
        await app.signal("answer", 42)
        assert await handle.result(SOON) == 42
    assert runs == 2
    assert len(await stored(app)) == 1


async def test_request_of_a_task_whose_worker_died_is_sent_once(app: App) -> None:
    @app.task
    async def ask() -> object:
        current_task().publish(placed())
        return await current_task().wait_for("answer", timeout=30)

    handle = await ask.enqueue()
    worker = Worker(app.runtime.store, "dies")
    await worker.heartbeat()
    assert await worker.runs(ask.name) == [handle.uuid]
    await worker.crash()
    async with app.running():
        await until(lambda: _is_waiting(handle))
        await app.signal("answer", 42)
        assert await handle.result(SOON) == 42
    assert len(await stored(app)) == 1


async def test_two_databases_have_no_common_commit() -> None:
    app = App("shop", store="memory://", events=Events(outbox="sqlite:///events.db"))

    @app.task
    async def ship() -> None:
        current_task().publish(placed())

    async with app.running():
        handle = await ship.enqueue()
        with pytest.raises(Exception, match="no common commit"):
            await handle.result(SOON)


async def test_memory_joins_no_transaction(app: App) -> None:
    with pytest.raises(StoreRefused, match="no transaction to join"):
        await app.publish(placed(), connection=object())
