"""Streams whose worker dies or stops in the middle. As a program: one worker of it, or a reader of one stream.

The environment variables STORE and RUN_LOG name the store and a file; files beside it remember where a task has died.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from onthedot import App, current_task
from tests.support.waits import until

app = App("shop", store=os.environ.get("STORE", "memory://"), stop_timeout=0.1)


def is_first_time(point: str) -> bool:
    """Whether a task gets to this point for the first time, in any process."""
    memory = Path(os.environ["RUN_LOG"]).with_suffix(f".{current_task().uuid}.{point}")
    if memory.exists():
        return False
    memory.touch()
    return True


@app.task
async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        if number % 50 == 0:
            await asyncio.sleep(0.002)  # it takes a while, so that readers read while it runs
        yield number


@app.task
async def timestamps(count: int) -> AsyncIterator[float]:
    """The first item comes when a reader is there."""
    await current_task().wait_for("read")
    for _ in range(count):
        await asyncio.sleep(0.1)
        yield time.time()


@app.task(max_crashes=1000)
async def begins_again(count: int, deaths: int) -> AsyncIterator[str]:
    ctx = current_task()
    for number in range(count):
        yield f"{ctx.attempt}: {number}"
        if number == count // 2 and ctx.attempt <= deaths:
            await until(lambda: ctx.streamed == number + 1)  # noqa: B023 - awaited here
            await asyncio.sleep(0.2)  # a reader gets them
            os.kill(os.getpid(), signal.SIGKILL)


@app.task(max_crashes=1000)
async def continues(count: int, every: int) -> AsyncIterator[int]:
    """Dies after every so many items, wherever the writes are."""
    ctx = current_task()
    for number in range(ctx.streamed, count):
        if number % 7 == 0:
            await asyncio.sleep(0)
        yield number
        if number and number % every == 0 and is_first_time(f"{number}"):
            os.kill(os.getpid(), signal.SIGKILL)


@app.task
async def stopped(count: int, going_on: bool) -> AsyncIterator[int]:
    """Is interrupted by the stop of its worker. going_on: it continues its stream."""
    ctx = current_task()
    begin = ctx.streamed if going_on else 0
    for number in range(begin, count):
        yield number
        if number == count // 2 and is_first_time("held"):
            await asyncio.Event().wait()


async def read(uuid: str, disconnects: int, page: int) -> None:
    """Reads a stream, closes its connection again and again, and prints what it has read."""
    cursor = ""
    items: list[int] = []
    kinds: list[str] = []
    while "end" not in kinds:
        async with app:
            left = page if disconnects > 0 else sys.maxsize
            async for entry in app.ahandle(uuid).stream(after=cursor):
                cursor = entry.cursor
                kinds.append(entry.kind)
                if entry.kind == "item":
                    assert entry.number == len(items) + 1
                    items.append(entry.data)
                left -= 1
                if not left:
                    break
        disconnects -= 1
    print(json.dumps({"items": items, "connections_left": disconnects, "kinds": sorted(set(kinds))}))


async def measure(uuid: str) -> None:
    """Prints after how many seconds each item came."""
    async with app:
        await app.ahandle(uuid).signal("read")
        delays = [time.time() - entry.data async for entry in app.ahandle(uuid).stream() if entry.kind == "item"]
    print(json.dumps(delays))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["read", uuid, disconnects, page]:
            asyncio.run(read(uuid, int(disconnects), int(page)))
        case ["measure", uuid]:
            asyncio.run(measure(uuid))
        case _:
            app.run()
