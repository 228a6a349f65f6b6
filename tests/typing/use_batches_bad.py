"""Wrong uses of batches. mypy --strict and pyright report every line that is marked, and no other."""

from __future__ import annotations

from onthedot import App, BatchPolicy, Dedup, SizeTable

app = App("shop", store="memory://")


@app.task(batch=BatchPolicy(split=SizeTable({"item": 16})))
async def names(type: str, count: int) -> list[str]:  # noqa: A002 - as the parameter is called
    return []


@app.task
async def total(items: list[int]) -> int:
    return 0


SizeTable({"item": "16"})  # E no number
Dedup(threshold=0.95)  # E a number for all types
BatchPolicy(split=[1, 2])  # E no function
BatchPolicy(fallback="one_big_call")  # E a name, not a task


async def main() -> None:
    await app.batch(total, items=[1])  # E it returns no list
    await app.batch(names, count="5")  # E no number
    await app.batch(names, count=5, style="old")  # E belongs into args
    await app.batch("names", count=5)  # E a name, not a task
    batch = await app.batch(names, count=5)
    batch.parts(after="1-1")  # E a cursor is for stream()
    app.batches.freeze("names")  # E not awaited
