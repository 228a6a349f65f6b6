"""A reader looks at a stream while it ends: whatever the order, it gets all items and the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from onthedot import App
from onthedot.stores.contract import Record
from tests.unit.durable.stores import on_each_store

pytestmark = on_each_store


@pytest.mark.parametrize("held", ["get", "notes"])
async def test_stream_that_ends_between_two_reads_is_read_to_its_end(
    app: App, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    """The task saves its last item and ends after the reader's first call, and before its second one."""
    store = app.runtime.store
    originals = {"get": store.get, "notes": store.notes}
    calls = 0
    finish = asyncio.Event()
    uuid = ""

    @app.task
    async def numbers() -> AsyncIterator[int]:
        yield 1
        await finish.wait()
        yield 2

    async def end() -> None:
        finish.set()
        while True:
            (record,) = await originals["get"]((uuid,))
            if record is not None and record.state == "succeeded":
                return
            await asyncio.sleep(0.001)

    async def get(uuids: Sequence[str]) -> Sequence[Record | None]:
        nonlocal calls
        found = await originals["get"](uuids)
        calls += 1
        if held == "get" and calls == 2:
            await end()
        return found

    async def notes(*arguments: Any) -> Any:
        nonlocal calls
        found = await originals["notes"](*arguments)
        calls += arguments[0] == uuid
        if held == "notes" and calls == 2:
            await end()
        return found

    async with app.running():
        handle = await numbers.enqueue()
        items = aiter(handle)
        assert await anext(items) == 1
        uuid = handle.uuid
        calls = 1  # the next call is the second one: the look at the state after the first items
        if held == "get":
            monkeypatch.setattr(store, "get", get)
        else:
            monkeypatch.setattr(store, "notes", notes)
        assert [number async for number in items] == [2]
