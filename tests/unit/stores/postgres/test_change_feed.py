"""The change feed of a server on which transactions stay open and commit in any order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random

import psycopg
import pytest

from onthedot.stores.contract import NewTask, Store
from onthedot.stores.postgres import PostgresStore
from tests.support.services.postgres import Service
from tests.unit.stores.postgres.shop import opened

SEEN_WITHIN = 0.3  # seconds, as promised


class Reader:
    """Follows the feed as every caller does: with the cursor of the last page."""

    def __init__(self, store: Store, limit: int = 100) -> None:
        self._store = store
        self._limit = limit
        self._cursor = ""
        self.uuids: list[str] = []
        self.count = 0

    async def read(self) -> int:
        """Return the number of entries."""
        page = await self._store.changes(self._cursor, self._limit, resolve=1000)
        assert not page.gap
        self._cursor = page.cursor
        self.uuids += [each.uuid for entry in page.entries for each in entry.transitions]
        self.count += sum(sum(by_state.values()) for entry in page.entries for by_state in entry.counts.values())
        return len(page.entries)


@contextmanager
def writing(url: str) -> Iterator[None]:
    """A transaction of another program that has written and does not end."""
    with psycopg.connect(url) as connection:
        connection.execute("SELECT pg_current_xact_id()")
        yield
        connection.rollback()


@pytest.mark.timed
async def test_transition_is_seen_at_once_while_a_writing_transaction_is_open(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        reader = Reader(store)
        await reader.read()
        with writing(postgres.url):
            for number in range(20):
                await store.add([NewTask(f"u{number}", "a", b"")])
                added = time.monotonic()
                while f"u{number}" not in reader.uuids:
                    await reader.read()
                assert time.monotonic() - added < SEEN_WITHIN
        assert await reader.read() == 0
        assert reader.uuids == [f"u{number}" for number in range(20)]


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_transitions_of_late_commits_are_neither_lost_nor_doubled(
    postgres: Service, named: str, limit: int
) -> None:
    """Transactions of callers add tasks and commit in another order than they began, beside calls of the store."""
    random = Random(limit)
    async with opened(postgres, named) as store:
        reader = Reader(store, limit)
        await reader.read()
        added: list[str] = []
        with ExitStack() as stack:
            held = [stack.enter_context(psycopg.connect(postgres.url)) for _ in range(6)]
            for turn in range(30):
                connection = random.choice(held)
                if random.random() < 0.5:
                    store.add_in(connection, [NewTask(f"joined{turn}", "a", b"")])
                    added.append(f"joined{turn}")
                else:
                    connection.commit()
                await store.add([NewTask(f"own{turn}", "b", b"")])
                added.append(f"own{turn}")
                for _ in range(random.randrange(3)):
                    await reader.read()
            for connection in held:
                connection.commit()
        while await reader.read():
            pass
        assert sorted(reader.uuids) == sorted(added)
        assert reader.count == len(added)


async def test_rolled_back_call_has_no_entry(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        reader = Reader(store)
        await reader.read()
        with psycopg.connect(postgres.url) as connection:
            store.add_in(connection, [NewTask("never", "a", b"")])
            await store.add([NewTask("u", "a", b"")])
            assert await reader.read() == 1
            connection.rollback()
        assert await reader.read() == 0
        assert reader.uuids == ["u"]


async def test_concurrent_writers_are_read_once(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        reader = Reader(store, limit=3)
        await reader.read()

        async def write(writer: PostgresStore, name: str) -> None:
            for number in range(40):
                await writer.add([NewTask(f"{name}{number}", name, b"")])

        async with opened(postgres, named) as second, opened(postgres, named) as third:
            writers = asyncio.gather(write(store, "a"), write(second, "b"), write(third, "c"))
            while not writers.done():
                await reader.read()
            await writers
        while await reader.read():
            pass
        assert sorted(reader.uuids) == sorted(f"{name}{number}" for name in "abc" for number in range(40))


async def test_cursor_of_other_data_is_reported(postgres: Service, named: str) -> None:
    """The numbers of a database that was restored elsewhere begin far below."""
    async with opened(postgres, named) as store:
        page = await store.changes(f"{2**60}:{2**60}:", 10)
        assert page.gap
        await store.add([NewTask("u", "a", b"")])
        after = await store.changes(page.cursor, 10, resolve=1)
        assert not after.gap
        assert [each.uuid for entry in after.entries for each in entry.transitions] == ["u"]
