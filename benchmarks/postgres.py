"""Postgres with default durability (fsync, synchronous_commit): App compared with a bare asyncpg loop and PgQueuer."""

from __future__ import annotations

import asyncio
import gc
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.measures import add_rates, drain_app, growth, noop
from benchmarks.report import Figure
from tests.support.services.postgres_server import Server


@contextmanager
def server() -> Iterator[str]:
    """A server with default settings except memory, on loopback."""
    folder = Path(tempfile.mkdtemp(prefix="onthedot-bench-"))
    made = Server(folder, {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "shared_buffers": "256MB"})
    try:
        made.make()
        made.start()
        yield made.url
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


async def _connect(url: str) -> Any:
    import asyncpg

    return await asyncpg.connect(url)


async def execute(url: str, statement: str) -> None:
    connection = await _connect(url)
    await connection.execute(statement)
    await connection.close()


def postgres_drain(scale: float) -> list[Figure]:
    """No-op async tasks per second: added first, then run by one worker with 100 slots."""
    count = int(20_000 * scale)
    with server() as url:
        bare = asyncio.run(_drain_bare(url, count))
        ours = asyncio.run(drain_app(url, count))
        peer = asyncio.run(_drain_pgqueuer(url, count // 4, 10))
        tuned = asyncio.run(_drain_pgqueuer(url, count, 100))
    return [
        Figure(ours, bare, "tasks/s", "a bare loop: claim 100, run, settle 100", 0.6, least=True),
        Figure(ours, peer, "tasks/s", "PgQueuer, batches of 10", 2.5, least=True),
        Figure(ours, tuned, "tasks/s", "PgQueuer, batches of 100", 0.6, least=True),
    ]


async def _drain_bare(url: str, count: int) -> float:
    """A careful hand-written loop: one table, an index of pending tasks, two statements per hundred tasks."""
    connection = await _connect(url)
    await connection.execute("CREATE TABLE bare (id bigserial PRIMARY KEY, body bytea, state int, result bytea)")
    await connection.execute("CREATE INDEX waiting ON bare (id) WHERE state = 0")
    await connection.execute("INSERT INTO bare (body, state) SELECT '{}', 0 FROM generate_series(1, $1::int)", count)
    gc.collect()
    began = time.perf_counter()
    while rows := await connection.fetch(
        "UPDATE bare SET state = 1 WHERE id = ANY (ARRAY("
        "SELECT id FROM bare WHERE state = 0 ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED)) RETURNING id, body"
    ):
        for _ in rows:
            await noop()
        await connection.execute("UPDATE bare SET state = 2 WHERE id = ANY ($1)", [row[0] for row in rows])
    took = time.perf_counter() - began
    await connection.close()
    return count / took


async def _drain_pgqueuer(url: str, count: int, batch: int) -> float:
    from pgqueuer import PgQueuer
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.queries import Queries

    connection = await _connect(url)
    driver = AsyncpgDriver(connection)
    queries = Queries(driver)
    if not await queries.schema_is_installed():
        await queries.install()
    for start in range(0, count, 1000):
        some = min(1000, count - start)
        await queries.enqueue(["noop"] * some, [b"{}"] * some, [0] * some)
    peer = PgQueuer(driver)
    left = count
    done = asyncio.Event()

    @peer.entrypoint("noop")
    async def counted(_: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    gc.collect()
    began = time.perf_counter()
    running = asyncio.create_task(peer.run(batch_size=batch, dequeue_timeout=timedelta(seconds=1)))
    await done.wait()
    took = time.perf_counter() - began
    peer.shutdown.set()
    await running
    await connection.close()
    return count / took


def postgres_adds(scale: float) -> list[Figure]:
    """Awaited adds per second: one after the other, and by a hundred concurrent coroutines."""
    count = max(100, int(1000 * scale))
    with server() as url:
        single, many = asyncio.run(add_rates(url, count))
        bare = asyncio.run(_bare_adds(url, count))
    return [
        Figure(many, single, "adds/s", "100 at once beside one by one", 5, least=True),
        Figure(single, bare, "adds/s", "one by one beside a bare INSERT", 0.3, least=True),
    ]


async def _bare_adds(url: str, count: int) -> float:
    connection = await _connect(url)
    await connection.execute("CREATE TABLE one (id bigserial PRIMARY KEY, body bytea)")
    began = time.perf_counter()
    for _ in range(count):
        await connection.execute("INSERT INTO one (body) VALUES ($1)", b"{}")
    took = time.perf_counter() - began
    await connection.close()
    return count / took


def postgres_growth(scale: float) -> list[Figure]:
    with server() as one, server() as other:

        async def settled() -> None:
            """Otherwise only the larger store would pay for first writes of pages after a checkpoint."""
            for url in (one, other):
                connection = await _connect(url)
                await connection.execute("CHECKPOINT")
                await connection.close()

        return growth(one, other, scale, settled)


MEASURES = [postgres_drain, postgres_adds, postgres_growth]
