"""The data that a store keeps of tasks, flows, signals and subscriptions. The contract does not show most of it.

When all tasks are gone, all sessions are closed and retention is over, nothing of it is left. Every table and key
counts, so a new one is noticed; only those are left out that are bounded by themselves.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

import redis

from onthedot.stores.contract import Store
from onthedot.stores.memory import MemoryStore
from onthedot.stores.memory.tables import MemoryTables
from onthedot.stores.postgres import PostgresStore
from onthedot.stores.redis import RedisStore
from onthedot.stores.sqlite import SqliteStore
from tests.support.services import valkey
from tests.support.services.postgres import TABLES, Service

BOUNDED = frozenset({"app", "change", "dead_session", "sequence", "source", "tally", "version"})
"""Tables of names and numbers, and logs with a bound."""

PLACEHOLDER = b"\0"
"""The field that keeps a hash in the form of a hash table."""

BOUNDED_KEYS = frozenset(
    {
        "changes", "dead", "dead_sessions", "heads", "identity", "leased", "policies", "policy_uses", "seq_blocks",
        "sequences", "tally", "workers",
    }
)  # fmt: skip


def stored_rows(store: Store) -> dict[str, int]:
    """The number of rows or entries of each table or key that has any."""
    match store:
        case MemoryStore():
            found = _in_memory(store)
        case SqliteStore():
            found = _in_file(store)
        case RedisStore():
            found = _in_redis(store)
        case PostgresStore():
            found = _in_postgres()
        case _:
            raise NotImplementedError(type(store))
    return {name: number for name, number in found.items() if number}


def _in_memory(store: MemoryStore) -> dict[str, int]:
    (tables,) = (each for each in vars(store).values() if isinstance(each, MemoryTables))
    boxes = {
        f"{type(table).__name__}.{name}": box
        for table in (tables.counters, tables.signals, tables.subscriptions)
        for name, box in vars(table).items()
    }
    boxes |= {
        "records": tables.records,
        "leases": tables.leases,
        "unqueued": tables.unqueued,
        "waiting": tables.waiting.members,
        "alarms": tables.alarms.members,
        "workers": tables.workers(),
    }
    return {name: len(box) for name, box in boxes.items()}


def _in_file(store: SqliteStore) -> dict[str, int]:
    with closing(sqlite3.connect(store.path)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        tables = [name.removeprefix("onthedot_") for name in names if name.startswith("onthedot_")]
        return {name: _count(db, name) for name in tables if name not in BOUNDED}


def _count(db: sqlite3.Connection, table: str) -> int:
    ((number,),) = db.execute(f"SELECT count(*) FROM onthedot_{table}")
    return int(number)


def _in_redis(store: RedisStore) -> dict[str, int]:
    """Each key counts as one; a hash with nothing but its placeholder is empty."""
    with redis.Redis.from_url(valkey.url()) as client:
        keys = [key.decode(errors="replace") for key in client.scan_iter(f"{store.prefix}*")]
        keys = [key for key in keys if client.type(key) != b"hash" or client.hkeys(key) != [PLACEHOLDER]]
    names = [key.removeprefix(store.prefix) for key in keys]
    return dict.fromkeys((name for name in names if name.partition(":")[0] not in BOUNDED_KEYS), 1)


def _in_postgres() -> dict[str, int]:
    """Of all apps, since notes belong to none; the tests before have left nothing."""
    tables = [name for name in (*TABLES, "note") if name not in BOUNDED]
    counts = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM onthedot.{name}" for name in tables)
    return {name: int(number) for name, number in Service.current.ask(counts)}
