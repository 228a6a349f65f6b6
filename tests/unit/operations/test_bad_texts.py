"""Operations with texts that not every store can keep do the same on all of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onthedot import App, ArgumentError, TaskCancelled, TaskNotFound
from tests.support.app_stores import AppStore
from tests.support.waits import SOON


@pytest.mark.parametrize(("bad", "shown"), [("a\udcff", "a\\udcff"), ("a\0b", "a\\x00b")], ids=["surrogate", "NUL"])
async def test_texts_that_cannot_be_stored_are_escaped_and_impossible_uuids_are_unknown(
    app_store: AppStore, bad: str, shown: str
) -> None:
    app: App[Any] = App(app_store.name, store=app_store.url)
    started = asyncio.Event()

    @app.task
    async def slow() -> None:
        started.set()
        await asyncio.sleep(SOON)

    async with app.running():
        running = await slow.enqueue()
        await started.wait()
        pending = await slow.options(after=60).enqueue()
        await app.pause("slow", reason=bad)
        (source,) = await app.operations.sources()
        assert source.paused is not None
        assert source.paused.reason == shown
        assert await app.cancel(running.uuid, pending.uuid, bad, reason=bad) == 2
        for handle in (running, pending):
            error = await handle.exception(SOON)
            assert isinstance(error, TaskCancelled)
            assert error.reason == shown
        assert await app.retry(bad) == []
        for unknown in (app.get(bad), app.explain(bad), app.ahandle(bad).info(), app.ahandle(bad).result(1)):
            with pytest.raises(TaskNotFound):
                await unknown
        with pytest.raises(ArgumentError, match="source has"):
            await app.find(source=bad)
