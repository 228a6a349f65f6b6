"""Ours: `onthedot worker`, or with the argument ``running`` a program of the user's with `app.running()`."""

from __future__ import annotations

import asyncio
import sys

from benchmarks.programs.stopwatch import COUNT, STORE, is_done, tick
from onthedot import App

app = App("bench", store=STORE, concurrency=100)


@app.task
async def counted() -> None:
    tick()


async def run() -> None:
    async with app.running():
        while not is_done():  # noqa: ASYNC110 - the worker shall do nothing else
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    if sys.argv[1:] == ["running"]:
        asyncio.run(run())
    else:
        app.named("counted").delay_many([{}] * COUNT)
