"""Damage to stored records, as a full disk, a bug of another version or a person could leave it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from hashlib import sha256
from typing import Any

import msgspec
import redis

from onthedot.stores.contract import Store
from onthedot.stores.postgres import PostgresStore
from onthedot.stores.redis import RedisStore
from onthedot.stores.redis.uuid_format import pack_uuid
from onthedot.stores.sqlite import SqliteStore
from tests.support.services import valkey
from tests.support.services.postgres import Service


async def damage_policy(store: Store, uuid: str) -> None:
    """Make the policy of one task unreadable."""
    match store:
        case SqliteStore():
            run_on_file(store, "UPDATE onthedot_task SET policy = 'not a policy' WHERE uuid = ?", uuid)
        case PostgresStore():
            Service.current.ask("UPDATE onthedot.task SET policy = 'not a policy' WHERE uuid = %s", uuid)
        case RedisStore():
            _change_policy(store, uuid, {"b": "not a number"})
        case _:
            raise NotImplementedError(type(store))


async def add_policy_field(store: Store, uuid: str) -> None:
    """Add a field to the policy of one task, as a newer version could have written it."""
    match store:
        case SqliteStore():
            run_on_file(store, "UPDATE onthedot_task SET policy = json_set(policy, '$.newer', 1) WHERE uuid = ?", uuid)
        case PostgresStore():
            newer = "policy::jsonb || jsonb_build_object('newer', 1)"
            Service.current.ask(f"UPDATE onthedot.task SET policy = {newer} WHERE uuid = %s", uuid)
        case RedisStore():
            _change_policy(store, uuid, {"newer": 1})
        case _:
            raise NotImplementedError(type(store))


def run_on_file(store: SqliteStore, statement: str, *parameters: object) -> None:
    with closing(sqlite3.connect(store.path)) as db, db:
        assert db.execute(statement, parameters).rowcount == 1


def _change_policy(store: RedisStore, uuid: str, changes: dict[str, Any]) -> None:
    """Of one task: its head refers to another digest, of the same length."""
    with redis.Redis.from_url(valkey.url()) as client:
        seq: Any = client.hget(f"{store.prefix}ids", pack_uuid(uuid))
        task: Any = client.hget(f"{store.prefix}task", seq)
        length = int.from_bytes(task[14:16])
        (digest, *_) = msgspec.msgpack.decode(task[16 : 16 + length])
        text: Any = client.hget(f"{store.prefix}policies", digest)
        other = sha256(f"{uuid} {changes}".encode()).hexdigest()[: len(digest)]
        client.hset(f"{store.prefix}policies", other, msgspec.json.encode({**msgspec.json.decode(text), **changes}))
        client.hincrby(f"{store.prefix}policy_uses", other, 1)
        client.hset(f"{store.prefix}task", seq, task.replace(digest.encode(), other.encode(), 1))
