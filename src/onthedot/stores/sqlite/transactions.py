"""Add, settle and publish inside the caller's own transaction: both happen, or neither."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from onthedot.errors import StoreRefused
from onthedot.stores.sqlite.errors import translate
from onthedot.stores.sqlite.joined_calls import JoinedCall
from onthedot.stores.sqlite.schema import app_of, migrate
from onthedot.stores.sqlite.tables import SqliteTables

T = TypeVar("T")

_NO_TRANSACTION = "begin a transaction first: without one there is nothing to join"
_BEGINS_LATE = "sqlite3 begins one at the first INSERT, UPDATE or DELETE, not at `with`: write before, or execute BEGIN"


def join(
    given: object, path: str, name: str, now: float, work: Callable[[SqliteTables], T], *, auto_schema: bool
) -> tuple[T, JoinedCall]:
    """The answer, and what is left to do after the commit.

    given: the caller's connection. A file without a schema gets it in the caller's transaction.
    """
    outer = _sqlalchemy_connection(given)
    connection = given if outer is None else outer.connection.driver_connection
    if not isinstance(connection, sqlite3.Connection):
        raise _refusal(given, path)
    _check_file(connection, path)
    _check_transaction(connection, outer)
    row_factory = connection.row_factory
    text_factory = connection.text_factory
    connection.row_factory = None
    connection.text_factory = str
    try:
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # only the writer thread checkpoints
        connection.execute("SAVEPOINT onthedot_join")
        try:
            migrate(connection, path, auto=auto_schema)
            tables = SqliteTables(connection, app_of(connection, name))
            tables.begin()
            tables.start_call(now)
            answer = work(tables)
            notifications = tables.end_call()
            tables.flush()
        except BaseException:
            connection.execute("ROLLBACK TO onthedot_join")
            raise
        finally:
            connection.execute("RELEASE onthedot_join")
    except sqlite3.Error as error:
        raise translate(error, path) from error
    finally:
        connection.row_factory = row_factory
        connection.text_factory = text_factory
    return answer, JoinedCall(notifications, tables.transition_count, tables.events.seq)


def _sqlalchemy_connection(given: Any) -> Any:
    """A sync Connection of SQLAlchemy, or that of a Session; None: it is neither."""
    if isinstance(given, sqlite3.Connection):
        return None
    names = _sqlalchemy_names(given)
    if "Connection" in names:
        return given
    if names & {"Session", "scoped_session"}:
        return given.connection()
    return None


def _sqlalchemy_names(given: object) -> set[str]:
    return {parent.__name__ for parent in type(given).__mro__ if parent.__module__.partition(".")[0] == "sqlalchemy"}


def _refusal(given: object, path: str) -> StoreRefused:
    reason = ""
    if _sqlalchemy_names(given) & {"AsyncConnection", "AsyncSession", "async_scoped_session"}:
        reason = ": it is async, and the connection below it belongs to another thread"
    known = "a sqlite3.Connection to that file, or a sync Connection or Session of SQLAlchemy"
    return StoreRefused(f"connection=…: {path} is joined through {known}, not through {given!r}{reason}")


def _check_file(connection: sqlite3.Connection, path: str) -> None:
    cursor = connection.cursor()
    cursor.row_factory = None  # that of the connection may not return tuples
    (file,) = [file for _, name, file in cursor.execute("PRAGMA database_list") if name == "main"]
    if not (file and os.path.exists(file) and os.path.samefile(file, path)):  # noqa: PTH110, PTH121
        raise StoreRefused(
            f"this connection is to {file or 'memory'}, and the tasks are in {path}: it must be one file"
        )


def _check_transaction(connection: sqlite3.Connection, outer: Any) -> None:
    """SQLAlchemy is in a transaction from its first statement on, but sqlite3 begins one only before a change."""
    begins_by_itself = connection.isolation_level is not None and getattr(connection, "autocommit", None) is not True
    if outer is not None and begins_by_itself and not connection.in_transaction:
        outer.exec_driver_sql("BEGIN IMMEDIATE")
    if not connection.in_transaction:
        raise StoreRefused(f"{_NO_TRANSACTION}; {_BEGINS_LATE}" if outer is None else _NO_TRANSACTION)
