"""Right uses of batches. mypy --strict and pyright report nothing here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, assert_type

from onthedot import App, Batch, BatchPolicy, BatchProgress, BatchResult, Dedup, Part, SizeTable, StreamEntry, SyncBatch

app = App("shop", store="memory://")


@dataclass
class Name:
    name: str


@app.task
async def one_big_call(type: str, count: int) -> list[Name]:  # noqa: A002 - as the parameter is called
    return []


policy = BatchPolicy(
    split=SizeTable({"item": 16}, other=20),
    dedup=Dedup(key="name", threshold={"item": 0.92}, other=0.95),
    validate=lambda item: "too short" if len(item.name) < 3 else True,
    top_up=1,
    over=2,
    at_once=4,
    fallback=one_big_call,
)
own = BatchPolicy(split=lambda kind, count: [1] * count)


@app.task(batch=policy, max_retries=3)
async def names(type: str, count: int) -> list[Name]:  # noqa: A002 - as the parameter is called
    return []


@app.task(batch=own)
def resize(items: list[str]) -> list[int]:
    return []


def sync_code() -> None:
    batch = app.sync.batch(names, count=5, type="item")
    assert_type(batch, SyncBatch[Name])
    assert_type(batch.first(timeout=1), Part[Name])
    assert_type(batch.all(), BatchResult[Name])
    assert_type(batch.parts(after=1), Iterator[Part[Name]])
    assert_type(app.sync.batch_handle("id"), SyncBatch[Any])
    assert_type(app.sync.batches.thaw("names"), bool)


async def main() -> None:
    batch = await app.batch(
        names, count=5, type="item", args={}, priority="high", deadline=5, existing=["ann"], fallback=None, key="cmd"
    )
    assert_type(batch, Batch[Name])
    assert_type(await app.batch(resize, items=("a", "b"), size=2), Batch[int])
    part = await batch.first(timeout=2)
    assert_type(part, Part[Name])
    assert_type(part.items, list[Name])
    assert_type(batch.parts(after=part.number), AsyncIterator[Part[Name]])
    assert_type(batch.stream(after=""), AsyncIterator[StreamEntry])
    assert_type((await batch.all(timeout=5)).items, list[Name])
    assert_type(await batch.progress(), BatchProgress)
    assert_type(await batch.cancel(), int)
    assert_type(app.batch_handle(batch.id), Batch[Any])
    assert_type(await app.batches.restore("names"), bool)
    await app.batches.drain("names", timeout=60)
