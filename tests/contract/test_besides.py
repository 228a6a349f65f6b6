"""What only some stores do, where they do it."""

from __future__ import annotations

import time

from onthedot.stores.besides import Served
from onthedot.stores.contract import Store
from onthedot.stores.memory import MemoryStore
from onthedot.stores.sqlite import SqliteStore


async def test_a_server_says_what_it_is_and_what_time_it_has(store: Store) -> None:
    """By its own clock, whatever the test has turned."""
    if isinstance(store, (MemoryStore, SqliteStore)):
        assert not isinstance(store, Served)
        return
    assert isinstance(store, Served)
    asked = time.time() * 1000
    server = await store.server()
    assert asked - 5_000 <= server.now <= time.time() * 1000 + 5_000
    assert server.program.split()[0] in ("Valkey", "Redis", "PostgreSQL")
    assert server.program.split()[1][0].isdecimal()
    assert server.memory >= 0
