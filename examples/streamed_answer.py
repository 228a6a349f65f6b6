"""An answer that is read word by word while a model makes it, and after a reader has lost its connection.

python examples/streamed_answer.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from onthedot import App, current_task

app = App("answers", store="memory://")


async def model(prompt: str, written: int) -> AsyncGenerator[str, None]:
    """Stands for a model that can continue after the words that it has written."""
    for word in f"{prompt}: a task that is on time".split()[written:]:
        await asyncio.sleep(0.01)
        yield word


@app.task(max_retries=3, backoff=0.05)
async def answer(prompt: str) -> AsyncIterator[str]:
    ctx = current_task()
    attempt = ctx.attempt
    async with aclosing(model(prompt, ctx.streamed)) as words:
        async for word in words:
            yield word
            if word == "that" and attempt == 1:
                raise ConnectionError("the model is gone")


@app.task
async def count(words: list[str]) -> int:
    return len(words)


async def main() -> None:
    async with app.running():
        handle = await answer.enqueue("onthedot")
        async for word in handle:
            print(word, end=" ", flush=True)
        print()
        cursors = [cursor async for cursor, _ in handle.items()]
        # onthedot.integrations.fastapi.sse sends these entries to a browser that has been cut off.
        async for entry in app.ahandle(handle.uuid).stream(after=cursors[4]):
            print(f"event: {entry.kind}, data: {entry.data}")
        print("words:", len(await handle), await (await (answer.s("flow") | count).enqueue()))


if __name__ == "__main__":
    asyncio.run(main())
