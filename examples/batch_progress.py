"""A batch of names in parts: the first ones at once, then all of them, without duplicates; and a degraded one.

python examples/batch_progress.py
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from onthedot import App, BatchPolicy, Dedup, SizeTable, SourceFrozen, current_task

app = App("names", store="memory://")
FIRST = ["Ada", "Bo", "Cleo", "Dag", "Eva", "Finn", "Gus", "Hal"]
LAST = ["Lind", "Moss", "North", "Oak", "Pike", "Quill"]


@dataclass
class Name:
    name: str


@app.task
async def one_big_call(count: int, style: str) -> list[Name]:
    return [Name(f"{style} {FIRST[number % 8]} {LAST[number // 8]}") for number in range(count)]


policy = BatchPolicy(
    split=SizeTable({}, other=4),
    dedup=Dedup(key="name", other=0.95),
    validate=lambda item: "too short" if len(item.name) < 3 else True,
    fallback=one_big_call,
)


@app.task(batch=policy, max_retries=3)
async def names(count: int, style: str) -> list[Name]:
    """Stands for a request to a model, which takes long and repeats itself."""
    index = int(current_task().metadata["subtask_id"].rpartition(":")[2])
    await asyncio.sleep(0.05 * index)
    people = [f"{FIRST[number % 8]} {LAST[index % 6]}" for number in range(count)]
    return [Name(f"{style} {person}") for person in ["Ada Lind", *people[1:]]]


async def main() -> None:
    async with app.running():
        batch = await app.batch(names, count=10, args={"style": "old"}, deadline=5, key="cmd-17")
        first = await batch.first(timeout=2)
        print("first:", [item.name for item in first.items])
        async for part in batch.parts(after=first.number):
            print(f"part {part.number}: {len(part.items)} kept, refused {part.refused}")
        result = await batch.all(timeout=5)
        print(f"all: {len(result.items)} names, {result.short_by} missing")
        same = await app.batch(names, count=10, args={"style": "old"}, deadline=5, key="cmd-17")
        print("the same key is the same batch:", same.id == batch.id)

        await app.batches.degrade("names")
        await asyncio.sleep(1)  # other calls may be one second behind
        degraded = await app.batch(names, count=10, args={"style": "new"})
        print(
            "degraded:",
            len((await degraded.all(timeout=5)).items),
            "names in",
            (await degraded.progress()).total,
            "part",
        )
        await app.batches.drain("names", timeout=5)
        try:
            await app.batch(names, count=10, args={"style": "old"})
        except SourceFrozen as error:
            print(f"frozen: try again in {error.retry_after:g} s")


if __name__ == "__main__":
    asyncio.run(main())
