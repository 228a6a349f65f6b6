"""A verb in the caller's own transaction: one statement with one JSON parameter.

The drivers differ only in the placeholder and in what is awaited. None of them is imported before the caller did.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from onthedot.errors import StoreRefused
from onthedot.stores.postgres.errors import translate

KNOWN = "asyncpg, psycopg (sync or async), or SQLAlchemy (Connection or Session, sync or async)"
_CONNECTIONS = (
    "Connection", "AsyncConnection", "Session", "AsyncSession", "scoped_session", "async_scoped_session",
)  # fmt: skip


_AWAITED = {
    "add_in_v1": "`await task.options(…).enqueue(…)`",
    "settle_in_v1": "`await ctx.complete(…)` in an async task",
    "note_v1": "`await ctx.step_in(…)` in an async task",
    "publish_v1": "`await app.publish(…)`",
    "create_handle_v1": "`await app.expect(…)`",
}


@dataclass(frozen=True)
class TransactionDriver:
    """A connection of the caller, and the library that it comes from."""

    connection: Any
    is_async: bool
    kind: str  # asyncpg, psycopg, sqlalchemy

    @classmethod
    def of(cls, connection: object) -> TransactionDriver:
        for parent in type(connection).__mro__:
            package = parent.__module__.partition(".")[0]
            name = parent.__name__
            if package == "asyncpg" and name in ("Connection", "PoolConnectionProxy"):
                return cls(connection, True, package)
            if package in ("psycopg", "sqlalchemy") and name in _CONNECTIONS:
                return cls(connection, name.startswith("Async") or name == "async_scoped_session", package)
        raise StoreRefused(f"connection=…: Postgres is joined through {KNOWN}, not through {connection!r}")

    def call(self, function: str, request: str) -> Any:
        """The row that the function returns, by column name; a coroutine of it if the connection is async."""
        self._check()
        match self.kind:
            case "asyncpg":
                query = f"SELECT * FROM onthedot.{function}($1::text::json)"  # noqa: S608 - ours; it may have a JSON codec
                return self.connection.fetchrow(query, request)
            case "psycopg":
                query = f"SELECT * FROM onthedot.{function}(%s::json)"  # noqa: S608
                row_factory = import_module("psycopg.rows").dict_row
                fetch = _fetch_awaited if self.is_async else _fetch
                return fetch(self.connection, row_factory, query, request)
            case _:
                query = f"SELECT * FROM onthedot.{function}(CAST(:request AS json))"  # noqa: S608
                result = self.connection.execute(import_module("sqlalchemy").text(query), {"request": request})
                return _one(result) if self.is_async else result.mappings().one()

    def _check(self) -> None:
        is_outside = False
        if self.kind == "asyncpg":
            is_outside = not self.connection.is_in_transaction()
        elif self.kind == "psycopg":
            is_outside = self.connection.autocommit and self.connection.info.transaction_status == 0
        if is_outside:
            raise StoreRefused("begin a transaction first: without one there is nothing to join")


def _fetch(connection: Any, row_factory: Any, query: str, request: str) -> Any:
    with connection.cursor(row_factory=row_factory) as cursor:
        return cursor.execute(query, (request,)).fetchone()


async def _fetch_awaited(connection: Any, row_factory: Any, query: str, request: str) -> Any:
    async with connection.cursor(row_factory=row_factory) as cursor:
        await cursor.execute(query, (request,))
        return await cursor.fetchone()


async def _one(result: Awaitable[Any]) -> Any:
    return (await result).mappings().one()


def call(connection: object, function: str, request: str) -> Any:
    """On the caller's thread."""
    driver = TransactionDriver.of(connection)
    if driver.is_async:
        raise StoreRefused(f"connection=…: this connection is async, so write {_AWAITED[function]}, or pass a sync one")
    try:
        return driver.call(function, request)
    except Exception as error:
        raise _translate(error, function) from error


async def call_awaited(connection: object, function: str, request: str) -> Any:
    """On the caller's event loop. A sync connection is accepted too; it blocks the loop meanwhile."""
    driver = TransactionDriver.of(connection)
    try:
        answer = driver.call(function, request)
        return (await answer) if driver.is_async else answer
    except Exception as error:
        raise _translate(error, function) from error


def _translate(error: Exception, function: str) -> Exception:
    if isinstance(error, StoreRefused):
        return error
    return translate(getattr(error, "orig", None) or error, f"your connection, onthedot.{function}")
