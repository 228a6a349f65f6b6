"""A call whose nth write fails is rolled back by the server: every task comes to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreError
from onthedot.stores.postgres import PostgresStore
from tests.contract.invariants import check
from tests.faults import LONG
from tests.support.aborted_calls import ABORTED, CALLS, Life
from tests.support.services.postgres import TABLES, Service

NUMBERS = range(1, 61) if LONG else (1, 2, 3, 5, 8, 13, 20)
TRIGGERS = f"""
CREATE TABLE abort_at (number int NOT NULL);
INSERT INTO abort_at VALUES (0);
CREATE FUNCTION abort_write() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  done int := coalesce(nullif(current_setting('test.writes', true), ''), '0')::int + 1;
BEGIN
  PERFORM set_config('test.writes', done::text, true);
  IF done = (SELECT number FROM public.abort_at) THEN
    RAISE EXCEPTION '{ABORTED}' USING ERRCODE = 'XX000';
  END IF;
  RETURN NULL;
END $$;
"""


class Database:
    """A database whose tables fail at the nth write of a transaction."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.numbers = count()

    def ask(self, *queries: str) -> None:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            for query in queries:
                connection.execute(query)

    def abort_at(self, number: int) -> None:
        """0: no write fails."""
        self.ask(f"UPDATE abort_at SET number = {number}")


@pytest.fixture(scope="module")
def database(postgres: Service) -> Iterator[Database]:
    with postgres.database() as url:
        database = Database(url)
        postgres.runner.run(_make_schema(url))
        names = [*TABLES, "note"]
        triggers = [
            f"CREATE TRIGGER abort BEFORE INSERT OR UPDATE OR DELETE ON onthedot.{name} "
            "FOR EACH STATEMENT EXECUTE FUNCTION public.abort_write()"
            for name in names
        ]
        database.ask(TRIGGERS, *triggers)
        yield database


async def _make_schema(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.close()


@asynccontextmanager
async def opened(database: Database) -> AsyncIterator[Life]:
    clock = ManualClock()
    store = PostgresStore(database.url, clock, f"app{next(database.numbers)}")
    await store.open()
    try:
        life = Life(store, clock)
        await life.begin()
        yield life
    finally:
        await store.close()


@pytest.mark.long
@pytest.mark.parametrize("name", CALLS)
async def test_every_task_ends_after_a_function_that_was_aborted(name: str, database: Database) -> None:
    for number in NUMBERS:
        async with opened(database) as life:
            database.abort_at(number)
            is_over = False
            try:
                await CALLS[name].run(life)
                is_over = True  # it has fewer writes
            except StoreError as error:
                if ABORTED not in str(error):
                    raise
            finally:
                database.abort_at(0)
            await check(life.store)
            await life.end()
            await check(life.store)
        if is_over:
            break
    assert number > 1
