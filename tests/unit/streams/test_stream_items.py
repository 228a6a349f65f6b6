"""Streams: items are read while the task runs, in order, once, and from any cursor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from onthedot import (
    App,
    ArgumentError,
    StreamEntry,
    TaskCancelled,
    TaskFailed,
    TaskNotFound,
    group,
)
from tests.support.waits import until
from tests.unit.durable.stores import on_each_store

pytestmark = on_each_store


@dataclass
class Token:
    text: str
    at: datetime


async def test_reader_gets_each_item_while_the_task_runs(app: App) -> None:
    read = asyncio.Event()

    @app.task
    async def letters() -> AsyncIterator[str]:
        for letter in "abc":
            yield letter
            await read.wait()
            read.clear()

    async with app.running():
        handle = await letters.enqueue()
        seen: list[str] = []
        async for letter in handle:
            seen.append(letter)
            read.set()
        assert seen == ["a", "b", "c"]
        assert await handle == ["a", "b", "c"]


async def test_items_come_back_equal_and_of_their_type(app: App) -> None:
    made = [Token("a", datetime(2026, 11, 18, tzinfo=UTC)), Token("ü", datetime(2026, 1, 1, tzinfo=UTC))]

    @app.task
    async def tokens() -> AsyncIterator[Token]:
        for token in made:
            yield token

    @app.task
    async def anything():  # type: ignore[no-untyped-def]
        for value in values:
            yield value

    values = [None, 0, "", (1, 2), {1}, {"at": datetime(2026, 1, 1, tzinfo=UTC)}, b"raw"]
    async with app.running():
        handle = await tokens.enqueue()
        assert [token async for token in handle] == made
        assert await handle == made
        untyped = await anything.enqueue()
        assert [value async for value in untyped] == values
        assert await untyped == values
        assert await app.ahandle(untyped.uuid) == values


async def test_entries_are_numbered_without_gaps_and_end_with_the_end(app: App) -> None:
    @app.task
    async def numbers(count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number

    async with app.running():
        handle = await numbers.enqueue(250)
        entries = [entry async for entry in handle.stream()]
        assert [entry.number for entry in entries] == list(range(1, 252))
        assert [entry.data for entry in entries[:-1]] == list(range(250))
        assert {entry.kind for entry in entries[:-1]} == {"item"}
        epoch = entries[0].cursor.partition("-")[0]
        assert entries[1].cursor == f"{epoch}-2"
        assert entries[-1] == StreamEntry(f"{epoch}-250", 251, "end", "succeeded")
        for at in (0, 99, 248):
            rest = [entry async for entry in app.ahandle(handle.uuid).stream(after=entries[at].cursor)]
            assert rest == entries[at + 1 :]
        assert [entry async for entry in handle.stream(after=entries[-1].cursor)] == entries[-1:]


async def test_items_continue_after_a_cursor(app: App) -> None:
    more = asyncio.Event()

    @app.task
    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            yield number
        await more.wait()
        for number in range(3, 6):
            yield number

    async with app.running():
        handle = await numbers.enqueue()
        cursor = ""
        seen: list[int] = []
        while len(seen) < 6:
            async for cursor, number in handle.items(after=cursor):  # noqa: B007, B020 - it disconnects after each item
                seen.append(number)
                break
            if len(seen) == 3:
                more.set()
        assert seen == list(range(6))
        assert [item async for item in handle.items(after=cursor)] == []


async def test_stream_without_items_ends(app: App) -> None:
    @app.task
    async def nothing() -> AsyncIterator[int]:
        for number in ():
            yield number

    async with app.running():
        handle = await nothing.enqueue()
        assert [item async for item in handle] == []
        assert await handle == []
        (end,) = [entry async for entry in handle.stream()]
        assert (end.number, end.kind) == (1, "end")


async def test_stream_of_another_task_is_only_its_end(app: App) -> None:
    @app.task
    async def plain() -> int:
        return 3

    async with app.running():
        handle = await plain.enqueue()
        assert [entry async for entry in app.ahandle(handle.uuid).stream()] == [
            StreamEntry("0-0", 1, "end", "succeeded")
        ]


async def test_error_of_the_task_comes_after_its_items(app: App) -> None:
    @app.task
    async def breaks() -> AsyncIterator[int]:
        yield 1
        yield 2
        raise ValueError("no more")

    async with app.running():
        handle = await breaks.enqueue()
        items = aiter(handle)
        assert [await anext(items), await anext(items)] == [1, 2]
        with pytest.raises(TaskFailed, match="no more"):
            await anext(items)
        entries = [entry async for entry in handle.stream()]
        assert [entry.data for entry in entries] == [1, 2, "failed"]


async def test_cancelled_stream_ends_its_readers(app: App) -> None:
    @app.task
    async def endless() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    async with app.running():
        handle = await endless.enqueue()
        items = aiter(handle)
        assert await anext(items) == 1
        await handle.cancel()
        with pytest.raises(TaskCancelled):
            await anext(items)


async def test_flow_passes_the_list(app: App) -> None:
    @app.task
    async def numbers(count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number

    @app.task
    async def add_up(values: list[int]) -> int:
        return sum(values)

    @app.task
    async def add_all(many: list[list[int]]) -> int:
        return sum(map(sum, many))

    async with app.running():
        assert await (await (numbers.s(300) | add_up).enqueue()).result(10) == sum(range(300))
        both = group(numbers.s(count) for count in (3, 0, 4))
        assert await (await (both | add_all).enqueue()).result(10) == 9
        assert await (await both.enqueue()).result(10) == [[0, 1, 2], [], [0, 1, 2, 3]]
        alone = await numbers.s(2).enqueue()
        assert await alone == [0, 1]
        assert [entry.data async for entry in alone.stream()] == [0, 1, "succeeded"]


async def test_stream_with_keep_0_ends_for_its_reader(app: App) -> None:
    @app.task(keep=0)
    async def numbers() -> AsyncIterator[int]:
        yield 1
        yield 2

    @app.task(keep=0)
    async def breaks() -> AsyncIterator[int]:
        yield 1
        raise ValueError("no more")

    async with app.running():
        assert [number async for number in await numbers.enqueue()] == [1, 2]
        with pytest.raises(TaskFailed, match="no more"):
            [number async for number in await breaks.enqueue()]


async def test_reader_that_stops_early_leaves_nothing(app: App) -> None:
    more = asyncio.Event()

    @app.task
    async def numbers() -> AsyncIterator[int]:
        yield 1
        yield 2
        await more.wait()

    async with app.running():
        handle = await numbers.enqueue()
        async for _ in handle:
            break
        client = await app.runtime.portal.connect()
        assert not client.results.has_readers
        waiting = asyncio.create_task(_read_all(handle.stream()))
        await until(lambda: client.results.has_readers)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not client.results.has_readers
        await app.runtime.portal.disconnect()
        more.set()
        assert await handle == [1, 2]


async def test_cancelled_wait_for_an_item_can_be_repeated(app: App) -> None:
    more = asyncio.Event()

    @app.task
    async def numbers() -> AsyncIterator[int]:
        yield 1
        await more.wait()
        yield 2

    async with app.running():
        items = aiter(await numbers.enqueue())
        assert await anext(items) == 1
        waiting = asyncio.ensure_future(anext(items))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="is being read by this iterator already"):
            await anext(items)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        more.set()
        assert await anext(items) == 2
        with pytest.raises(StopAsyncIteration):
            await anext(items)
        with pytest.raises(StopAsyncIteration):
            await anext(items)


async def _read_all(entries: AsyncIterator[StreamEntry]) -> list[StreamEntry]:
    return [entry async for entry in entries]


async def test_unknown_task_and_bad_cursor_are_refused(app: App) -> None:
    async with app:
        with pytest.raises(TaskNotFound):
            await _read_all(app.ahandle("0193").stream())
        with pytest.raises(TaskNotFound):
            await _read_all(app.ahandle("no name\n").stream())
        for bad in ("x", "1", "1-", "-1", "1-2-3", None, 5):
            with pytest.raises(ArgumentError, match="is no cursor"):
                app.ahandle("0193").stream(after=bad)  # type: ignore[arg-type]


async def test_lost_hints_delay_items_only(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async def subscribe(session: str, uuids: list[str]) -> None:
        """The store forgets it."""

    monkeypatch.setattr(app.runtime.store, "subscribe", subscribe)

    @app.task
    async def numbers() -> AsyncIterator[int]:
        yield 1
        await read.wait()
        yield 2

    read = asyncio.Event()
    async with app.running():
        seen: list[int] = []
        async for number in await numbers.enqueue():
            seen.append(number)
            read.set()
        assert seen == [1, 2]


def test_sync_code_reads_a_stream(app: App) -> None:
    @app.task
    async def numbers(count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number

    with app.background():
        handle = numbers.delay(5)
        assert list(handle) == [0, 1, 2, 3, 4]
        assert handle.result(timeout=10) == [0, 1, 2, 3, 4]
        cursor = next(cursor for cursor, number in handle.items() if number == 2)
        assert [number for _, number in numbers.handle(handle.uuid).items(after=cursor)] == [3, 4]
        assert [entry.data for entry in app.handle(handle.uuid).stream(after=cursor)] == [3, 4, "succeeded"]
        first, second = numbers.delay_many([(2,), numbers.s(3)])
        assert (list(first), list(second)) == ([0, 1], [0, 1, 2])
        (optional,) = numbers.options(priority=7).delay_many([{"count": 1}])
        assert list(optional) == [0]


async def test_function_is_called_in_place(app: App) -> None:
    @app.task
    async def numbers(count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number

    assert [number async for number in numbers(3)] == [0, 1, 2]
    assert repr(numbers) == "<stream numbers>"
