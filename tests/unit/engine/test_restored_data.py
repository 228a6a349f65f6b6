"""A store goes back to an older copy, or to an empty replica, while a worker runs on it.

A worker whose session is in the older copy keeps its runs; it reports the loss once and declares schedules and limits
again. After a complete loss it opens a new session.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from onthedot import StoreUnavailable
from onthedot.operations.workers import live_workers
from tests.support.services import valkey
from tests.support.services.ports import free_port
from tests.support.services.postgres_server import binaries, without_root
from tests.support.services.topologies import sentinels
from tests.support.waits import until
from tests.unit.engine.data_loss import Shop, add_long_task, assert_one_error

pytestmark = pytest.mark.once

Restore = Callable[[], None]
PATIENCE = 60  # seconds for the Sentinels to agree on a busy machine


class CopiedStore:
    """A store of which a copy can be made and restored."""

    def __init__(self, url: str, copy: Callable[[], Restore]) -> None:
        self.url = url
        self.copy = copy


@contextmanager
def _sqlite(folder: Path, *, in_place: bool) -> Iterator[CopiedStore]:
    """in_place: by the backup API; otherwise the copy replaces the file."""
    path = folder / "shop.db"

    def copy_to(source: Path, target: Path) -> None:
        with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
            old.backup(new)

    def restore() -> None:
        if in_place:
            copy_to(folder / "copy", path)
            return
        for name in ("shop.db-wal", "shop.db-shm"):
            (folder / name).unlink(missing_ok=True)
        (folder / "copy").replace(path)

    def copy() -> Restore:
        copy_to(path, folder / "copy")
        return restore

    yield CopiedStore(f"sqlite:///{path}", copy)


@contextmanager
def _redis() -> Iterator[CopiedStore]:
    with valkey.server() as server, redis.Redis.from_url(server.url) as client:

        def copy() -> Restore:
            dumps: list[tuple[Any, Any]] = [(key, client.dump(key)) for key in client.scan_iter()]

            def restore() -> None:
                with client.pipeline(transaction=True) as pipeline:
                    pipeline.flushall()
                    for key, value in dumps:
                        pipeline.restore(key, 0, value)
                    pipeline.execute()

            return restore

        yield CopiedStore(server.url, copy)


@contextmanager
def _postgres(service: Any, folder: Path) -> Iterator[CopiedStore]:
    """By pg_dump and psql, as the manual restores a schema."""

    def run(program: str, url: str, *options: str) -> None:
        command = [*without_root(), str(binaries() / program), "-d", url, *options]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "LC_ALL": "C.UTF-8"})

    with service.database() as url:
        dump = str(folder / "dump.sql")

        def copy() -> Restore:
            run("pg_dump", url, "--schema=onthedot", "--clean", "--if-exists", "--file", dump)
            return lambda: run("psql", url, "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", "--file", dump)

        yield CopiedStore(url, copy)


@pytest.fixture(params=["sqlite in place", "sqlite replaced", "redis", "postgres"])
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CopiedStore]:
    match request.param:
        case "redis":
            made = _redis()
        case "postgres":
            tmp_path.chmod(0o777)  # the programs run as another user
            made = _postgres(request.getfixturevalue("postgres"), tmp_path)
        case name:
            made = _sqlite(tmp_path, in_place=name == "sqlite in place")
    with made as copied:
        yield copied


async def test_worker_keeps_its_runs_if_an_older_copy_is_restored(
    copied: CopiedStore, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(copied.url)
    runs, go_on = add_long_task(shop.app)
    async with shop.app.running():
        handle = await shop.app.named("long").enqueue()
        await until(lambda: runs)
        restore = await asyncio.to_thread(copied.copy)
        await asyncio.gather(*await shop.single.enqueue_many([{}] * 5))
        await asyncio.to_thread(restore)
        before = shop.ticks
        await until(lambda: shop.ticks >= before + 3)
        await asyncio.gather(*await shop.single.enqueue_many([{}] * 5))
        assert shop.most == 1
        go_on.set()
        await handle
        (worker,) = await live_workers(shop.app.runtime.store)
        assert worker.data_lost is not None
    assert runs == ["began"]
    assert_one_error(caplog, "went back to an older state")


# -- a replica is promoted


@asynccontextmanager
async def _behind_sentinels() -> AsyncIterator[tuple[Shop, valkey.Server, valkey.Server]]:
    with sentinels() as ((master, replica), watchers):
        hosts = ",".join(f"127.0.0.1:{watcher.port}" for watcher in watchers)
        yield Shop(f"redis+sentinel://{hosts}/mymaster"), master, replica


async def _works_again(shop: Shop) -> None:
    """Windows of the schedule have tasks again, and the limit holds."""
    before = shop.ticks
    await until(lambda: shop.ticks >= before + 3, timeout=PATIENCE)
    await asyncio.gather(*await _when_there_is_a_master(lambda: shop.single.enqueue_many([{}] * 5)))
    assert shop.most == 1


async def _when_there_is_a_master(call: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await call()
            except StoreUnavailable:
                await asyncio.sleep(0.1)


@pytest.mark.fault
async def test_worker_declares_again_after_an_empty_replica_was_promoted(caplog: pytest.LogCaptureFixture) -> None:
    async with _behind_sentinels() as (shop, master, replica), shop.app.running():
        await until(lambda: shop.ticks > 0)
        _detach(replica)
        assert replica.ask("CONFIG", "SET", "replica-read-only", "no") == b"+OK"
        assert replica.ask("FLUSHALL") == b"+OK"
        await asyncio.to_thread(master.kill)
        await _works_again(shop)
        (worker,) = await live_workers(shop.app.runtime.store)
        assert worker.data_lost is not None
    assert_one_error(caplog, "has lost its data")


def _detach(replica: valkey.Server) -> None:
    """It gets nothing more. The Sentinels would connect it again after some seconds."""
    assert replica.ask("REPLICAOF", "127.0.0.1", free_port()) == b"+OK"


@pytest.mark.fault
async def test_worker_keeps_its_runs_if_a_failover_loses_the_last_writes(caplog: pytest.LogCaptureFixture) -> None:
    async with _behind_sentinels() as (shop, master, replica):
        runs, go_on = add_long_task(shop.app)
        async with shop.app.running():
            handle = await shop.app.named("long").enqueue()
            await until(lambda: runs)
            assert master.ask("WAIT", 1, 5000) == b":1"
            _detach(replica)
            await asyncio.gather(*await shop.single.enqueue_many([{}] * 5))
            await asyncio.to_thread(master.kill)
            await _works_again(shop)
            go_on.set()
            await _when_there_is_a_master(lambda: handle)
    assert runs == ["began"]
    assert_one_error(caplog, "went back to an older state")
