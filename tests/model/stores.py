"""The stores that state machines are run on: how each is made, called and cleaned up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import redis

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Store
from onthedot.stores.memory import MemoryStore
from onthedot.stores.redis import RedisStore
from onthedot.stores.sqlite import SqliteStore
from tests.support.memory_disk import memory_folder
from tests.support.services import valkey
from tests.support.services.postgres import Service
from tests.unit.stores.redis.alarms import WIDTH, alarms_of

T = TypeVar("T")


def run_synchronously(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a synchronous store, which does not suspend."""
    try:
        coroutine.send(None)
    except StopIteration as answer:
        return answer.value  # type: ignore[no-any-return]
    raise AssertionError("an immediate store has suspended")


class OnMemory:
    clock: ManualClock
    store: Store

    def made(self) -> Store:
        return MemoryStore(self.clock)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return run_synchronously(coroutine)


class OnSqlite(OnMemory):
    """The same steps in a file, in memory if possible, because durability is not tested here."""

    def made(self) -> Store:
        self.loop = asyncio.new_event_loop()
        self.folder = memory_folder("model-")
        store = SqliteStore(Path(self.folder.name, "onthedot.db"), self.clock)
        self.wait(store.open())
        return store

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        self.wait(self.store.close())
        self.loop.close()
        self.folder.cleanup()


class OnPostgres(OnMemory):
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


class OnRedis(OnMemory):
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
