"""The Redis store, compared with a bare redis-py loop on the same server: that of Debian, which allocates by jemalloc.

If it is not available, the Valkey of the wheel is used, which allocates by libc; that makes scripts slower.
``ONTHEDOT_TEST_REDIS`` names another program.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from benchmarks.measures import add_rates, countdown, drain_app, growth, noop
from benchmarks.memory import p99
from benchmarks.report import Figure
from benchmarks.sqlite import _WORKER
from onthedot import App
from tests.support.services import debian, valkey
from tests.support.services.programs import Missing, Program


@cache
def _packaged() -> Program | None:
    if os.environ.get("ONTHEDOT_TEST_REDIS"):
        return None
    try:
        return debian.program("redis-server")
    except Missing as why:
        print(f"Debian's Redis cannot be had, the wheel's Valkey is measured: {why}", file=sys.stderr)
        return None


@contextmanager
def server() -> Iterator[str]:
    """A new server on a free port."""
    with valkey.server(runs=_packaged()) as own:
        yield own.url


def flush(url: str) -> None:
    import redis

    with redis.Redis.from_url(url) as client:
        client.flushall()


def redis_drain(scale: float) -> list[Figure]:
    """No-op async tasks per second: added first, then run by one worker with 100 slots."""
    count = int(40_000 * scale)
    with server() as url:
        ours = asyncio.run(drain_app(url, count))
        bare = asyncio.run(_drain_bare(url, count))
        taskiq = asyncio.run(_drain_taskiq(url, max(100, count // 20)))
        huey = _drain_huey(url, max(100, count // 20))
    return [
        Figure(ours, bare, "tasks/s", "a bare loop: claim 100 by Lua, run, settle 100", 0.6, least=True),
        Figure(ours, taskiq, "tasks/s", "taskiq on streams", 15, least=True),
        Figure(ours, huey, "tasks/s", "Huey", 15, least=True),
    ]


async def _drain_taskiq(url: str, count: int) -> float:
    from taskiq.receiver import Receiver
    from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

    broker = RedisStreamBroker(url).with_result_backend(RedisAsyncResultBackend(url))
    (counted, done) = countdown(count)
    stop = asyncio.Event()
    task = broker.register_task(counted, "counted")
    await broker.startup()
    for _ in range(count):
        await task.kiq()
    began = time.perf_counter()
    listening = asyncio.create_task(Receiver(broker, max_async_tasks=100).listen(stop))
    await done.wait()
    took = time.perf_counter() - began
    stop.set()
    listening.cancel()
    await asyncio.wait([listening])
    await broker.shutdown()
    return count / took


def _drain_huey(url: str, count: int) -> float:
    from huey import RedisHuey

    huey = RedisHuey("bench", url=url, blocking=False)

    @huey.task()  # type: ignore[untyped-decorator]
    def nothing() -> None: ...

    for _ in range(count):
        nothing()
    began = time.perf_counter()
    while (each := huey.dequeue()) is not None:
        huey.execute(each)
    return count / (time.perf_counter() - began)


_CLAIM = """
local ids = redis.call('ZRANGE', 'bare:ready', 0, 99)
if #ids == 0 then return {{}, {}} end
redis.call('ZREMRANGEBYRANK', 'bare:ready', 0, #ids - 1)
local leases = {}
for i, id in ipairs(ids) do leases[2 * i - 1], leases[2 * i] = ARGV[1], id end
redis.call('ZADD', 'bare:running', unpack(leases))
return {ids, redis.call('HMGET', 'bare:task', unpack(ids))}
"""
_SETTLE = """
redis.call('ZREM', 'bare:running', unpack(ARGV))
local ends = {}
for i, id in ipairs(ARGV) do ends[2 * i - 1], ends[2 * i] = id, 'succeeded' end
redis.call('HSET', 'bare:result', unpack(ends))
return redis.call('HINCRBY', 'bare:count', 'succeeded', #ARGV)
"""


async def _drain_bare(url: str, count: int) -> float:
    """A careful hand-written loop: an order, a lease and a result per task, two scripts per hundred tasks."""
    from redis.asyncio import Redis

    async with Redis.from_url(url) as client:
        claim = client.register_script(_CLAIM)
        settle = client.register_script(_SETTLE)
        for start in range(0, count, 1000):
            ids = [f"{start + number:036}" for number in range(1000)]
            await client.zadd("bare:ready", {each: start + number for number, each in enumerate(ids)})
            await client.hset("bare:task", mapping=dict.fromkeys(ids, b"{}"))
        gc.collect()
        began = time.perf_counter()
        while True:
            ids, _ = await claim(args=[time.time() + 30])
            if not ids:
                break
            for _ in ids:
                await noop()
            await settle(args=ids)
        return count / (time.perf_counter() - began)


def redis_adds(scale: float) -> list[Figure]:
    """Awaited adds per second: one after the other, and by a hundred concurrent coroutines."""
    count = max(100, int(2000 * scale))
    with server() as url:
        single, many = asyncio.run(add_rates(url, count))
        bare = asyncio.run(_round_trips(url, count))
    return [
        Figure(single, bare, "adds/s", "one by one beside a bare awaited round trip", 0.6, least=True),
        Figure(many, single, "adds/s", "100 at once beside one by one", 5, least=True),
    ]


async def _round_trips(url: str, count: int) -> float:
    from redis.asyncio import Redis

    async with Redis.from_url(url) as client:
        await client.ping()
        began = time.perf_counter()
        for number in range(count):
            await client.hset("bare:task", str(number), b"{}")
        return count / (time.perf_counter() - began)


def redis_bulk(scale: float) -> list[Figure]:
    """Tasks per second, added by the thousand, compared with a bare loop that writes a sorted set and a hash."""
    count = max(1000, int(50_000 * scale))
    with server() as url:
        ours = asyncio.run(_bulk(url, count))
        bare = asyncio.run(_bare_bulk(url, count))
    return [Figure(ours, bare, "adds/s", "1,000 at once beside a bare ZADD and HSET of as many", 0.5, least=True)]


async def _bulk(url: str, count: int) -> float:
    app = App("bench", store=url)
    task = app.task(noop)
    async with app:
        await task.enqueue_many([{}] * 1000)
        began = time.perf_counter()
        for _ in range(0, count, 1000):
            await task.enqueue_many([{}] * 1000)
        return count / (time.perf_counter() - began)


async def _bare_bulk(url: str, count: int) -> float:
    from redis.asyncio import Redis

    async with Redis.from_url(url) as client:
        await client.ping()
        began = time.perf_counter()
        for start in range(0, count, 1000):
            ids = [f"{start + number:036}" for number in range(1000)]
            pipe = client.pipeline(transaction=True)
            pipe.zadd("bare:ready", {each: start + number for number, each in enumerate(ids)})
            pipe.hset("bare:task", mapping=dict.fromkeys(ids, b"{}"))
            await pipe.execute()
        return count / (time.perf_counter() - began)


_LISTENER = """
import asyncio, sys, time
from redis.asyncio import Redis
async def main():
    async with Redis.from_url(sys.argv[1], socket_timeout=None) as client, client.pubsub() as pubsub:
        await pubsub.subscribe("bench")
        async for message in pubsub.listen():
            if message["type"] == "subscribe":
                print("ready", flush=True)
            elif message["data"] == b"over":
                return
            else:
                print((time.monotonic() - float(message["data"])) * 1000, flush=True)
asyncio.run(main())
"""


def redis_pick_up(scale: float) -> list[Figure]:
    """Time from an add to the first line of the task in an idle worker of another process."""
    count = max(50, int(300 * scale))
    with server() as url, _start_process(_WORKER, url) as worker, _start_process(_LISTENER, url) as listener:
        asyncio.run(_add_and_publish(url, count))
        late, raw = (_read_times(each, count) for each in (worker, listener))
    return [
        Figure(p99(late), 1, "ms p99", "a fresh task's pick-up by another process", 10, least=False),
        Figure(
            statistics.median(late), statistics.median(raw), "ms p50", "pick-up beside a bare publish", 1.5, least=False
        ),
    ]


async def _add_and_publish(url: str, count: int) -> None:
    """Alternately, so that a slow moment of the machine affects both."""
    from redis.asyncio import Redis

    app = App("bench", store=url)
    chance = random.Random(3)
    async with app, Redis.from_url(url) as client:
        due = app.named("due")
        for _ in range(count):
            await due.enqueue(at=time.monotonic())
            await asyncio.sleep(chance.uniform(0.002, 0.012))
            await client.publish("bench", repr(time.monotonic()))
            await asyncio.sleep(chance.uniform(0.002, 0.012))
        await client.publish("bench", "over")


def _read_times(process: subprocess.Popen[str], count: int) -> list[float]:
    """The times of all expected tasks; then the process may end."""
    assert process.stdout is not None
    times = [float(process.stdout.readline()) for _ in range(count)]
    process.communicate("")
    return times


@contextmanager
def _start_process(program: str, url: str) -> Iterator[subprocess.Popen[str]]:
    """A process that reports when it is ready."""
    command = [sys.executable, "-c", program, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def redis_growth(scale: float) -> list[Figure]:
    with server() as one, server() as other:
        return growth(one, other, scale)


def redis_memory(scale: float) -> list[Figure]:
    """Bytes of server memory of a pending task with 100 bytes of arguments."""
    with server() as url:
        each = asyncio.run(_memory(url, int(200_000 * scale)))
    return [Figure(each, 1, "bytes", "a pending task with 100 bytes of arguments", 400, least=False)]


async def _memory(url: str, count: int) -> float:
    from redis.asyncio import Redis

    app = App("bench", store=url)

    @app.task
    async def send(text: str) -> None: ...

    async with Redis.from_url(url) as client, app:
        before: Any = (await client.info("memory"))["used_memory"]
        for _ in range(0, count, 1000):
            await send.enqueue_many([{"text": "x" * 89}] * 1000)  # {"text":"…"} is 100 bytes
        await client.slowlog_reset()  # its buffer of 400 kB would be counted on a busy machine
        return ((await client.info("memory"))["used_memory"] - before) / count


MEASURES = [redis_drain, redis_adds, redis_bulk, redis_pick_up, redis_growth, redis_memory]
