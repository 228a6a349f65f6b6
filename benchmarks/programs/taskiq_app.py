"""taskiq on Redis streams, with stored results."""

from __future__ import annotations

import asyncio

from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from benchmarks.programs.stopwatch import COUNT, STORE, tick

broker = RedisStreamBroker(STORE).with_result_backend(RedisAsyncResultBackend(STORE))


@broker.task("counted")
async def counted() -> None:
    tick()


async def fill() -> None:
    await broker.startup()
    for _ in range(COUNT):
        await counted.kiq()
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(fill())
