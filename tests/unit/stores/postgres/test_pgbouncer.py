"""PgBouncer in transaction mode: everything works; hints need the address of the server itself."""

from __future__ import annotations

import asyncio
import logging

import pytest

from onthedot import App, AtMost, current_task
from onthedot.errors import StoreRefused
from onthedot.stores.postgres import PostgresStore, notifier
from onthedot.stores.postgres.url import PostgresAddress
from tests.support.services.pgbouncer import Pooled
from tests.support.waits import until

pytestmark = pytest.mark.fault


def shop(url: str, **options: float) -> App:
    app = App("shop", store=url, stop_timeout=0, **options)

    @app.task(max_retries=1, backoff=[0], limits=[AtMost(2, by="to")])
    async def send(to: str) -> str:
        if current_task().attempt == 1:
            raise OSError("again")
        return to

    return app


async def test_a_worker_runs_behind_pgbouncer(pooled: Pooled) -> None:
    app = shop(pooled.url, poll_interval=60)
    async with app.running():
        handles = await app.named("send").enqueue_many([{"to": str(number % 7)} for number in range(200)])
        assert [await handle.result(timeout=30) for handle in handles] == [str(number % 7) for number in range(200)]
    await until(lambda: pooled.left() == [])


async def test_hints_arrive_if_the_url_names_the_server(pooled: Pooled) -> None:
    app = shop(pooled.url, poll_interval=60)
    other = App("shop", store=pooled.url)
    async with app.running(), other:
        handle = await other.named("send").enqueue(to="ann")
        assert await handle.result(timeout=20) == "ann"  # the hint of its end arrives as well


async def test_without_hints_tasks_are_found_by_polling_and_a_warning_is_logged(
    pooled: Pooled, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notifier, "CHECK_TIMEOUT", 0.3)
    app = shop(pooled.without_hints, poll_interval=0.2)
    other = App("shop", store=pooled.without_hints, poll_interval=0.2)
    with caplog.at_level(logging.WARNING, "onthedot.store"):
        async with app.running(), other:
            handle = await other.named("send").enqueue(to="bob")
            assert await handle.result(timeout=20) == "bob"
            await until(lambda: "?listen=host:port" in caplog.text)
    assert caplog.text.count("no hints come through") <= 2  # once per connection


async def test_no_warning_is_logged_if_hints_arrive(
    pooled: Pooled, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = PostgresStore(pooled.url, name="shop")
    await store.open()
    hints = store.hints("w")
    assert (await anext(aiter(hints))).resync
    await asyncio.wait_for(store.notifier.checked(), 20)
    await hints.aclose()
    await store.close()
    assert caplog.text == ""


async def test_prepared_statements_behind_a_pooler_are_refused_with_advice(pooled: Pooled) -> None:
    """With the driver's statement cache, any call may fail first; the error names the option."""
    stores = [PostgresStore(pooled.without_hints.replace("statement_cache_size=0&", ""), name="shop") for _ in range(4)]

    async def use(store: PostgresStore) -> None:
        await store.open()
        try:
            for _ in range(20):
                await store.tally()
                await store.schedules()
        finally:
            await store.close()

    results = await asyncio.gather(*map(use, stores), return_exceptions=True)
    refused = [str(error) for error in results if isinstance(error, StoreRefused)]
    assert refused
    assert all("?statement_cache_size=0" in error for error in refused)


def test_the_listen_option_replaces_host_and_port() -> None:
    address = PostgresAddress.of("postgresql://me:secret@pooler:6432/shop?listen=db:5432&sslmode=disable")
    assert address.listen_address.dsn == "postgresql://me:secret@db:5432/shop?sslmode=disable"
    assert address.dsn == "postgresql://me:secret@pooler:6432/shop?sslmode=disable"
    assert PostgresAddress.of("postgresql://db/shop").listen_address.dsn == "postgresql://db/shop"
