"""Streams: how items are packed and saved, and which cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from onthedot import (
    App,
    TaskFailed,
    current_task,
)
from onthedot.stores.contract import Note
from tests.support.waits import every_chance, until
from tests.unit.durable.stores import on_each_store

pytestmark = on_each_store


async def test_fast_stream_packs_itself(app: App) -> None:
    @app.task
    async def numbers() -> AsyncIterator[int]:
        for number in range(5000):
            yield number

    async with app.running():
        handle = await numbers.enqueue()
        assert await handle == list(range(5000))
        notes = await app.runtime.store.notes(handle.uuid, 0, 1000, "item")
        assert len(notes) <= 500


async def test_slow_stream_writes_each_item_at_once(app: App) -> None:
    go = asyncio.Event()

    @app.task
    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            yield number
            await go.wait()
            go.clear()

    async with app.running():
        handle = await numbers.enqueue()
        async for _ in handle:
            go.set()
        notes = await app.runtime.store.notes(handle.uuid, 0, 10, "item")
        epoch = notes[0][1].name.partition("/")[0]
        assert [note.name for _, note in notes] == [f"{epoch}/0", f"{epoch}/1", f"{epoch}/2"]


async def test_yield_waits_while_too_much_is_unsaved(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    store = app.runtime.store
    write = store.note
    may_write = asyncio.Event()
    yielded: list[int] = []

    async def note(notes: list[Note]) -> object:
        if notes[0].kind == "item":
            await may_write.wait()
        return await write(notes)

    monkeypatch.setattr(store, "note", note)

    @app.task
    async def numbers(size: int) -> AsyncIterator[str]:
        for number in range(3000):
            yielded.append(number)
            yield "x" * size

    async with app.running():
        handle = await numbers.enqueue(1)
        await until(lambda: len(yielded) >= 1000)
        await every_chance()
        assert len(yielded) == 1000
        may_write.set()
        assert len(await handle) == 3000
        may_write.clear()
        yielded.clear()
        handle = await numbers.enqueue(100_000)
        await until(lambda: len(yielded) >= 11)
        await every_chance()
        assert len(yielded) == 11
        may_write.set()
        with pytest.raises(TaskFailed, match="more than 64 MiB"):
            await handle.result(30)


async def test_item_that_cannot_be_stored_fails_the_task_without_a_retry(app: App) -> None:
    runs: list[int] = []

    @app.task(max_retries=3)
    async def values(large: bool) -> AsyncIterator[object]:
        runs.append(current_task().attempt)
        yield 1
        yield "x" * (1 << 20) if large else object()

    async with app.running():
        for large, problem in ((False, "item 2 of the stream: .*object"), (True, "item 2 of the stream: .*1,048,574")):
            handle = await values.enqueue(large)
            items = aiter(handle)
            assert await anext(items) == 1
            with pytest.raises(TaskFailed, match=problem):
                await anext(items)
    assert runs == [1, 1]


async def test_largest_item_is_stored(app: App) -> None:
    largest = "x" * ((1 << 20) - 2 - len('{"value":""}'))

    @app.task
    async def values() -> AsyncIterator[str]:
        yield "a"
        yield largest
        yield "b"

    async with app.running():
        handle = await values.enqueue()
        assert [value async for value in handle] == ["a", largest, "b"]


async def test_complete_is_refused(app: App) -> None:
    @app.task
    async def numbers() -> AsyncIterator[int]:
        yield 1
        await current_task().complete(connection=object())

    async with app.running():
        with pytest.raises(TaskFailed, match="a stream: it ends by returning"):
            await (await numbers.enqueue()).result(10)


async def test_middleware_surrounds_the_whole_stream(app: App) -> None:
    events: list[str] = []

    @app.around
    async def note(task: object, call: object) -> object:
        events.append("begin")
        value = await call()  # type: ignore[operator]
        events.append("end")
        return value

    @app.task
    async def numbers() -> AsyncIterator[int]:
        events.append("first")
        yield 1
        events.append("last")
        yield 2

    async with app.running():
        assert await (await numbers.enqueue()) == [1, 2]
    assert events == ["begin", "first", "last", "end"]
