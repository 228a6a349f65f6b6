"""A session that is replaced leaves nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from onthedot import App
from tests.support.waits import SOON, every_chance, until


@pytest.mark.parametrize("store_url", ["redis", "postgres"], indirect=True)
async def test_session_that_is_replaced_during_a_stop_leaves_no_listener(store_url: str) -> None:
    app = App("shop", store=f"{store_url}?lease=1", stop_timeout=SOON)
    go_on = asyncio.Event()
    before = asyncio.all_tasks()

    @app.task
    async def hold() -> None:
        try:
            await go_on.wait()
        except asyncio.CancelledError:  # its session is lost
            await go_on.wait()
            raise

    running = app.running()
    await running.__aenter__()
    worker = app.runtime.worker
    assert worker is not None
    await hold.enqueue()
    await until(lambda: worker.runs)
    first = worker.session_id
    stopping = asyncio.create_task(running.__aexit__(None, None, None))
    await until(lambda: app.runtime.host.status == "stopping")
    await every_chance()
    await app.runtime.store.close_session(first, crashed=True)
    await until(lambda: worker.session_id != first)
    go_on.set()
    await stopping
    await until(lambda: asyncio.all_tasks() == before)
