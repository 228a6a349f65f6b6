"""Freeze, thaw and drain of plain sources, on every store."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from onthedot import App, SourceFrozen, StoreFull, StoreUnavailable, TaskNotFound, group
from onthedot.clock.manual import ManualClock
from onthedot.events import Event
from onthedot.operations.modes import MODE_AGE, RecentModes
from onthedot.stores.contract import Limit, StoreTraits
from onthedot.stores.memory import MemoryStore
from tests.support.app_stores import KINDS, AppStore, app_store
from tests.support.waits import SOON, until

__all__ = ["app_store"]


class Shop:
    """An app with two tasks, of which `send` waits for the gate."""

    def __init__(self, store: AppStore) -> None:
        self.app = App(store.name, store=store.url, stop_timeout=0)
        self.gate = asyncio.Event()
        self.began: list[str] = []
        self.send = self.app.task(self._send, name="send")
        self.build = self.app.task(self._build, name="build")

    async def _send(self, to: str) -> str:
        self.began.append(to)
        await self.gate.wait()
        return to

    async def _build(self, what: str) -> str:
        return what


@pytest.fixture
def shop(app_store: AppStore) -> Iterator[Shop]:
    shop = Shop(app_store)
    yield shop
    shop.app.shutdown()


async def test_frozen_source_refuses_every_form_of_add_and_its_tasks_run(shop: Shop) -> None:
    async with shop.app.running():
        running = await shop.send.enqueue("ann")
        await until(lambda: shop.began)
        assert not await shop.app.operations.freeze("send")
        assert await shop.app.operations.freeze("send"), "it was frozen before"
        adds: list[Any] = [
            lambda: shop.send.enqueue("bob"),
            lambda: shop.send.enqueue_many([("bob",), ("eve",)]),
            lambda: shop.app.named("send").enqueue(to="bob"),
            lambda: shop.app.enqueue_many([shop.build.s("x"), shop.send.s("bob")]),
            lambda: (group(shop.build.s("x"), shop.build.s("y")) | shop.app.named("send").s(to="bob")).enqueue(),
        ]
        for add in adds:
            with pytest.raises(SourceFrozen) as refused:
                await add()
            assert (refused.value.source, refused.value.retry_after, refused.value.what) == ("send", 30, "tasks")
            assert refused.value.stored is False
        assert isinstance(refused.value, StoreFull)
        with pytest.raises(TaskNotFound):
            await shop.app.get(str(refused.value.uuid))
        assert await (await shop.build.enqueue("x")) == "x", "another source is not affected"
        shop.gate.set()
        assert await running == "ann"
        assert await shop.app.operations.thaw("send")
        assert not await shop.app.operations.thaw("send")
        assert await (await shop.send.enqueue("bob")) == "bob"


@pytest.mark.timed
@pytest.mark.parametrize("app_store", KINDS[1:], indirect=True)
async def test_other_process_sees_a_freeze_within_a_second(app_store: AppStore) -> None:
    one = Shop(app_store)
    other = Shop(app_store)
    async with one.app, other.app:
        await other.send.enqueue("first")
        await one.app.operations.freeze("send")
        began = time.monotonic()

        async def is_refused() -> bool:
            try:
                await other.send.enqueue("next")
            except SourceFrozen:
                return True
            return False

        await until(is_refused)
        assert time.monotonic() - began < 1.5


async def test_drain_waits_for_the_last_task_and_times_out(shop: Shop) -> None:
    async with shop.app.running():
        handle = await shop.send.enqueue("ann")
        with pytest.raises(TimeoutError, match=r"send: 1 task or event is left after 0\.1 s; it stays frozen"):
            await shop.app.operations.drain("send", timeout=0.1)
        draining = asyncio.create_task(shop.app.operations.drain("send", timeout=SOON))
        with pytest.raises(SourceFrozen):
            await shop.send.enqueue("bob")
        assert not draining.done()
        shop.gate.set()
        await draining
        assert (await shop.app.get(handle.uuid)).state.ended


@pytest.mark.parametrize("app_store", ["sqlite"], indirect=True)
async def test_drain_waits_for_unsent_events_if_asked(shop: Shop) -> None:
    async with shop.app:
        await shop.build.enqueue("x")
    async with shop.app.running():
        await shop.app.operations.outbox.pause()
        await shop.app.publish(Event("Shop.Order.Placed", {"id": 1}, aggregate_id="1"))
        await shop.app.operations.drain("build", timeout=SOON)
        with pytest.raises(TimeoutError, match="1 task or event"):
            await shop.app.operations.drain("build", timeout=0.1, outbox=True)
        await shop.app.operations.outbox.resume()
        await shop.app.operations.drain("build", timeout=SOON, outbox=True)


@pytest.mark.parametrize("app_store", ["sqlite"], indirect=True)
@pytest.mark.parametrize("is_open", [True, False])
def test_add_in_a_transaction_of_a_file_is_refused(app_store: AppStore, is_open: bool) -> None:
    operator = Shop(app_store)
    operator.app.sync.operations.freeze("send")
    operator.app.shutdown()
    shop = Shop(app_store)
    if is_open:
        shop.build.delay("x")
    with sqlite3.connect(app_store.url.removeprefix("sqlite:///")) as connection:
        connection.execute("BEGIN")
        shop.build.options(connection=connection).delay("x")
        with pytest.raises(SourceFrozen):
            shop.send.options(connection=connection).delay("ann")
    connection.close()
    shop.app.shutdown()


@pytest.mark.parametrize("app_store", [pytest.param("postgres", marks=pytest.mark.once)], indirect=True)
async def test_add_in_a_transaction_of_a_server_is_refused(shop: Shop, app_store: AppStore) -> None:
    connection = await asyncpg.connect(app_store.url)
    async with shop.app:
        await shop.app.operations.freeze("send")
        async with connection.transaction():
            await shop.build.options(connection=connection).enqueue("x")
            with pytest.raises(SourceFrozen):
                await shop.send.options(connection=connection).enqueue("ann")
    await connection.close()


class CountedStore(MemoryStore):
    """A store whose limits can fail, and which answers as a server does: later."""

    traits = StoreTraits(shared=False, synchronous=False, cancel_safe=True)

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.reads = 0
        self.is_away = False

    async def limits(self) -> list[Limit]:
        self.reads += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise StoreUnavailable("away")
        return list(await super().limits())


async def test_modes_are_read_once_per_second_by_all_adders_together() -> None:
    clock = ManualClock()
    store = CountedStore(clock)
    modes = RecentModes(store, clock)
    assert not modes.accept_all(), "nothing is known yet"
    await asyncio.gather(*(modes.of("send") for _ in range(10)))
    assert (store.reads, modes.accept_all()) == (1, True)
    await store.put_limits([Limit("send", owner="operator", mode="frozen")])
    clock.advance(MODE_AGE - 1)
    assert await modes.of("send") == ""
    clock.advance(1)
    assert await modes.of("send") == "frozen"
    assert (store.reads, modes.accept_all()) == (2, False)


async def test_last_known_modes_hold_while_the_store_cannot_be_reached() -> None:
    clock = ManualClock()
    store = CountedStore(clock)
    modes = RecentModes(store, clock)
    await store.put_limits([Limit("send", owner="operator", mode="frozen")])
    assert await modes.of("send") == "frozen"
    store.is_away = True
    clock.advance(MODE_AGE)
    assert (await modes.of("send"), await modes.of("build")) == ("frozen", "")
    assert store.reads == 2, "an add during an outage waits for one read per second at most"
