"""A store and the naive store take the same random steps and must never differ.

`ONTHEDOT_EXAMPLES=5000` runs longer than CI; a failure prints the steps, and the blob that repeats them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest
import redis
from hypothesis import HealthCheck, settings

from onthedot.stores.contract import Store
from onthedot.stores.redis import RedisStore
from onthedot.stores.sqlite import SqliteStore
from tests.model.example_settings import NEW
from tests.model.machine import Stores
from tests.support.services import valkey
from tests.support.services.postgres import Service
from tests.unit.stores.redis.alarms import WIDTH, alarms_of

T = TypeVar("T")


class SqliteStores(Stores):
    """The same steps in a file, in memory if possible, because durability is not tested here."""

    def made(self) -> Store:
        self.loop = asyncio.new_event_loop()
        self.folder = TemporaryDirectory(prefix="model-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        store = SqliteStore(Path(self.folder.name, "onthedot.db"), self.clock)
        self.wait(store.open())
        return store

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        self.wait(self.store.close())
        self.loop.close()
        self.folder.cleanup()


class PostgresStores(Stores):
    """The same steps on a real server, with connections that stay open."""

    def made(self) -> Store:
        self.service = Service.current
        self.app = self.service.new_app()
        store = self.service.store(self.clock, self.app)
        self.wait(store.open())
        self.service.ask("SELECT setval('onthedot.seq', 1, false)")  # no other client
        return store

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.service.runner.run(coroutine)

    def teardown(self) -> None:
        self.wait(self.store.close())
        self.service.clean(self.app)


class RedisStores(Stores):
    """The same steps on a real server, with a new app."""

    def made(self) -> Store:
        self.loop = asyncio.new_event_loop()
        self.clock.advance(WIDTH - self.clock.now() % WIDTH - 2000)  # examples cross a boundary of alarm buckets
        store = RedisStore(valkey.url(), self.clock, valkey.new_name())
        self.prefix = store.prefix
        self.wait(store.open())
        return store

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        self.wait(self.store.close())
        self.loop.close()
        with redis.Redis.from_url(valkey.url()) as client:
            alarms_of(client, self.prefix)
        valkey.forget(self.prefix)


EXAMPLES = int(os.environ.get("ONTHEDOT_EXAMPLES", "170"))
SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=60,
    deadline=None,
    derandomize=False,
    backend=NEW,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
Stores.TestCase.settings = SETTINGS
FEWER = settings(SETTINGS, max_examples=max(1, EXAMPLES // 6))  # threads, files and round trips are slow
for machine in (SqliteStores, PostgresStores, RedisStores):
    machine.TestCase.settings = FEWER
TestStores = pytest.mark.timeout(600)(Stores.TestCase)
TestSqliteStores = pytest.mark.timeout(1200)(SqliteStores.TestCase)
TestPostgresStores = pytest.mark.timeout(1200)(pytest.mark.usefixtures("postgres")(PostgresStores.TestCase))
TestRedisStores = pytest.mark.timeout(1200)(RedisStores.TestCase)
