"""A call whose nth statement fails is rolled back: nothing of it remains, in the file or in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreError
from onthedot.stores.sqlite.schema import connect
from onthedot.stores.sqlite.store import SqliteParts, SqliteStore
from onthedot.stores.sqlite.writer_thread import WriterThread
from tests.contract.invariants import check
from tests.faults import LONG
from tests.support.aborted_calls import ABORTED, CALLS, Life

NUMBERS = range(1, 61) if LONG else (1, 2, 3, 5, 8, 13, 20)


class AbortingConnection(sqlite3.Connection):
    """Fails instead of its nth statement, and goes on after it."""

    statements_left = 0  # 0: none fails

    def _count(self) -> None:
        if self.statements_left:
            self.statements_left -= 1
            if not self.statements_left:
                raise sqlite3.OperationalError(ABORTED)

    def execute(self, *args: Any) -> sqlite3.Cursor:
        self._count()
        return super().execute(*args)

    def executemany(self, *args: Any) -> sqlite3.Cursor:
        self._count()
        return super().executemany(*args)


class AbortingWriter(WriterThread):
    opened: list[AbortingConnection] = []  # noqa: RUF012 - of the test that runs

    def connect(self) -> sqlite3.Connection:
        db = connect(self.path, AbortingConnection)
        assert isinstance(db, AbortingConnection)
        self.opened.append(db)
        return db


@asynccontextmanager
async def opened(folder: Path, number: int) -> AsyncIterator[tuple[AbortingConnection, Life]]:
    clock = ManualClock()
    AbortingWriter.opened.clear()
    store = SqliteStore(folder / f"{number}.db", clock, parts=SqliteParts(writer=AbortingWriter))
    await store.open()
    try:
        life = Life(store, clock)
        await life.begin()
        yield AbortingWriter.opened[-1], life
    finally:
        await store.close()


@pytest.mark.long
@pytest.mark.parametrize("name", CALLS)
async def test_every_task_ends_after_a_transaction_that_was_aborted(name: str, tmp_path: Path) -> None:
    for number in NUMBERS:
        async with opened(tmp_path, number) as (connection, life):
            connection.statements_left = number
            try:
                await CALLS[name].run(life)
            except StoreError as error:
                if ABORTED not in str(error):
                    raise
            is_over = bool(connection.statements_left)  # it has fewer statements
            connection.statements_left = 0
            await check(life.store)
            await life.end()
            await check(life.store)
        if is_over:
            break
    assert number > 1
