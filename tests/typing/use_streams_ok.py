"""Streams that mypy --strict and pyright accept."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, assert_type

from onthedot import (
    App,
    AsyncFlowHandle,
    AsyncStreamHandle,
    Call,
    StreamEntry,
    StreamHandle,
    StreamRestarted,
    current_task,
    group,
)

app = App("streams")


@dataclass
class Token:
    text: str


@app.task
async def tokens(prompt: str, *, most: int = 10) -> AsyncIterator[Token]:
    ctx = current_task()
    assert_type(ctx.streamed, int)
    assert_type(await ctx.streamed_items(), list[Any])
    yield Token(prompt)


@app.task(max_retries=3)
async def words(text: str) -> AsyncGenerator[str, None]:
    yield text


@app.task()
async def numbers() -> AsyncIterable[int]:
    yield 1


@app.task
async def count(items: list[str]) -> int:
    return len(items)


@app.task
async def count_all(items: list[list[str]]) -> int:
    return len(items)


async def use_async() -> None:
    handle = await tokens.enqueue("a", most=3)
    _ = assert_type(handle, AsyncStreamHandle[Token])
    async for token in handle:
        assert_type(token, Token)
    async for cursor, item in handle.items(after="1-2"):
        assert_type(cursor, str)
        assert_type(item, Token)
    async for entry in handle.stream(after=""):
        assert_type(entry, StreamEntry)
        assert_type(entry.number, int)
    assert_type(await handle, list[Token])
    assert_type(await handle.result(timeout=5), list[Token])
    _ = assert_type(await words.options(priority=7).enqueue("a"), AsyncStreamHandle[str])
    assert_type(await words.enqueue_many([("a",), {"text": "b"}]), list[AsyncStreamHandle[str]])
    _ = assert_type(tokens.ahandle("0193"), AsyncStreamHandle[Token])
    _ = assert_type(await (words.s("a") | count).enqueue(), AsyncFlowHandle[int])
    async for token in tokens("in place"):
        assert_type(token, Token)
    try:
        print([number async for number in await numbers.enqueue()])
    except StreamRestarted as error:
        assert_type(error.task, str)
    async for entry in app.ahandle("0193").stream():
        assert_type(entry.kind == "end", bool)


def use_sync() -> None:
    handle = words.delay("a")
    assert_type(handle, StreamHandle[str])
    for word in handle:
        assert_type(word, str)
    assert_type(handle.items(), Iterator[tuple[str, str]])
    assert_type(handle.result(timeout=5), list[str])
    assert_type(words.delay_many([words.s("a")]), list[StreamHandle[str]])
    assert_type(words.handle("0193"), StreamHandle[str])
    assert_type(words.s("a"), Call[list[str]])
    assert_type(words.s("a") | count, Call[int])
    assert_type(group(words.s(text) for text in "ab") | count_all, Call[int])
    for entry in app.handle("0193").stream(after="1-2"):
        assert_type(entry, StreamEntry)
