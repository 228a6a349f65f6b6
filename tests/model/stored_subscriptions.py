"""The subscriptions that a store keeps. The contract does not show them: they only cause hints."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import cast

import redis

from onthedot.stores.contract import Store
from onthedot.stores.memory import MemoryStore
from onthedot.stores.memory.tables import MemoryTables
from onthedot.stores.postgres import PostgresStore
from onthedot.stores.redis import RedisStore
from onthedot.stores.sqlite import SqliteStore
from tests.support.services import valkey
from tests.support.services.postgres import Service

Subscription = tuple[str, str]  # session, uuid


def stored_subscriptions(store: Store) -> set[Subscription]:
    match store:
        case MemoryStore():
            (tables,) = (each for each in vars(store).values() if isinstance(each, MemoryTables))
            by_uuid = tables.subscriptions.sessions_by_uuid
            return {(session, uuid) for uuid, sessions in by_uuid.items() for session in sessions}
        case SqliteStore():
            with closing(sqlite3.connect(store.path)) as db:
                return set(db.execute("SELECT session, uuid FROM onthedot_subscription"))
        case RedisStore():
            return _in_redis(store)
        case PostgresStore():
            return set(Service.current.ask("SELECT session, uuid FROM onthedot.subscription"))
        case _:
            raise NotImplementedError(type(store))


def _in_redis(store: RedisStore) -> set[Subscription]:
    """They are kept by session and by task; both must agree."""
    with redis.Redis.from_url(valkey.url()) as client:
        keys = {name: [*client.scan_iter(f"{store.prefix}{name}:*")] for name in ("subscriptions", "subscribers")}
        if not any(keys.values()):
            return set()
        uuids = {seq: uuid.decode() for uuid, seq in _hash(client, f"{store.prefix}ids").items()}
        by_session = {
            (_name(key), uuids[seq][1:])
            for key in keys["subscriptions"]
            for seq in cast("set[bytes]", client.smembers(key))
        }
        numbers = {str(int.from_bytes(seq)): uuid[1:] for seq, uuid in uuids.items()}
        by_task = {
            (session.decode(), numbers[_name(key)])
            for key in keys["subscribers"]
            for session in cast("set[bytes]", client.smembers(key))
        }
    assert by_session == by_task
    return by_session


def _name(key: bytes) -> str:
    return key.decode().rpartition(":")[2]


def _hash(client: redis.Redis, key: str) -> dict[bytes, bytes]:
    return cast("dict[bytes, bytes]", client.hgetall(key))
