"""Working off what is there: the same for every store."""

from __future__ import annotations

import asyncio
import gc
import time

from onthedot import App


async def drain_app(store: str, count: int) -> float:
    """No-op async tasks a second: added first, then run by one worker with 100 slots."""
    app = App("bench", store=store, concurrency=100)
    left, done = count, asyncio.Event()

    async def counted() -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    task = app.task(counted)
    async with app:
        await task.enqueue_many([{}] * count)
        gc.collect()
        began = time.perf_counter()
        async with app.running():
            await done.wait()
            return count / (time.perf_counter() - began)
