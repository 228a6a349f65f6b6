"""Time from ``yield`` to a reader in another process, beside the pick-up of a task by the same worker."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import postgres, redis
from benchmarks.memory import p99
from benchmarks.report import Figure
from benchmarks.sqlite import folder
from onthedot import App

_WORKER = """
import asyncio, sys, time
from collections.abc import AsyncIterator
from onthedot import App
app = App("bench", store=sys.argv[1])
@app.task
async def due(at: float) -> None:
    print((time.monotonic() - at) * 1000, flush=True)
@app.task
async def stamps(count: int) -> AsyncIterator[float]:
    for _ in range(count):
        await asyncio.sleep(0.02)
        yield time.monotonic()
async def main():
    async with app.running():
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""


@contextmanager
def _worker(url: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _WORKER, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.communicate("")


async def _read_and_add(url: str, count: int) -> list[float]:
    """Reads a stream; after each item the worker, which is idle then, gets a task to pick up. Returns ms per item."""
    app = App("bench", store=url)
    delays: list[float] = []
    async with app:
        stream = await app.named("stamps").enqueue(count=count)
        due = app.named("due")
        async for entry in stream.stream():
            if entry.kind == "item":
                delays.append((time.monotonic() - entry.data) * 1000)
                await due.enqueue(at=time.monotonic())
    return delays


def _compare(url: str, scale: float) -> list[Figure]:
    count = max(50, int(300 * scale))
    with _worker(url) as worker:
        items = asyncio.run(_read_and_add(url, count))
        assert worker.stdout is not None
        picked = [float(worker.stdout.readline()) for _ in range(count)]
    median = statistics.median(items)
    return [
        Figure(median, statistics.median(picked), "ms p50", "item → reader beside a pick-up", 1.5, least=False),
        Figure(p99(items), 1, "ms p99", "item → reader in another process", 20, least=False),
    ]


def stream_sqlite(scale: float) -> list[Figure]:
    with folder() as at:
        return _compare(f"sqlite:///{at}/stream.db", scale)


def stream_redis(scale: float) -> list[Figure]:
    with redis.server() as url:
        return _compare(url, scale)


def stream_postgres(scale: float) -> list[Figure]:
    with postgres.server() as url:
        return _compare(url, scale)


MEASURES = [stream_sqlite, stream_redis, stream_postgres]
