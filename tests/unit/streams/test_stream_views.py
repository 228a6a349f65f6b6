"""Streams in tests with a manual clock, and on other event loops than that of the worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from onthedot import App, SchedulerStateError, StreamRestarted, current_task
from onthedot.testing import TestApp


def declare(app: App) -> None:
    @app.task
    async def numbers(count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number


async def test_manual_clock_drives_a_stream() -> None:
    app = App("shop")

    @app.task
    async def days() -> AsyncIterator[str]:
        ctx = current_task()
        streamed = ctx.streamed
        for day in range(4):
            if day:
                await ctx.sleep(86_400)
            if day >= streamed:
                yield f"day {day}"

    with TestApp(app) as test:
        handle = await days.enqueue()
        await test.run_until_idle()
        items = aiter(handle)
        assert await anext(items) == "day 0"
        with pytest.raises(TimeoutError, match="has no new items, and nothing runs now; in a test tasks run inside"):
            await anext(items)
        await test.advance(days=1)
        assert await anext(items) == "day 1"
        await test.advance(days=1)
        assert await anext(items) == "day 2"
        await test.advance(days=1)
        assert [item async for item in items] == ["day 3"]
        assert await handle == ["day 0", "day 1", "day 2", "day 3"]


def test_manual_clock_drives_a_stream_for_sync_code() -> None:
    app = App("shop")

    @app.task(max_retries=1, backoff=60.0)
    async def numbers() -> AsyncIterator[int]:
        yield current_task().attempt
        if current_task().attempt == 1:
            raise ValueError("again")

    with TestApp(app) as test:
        handle = numbers.delay()
        test.sync.run_until_idle()
        items = iter(handle)
        assert next(items) == 1
        test.sync.advance(120)
        with pytest.raises(StreamRestarted):
            next(items)
        assert list(handle) == [2]


async def test_sync_reading_on_the_loop_of_the_worker_is_refused() -> None:
    app = App("shop", store="memory://")
    declare(app)
    async with app.running():
        handle = app.named("numbers").delay(count=3)
        with pytest.raises(SchedulerStateError, match="would block the very event loop that runs it"):
            handle.stream()


async def test_stream_is_read_from_other_event_loops() -> None:
    """One reader on the loop of the worker, one on the portal's thread, one on a loop of its own."""
    app = App("shop", store="memory://")
    begun = asyncio.Event()

    @app.task
    async def numbers() -> AsyncIterator[int]:
        for number in range(5):
            yield number
            if number == 2:
                await begun.wait()

    def in_thread(uuid: str) -> list[int]:
        return [entry.data for entry in app.handle(uuid).stream()][:-1]

    def on_a_loop(uuid: str) -> list[int]:
        async def read() -> list[int]:
            return [number async for number in numbers.ahandle(uuid)]

        return asyncio.run(read())

    async with app.running():
        handle = await numbers.enqueue()
        readers = [asyncio.to_thread(in_thread, handle.uuid), asyncio.to_thread(on_a_loop, handle.uuid)]
        reading = asyncio.gather(*readers)
        begun.set()
        assert [number async for number in handle] == list(range(5))
        assert await reading == [list(range(5)), list(range(5))]
    app.shutdown()  # the thread of the portal
