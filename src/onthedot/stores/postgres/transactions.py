"""A verb inside the caller's own transaction: one statement with one JSON parameter.

So the drivers differ only in the placeholder, and in what has to be awaited. None of them is imported: whoever hands in
a connection has done that.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from onthedot.errors import StoreRefused
from onthedot.stores.postgres.errors import explained

KNOWN = "asyncpg, psycopg (sync or async), or SQLAlchemy (Connection or Session, sync or async)"


@dataclass(frozen=True)
class Driver:
    """How one kind of connection is asked."""

    connection: Any
    awaited: bool
    kind: str  # asyncpg, psycopg, sqlalchemy

    @classmethod
    def of(cls, connection: object) -> Driver:
        for parent in type(connection).__mro__:
            package, name = parent.__module__.partition(".")[0], parent.__name__
            if package == "asyncpg" and name in ("Connection", "PoolConnectionProxy"):
                return cls(connection, True, package)
            if package in ("psycopg", "sqlalchemy") and name in _NAMES:
                return cls(connection, name.startswith("Async") or name == "async_scoped_session", package)
        raise StoreRefused(f"connection=…: Postgres is joined through {KNOWN}, not through {connection!r}")

    def ask(self, function: str, said: str) -> Any:
        """Its answer, or, of a driver that is awaited, a coroutine of it."""
        self._check()
        match self.kind:
            case "asyncpg":
                return self.connection.fetchrow(f"SELECT * FROM onthedot.{function}($1)", said)  # noqa: S608 - ours
            case "psycopg":
                query = f"SELECT * FROM onthedot.{function}(%s::json)"  # noqa: S608
                rows = import_module("psycopg.rows").tuple_row
                return (_fetched if self.awaited else _fetch)(self.connection, rows, query, said)
            case _:
                query = f"SELECT * FROM onthedot.{function}(CAST(:said AS json))"  # noqa: S608
                result = self.connection.execute(import_module("sqlalchemy").text(query), {"said": said})
                return _one(result) if self.awaited else result.one()

    def _check(self) -> None:
        """Without a transaction there is nothing to join."""
        outside = False
        if self.kind == "asyncpg":
            outside = not self.connection.is_in_transaction()
        elif self.kind == "psycopg":
            outside = self.connection.autocommit and self.connection.info.transaction_status == 0
        if outside:
            raise StoreRefused("begin a transaction first: without one there is nothing to join")


_NAMES = (
    "Connection", "AsyncConnection", "Session", "AsyncSession", "scoped_session", "async_scoped_session",
)  # fmt: skip


def _fetch(connection: Any, rows: Any, query: str, said: str) -> Any:
    with connection.cursor(row_factory=rows) as cursor:
        return cursor.execute(query, (said,)).fetchone()


async def _fetched(connection: Any, rows: Any, query: str, said: str) -> Any:
    async with connection.cursor(row_factory=rows) as cursor:
        await cursor.execute(query, (said,))
        return await cursor.fetchone()


async def _one(result: Awaitable[Any]) -> Any:
    return (await result).one()


def join(connection: object, function: str, said: str) -> Any:
    """On the caller's thread."""
    driver = Driver.of(connection)
    if driver.awaited:
        raise StoreRefused("connection=…: this connection is async, so write `await task.options(…).enqueue(…)`")
    try:
        return driver.ask(function, said)
    except Exception as error:
        raise _told(error, function) from error


async def join_awaited(connection: object, function: str, said: str) -> Any:
    """On the caller's loop; through a sync connection too, which holds it up meanwhile."""
    driver = Driver.of(connection)
    try:
        answer = driver.ask(function, said)
        return (await answer) if driver.awaited else answer
    except Exception as error:
        raise _told(error, function) from error


def _told(error: Exception, function: str) -> Exception:
    if isinstance(error, StoreRefused):
        return error
    return explained(getattr(error, "orig", None) or error, f"your connection, onthedot.{function}")
