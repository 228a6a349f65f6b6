"""Capabilities that only some stores have."""

from __future__ import annotations

from onthedot.clock.manual import ManualClock
from onthedot.stores.capabilities import HasServerInfo
from onthedot.stores.contract import Store
from onthedot.stores.memory import MemoryStore
from onthedot.stores.sqlite import SqliteStore


async def test_server_info_has_program_and_time(store: Store, clock: ManualClock) -> None:
    if isinstance(store, (MemoryStore, SqliteStore)):
        assert not isinstance(store, HasServerInfo)
        return
    assert isinstance(store, HasServerInfo)
    server = await store.server()
    assert abs(server.now - clock.now()) <= 1
    program, version = server.program.split()
    assert program in ("Valkey", "Redis", "PostgreSQL")
    assert version[0].isdecimal()
    assert server.memory >= 0
