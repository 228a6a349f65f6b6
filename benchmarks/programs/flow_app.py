"""Adds and drains no-op tasks: plain, as a chord, or as 1 → N → 1. Run as a module, with the shape as its argument.

It runs from the tree of this benchmark, or from an older one that knows plain tasks only. It writes "ready", waits for
a line, adds the tasks, writes "added", waits for a line, drains, writes "drained", and ends after another line.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from typing import Any

from onthedot import App

COUNT = int(os.environ["BENCH_COUNT"])
_WARM_UP = 200  # tasks before the measurement: connections, statements and codecs are prepared then

app = App("bench", store=os.environ["BENCH_STORE"], concurrency=100)
_done = asyncio.Event()
_left = _WARM_UP


@app.task
async def counted() -> None:
    global _left  # noqa: PLW0603 - the task of a program
    _left -= 1
    if not _left:
        _done.set()


@app.task
async def first() -> None: ...


@app.task
async def joined(results: list[None]) -> None:
    assert len(results) >= COUNT - 1
    _done.set()


async def _add(shape: str) -> None:
    if shape == "plain":
        await counted.enqueue_many([{}] * COUNT)
        return
    from onthedot import group

    others = COUNT if shape == "chord" else COUNT - 1  # 10,000 tasks before the last one are allowed
    members: Any = group([counted.s() for _ in range(others)])
    if shape == "fan":
        members = first.s() | members
    await (members | joined).enqueue()


def _report(stage: str) -> None:
    print(stage, time.process_time(), flush=True)
    sys.stdin.readline()


async def main(shape: str) -> None:
    global _left  # noqa: PLW0603 - the task of a program
    async with app:
        await counted.enqueue_many([{}] * _WARM_UP)
        async with app.running():
            await _done.wait()
        _done.clear()
        _left = COUNT if shape == "plain" else -1
        gc.collect()
        _report("ready")
        await _add(shape)
        _report("added")
        async with app.running():
            await _done.wait()
        _report("drained")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
