"""A stream that starts child tasks and continues from its items, as the coordinator of a batch does."""

from __future__ import annotations

from collections.abc import AsyncIterator

from onthedot import App, current_task, group
from tests.unit.durable.stores import on_each_store

pytestmark = on_each_store


async def test_coordinator_streams_a_part_per_child_and_continues_from_them(app: App) -> None:
    states: list[list[int]] = []

    @app.task
    async def double(number: int) -> int:
        return number * 2

    @app.task
    async def coordinator(count: int) -> AsyncIterator[int]:
        ctx = current_task()
        parts = await ctx.streamed_items()
        states.append(list(parts))
        for number in range(count):
            part = await ctx.run(double.s(number))
            if number >= len(parts):
                yield part

    async with app.running():
        handle = await coordinator.enqueue(3)
        entries = [entry async for entry in handle.stream()]
        assert [(entry.number, entry.data) for entry in entries] == [(1, 0), (2, 2), (3, 4), (4, "succeeded")]
        assert await handle == [0, 2, 4]
    assert states == [[], [], [0], [0, 2]], "one run per child, and each begins with the items so far"


async def test_child_may_be_a_stream(app: App) -> None:
    @app.task
    async def numbers(count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number

    @app.task
    async def parent() -> list[object]:
        ctx = current_task()
        return [await ctx.run(numbers.s(3)), await ctx.run(group(numbers.s(count) for count in (1, 2)))]

    async with app.running():
        assert await (await parent.enqueue()).result(10) == [[0, 1, 2], [[0], [0, 1]]]


async def test_following_task_reads_the_items_page_by_page(app: App) -> None:
    @app.task
    async def numbers(count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number

    @app.task
    async def collect() -> list[object]:
        return [result async for result in current_task().results()]

    async with app.running():
        streams = group(numbers.s(count) for count in (2, 0, 3))
        assert await (await collect.s().after(streams).enqueue()).result(10) == [[0, 1], [], [0, 1, 2]]
