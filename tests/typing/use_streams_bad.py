"""Each marked line is an error for mypy --strict and for pyright (test_typing.py compares the lines)."""

from __future__ import annotations

from collections.abc import AsyncIterator

from onthedot import App

app = App("streams")


@app.task
async def words(text: str) -> AsyncIterator[str]:
    yield text


@app.task
async def add_up(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
async def one(word: str) -> str:
    return word


@app.task
async def plain(text: str) -> str:
    return text


async def use_async() -> None:
    handle = await words.enqueue("a")
    await words.enqueue(1)  # E wrong type of an argument
    words.s("a") | add_up  # E items of another type
    words.s("a") | one  # E the whole list is passed
    await words("a")  # E a generator is not awaited
    for word in handle:  # E an async handle
        print(word)
    async for item in handle:
        item.denominator  # E items are str
    async for cursor, item in handle.items(after=3):  # E a cursor is a str
        print(cursor, item)
    async for part in await plain.enqueue("a"):  # E no stream
        print(part)


def use_sync() -> None:
    number: int = next(iter(words.delay("a")))  # E items are str
    print(number)
    for cursor, item in plain.delay("a").items():  # E no stream
        print(cursor, item)
