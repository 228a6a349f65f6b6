"""Stores: where tasks are. ``contract.py`` says what each of them does."""

from __future__ import annotations

from onthedot.clock.protocol import Clock
from onthedot.errors import StoreRefused
from onthedot.stores.contract import Store


def connect(url: str, clock: Clock, name: str = "onthedot") -> Store:
    """The store behind a URL; its driver is imported only now. name: each app sees its own tasks in a shared store."""
    scheme = url.partition("://")[0]
    if scheme == "memory":
        from onthedot.stores.memory import MemoryStore

        return MemoryStore(clock)
    if scheme == "sqlite":
        from onthedot.stores.sqlite import SqliteStore, makes_schema, path_of

        return SqliteStore(path_of(url), clock, name, auto_schema=makes_schema(url))
    if scheme in ("redis", "rediss", "redis+sentinel", "redis+cluster"):
        from onthedot.stores.redis import RedisStore

        return RedisStore(url, clock, name)
    if scheme in ("postgresql", "postgres"):
        from onthedot.stores.postgres import PostgresStore

        return PostgresStore(url, clock, name)
    raise StoreRefused(f"{scheme}:// is no store of this version")
