"""The entries of claims that a store keeps. The contract does not show them; they must not accumulate."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from onthedot.stores.contract import Store
from onthedot.stores.postgres import PostgresStore
from onthedot.stores.redis import RedisStore
from onthedot.stores.sqlite import SqliteStore
from tests.support.services import valkey


async def count_claims(store: Store) -> int:
    match store:
        case SqliteStore():
            with closing(sqlite3.connect(store.path)) as db:
                ((number,),) = db.execute("SELECT count(*) FROM onthedot_claim")
                return int(number)
        case RedisStore():
            return valkey.hash_length(f"{store.prefix}claims")
        case PostgresStore():
            row = await store.connections.reads.row("SELECT count(*) FROM onthedot.claim")
            return int(row["count"])
        case _:
            raise NotImplementedError(type(store))
