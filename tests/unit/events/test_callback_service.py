"""``CallbackService(app).run()``: a process that runs only the callback service."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from onthedot import App, DeclarationError, StoreRefused
from onthedot.events import CallbackService, Event, Events, ResumeHandle
from tests.support.services import valkey
from tests.support.waits import SOON, until

DONE = "Shop.Part.Created"


async def test_service_beside_a_worker_that_has_none_completes_a_handle(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    worker = App("shop", store=url, stop_timeout=0)
    app = App("shop", store=url, events=Events(results=(DONE,)), stop_timeout=0)
    event = Event(DONE, {}, aggregate_id="1", correlation_id="c1", id="e1")
    async with worker.running(), app:
        handle: ResumeHandle = await app.expect({DONE: 1}, correlation_id="c1", timeout=60)
        await app.publish(event)

        async def is_sent() -> bool:
            return [each.status for each in await app.operations.outbox.events()] == ["sent"]

        await until(is_sent)
        assert await handle.status() == "pending", "nobody receives results yet"
        service = asyncio.create_task(CallbackService(app).run())
        assert [each.id for each in await asyncio.wait_for(handle.wait(), SOON)] == ["e1"]
        service.cancel()
        with suppress(asyncio.CancelledError):
            await service
        assert service.cancelled()


async def test_service_that_would_receive_nothing_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"shop receives no results: say Events\(results=…\)"):
        await CallbackService(App("shop", store="memory://")).run()


async def test_service_on_a_store_without_outbox_is_refused() -> None:
    app = App(valkey.new_name(), store="redis://127.0.0.1:1", events=Events(results=(DONE,)))
    with pytest.raises(StoreRefused, match="CallbackService"):
        await CallbackService(app).run()
