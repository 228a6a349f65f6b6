"""Add and settle inside the caller's own transaction: both happen, or neither."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from onthedot.errors import StoreRefused
from onthedot.stores.rules.notifications import Notifications
from onthedot.stores.sqlite.errors import translate
from onthedot.stores.sqlite.schema import app_of
from onthedot.stores.sqlite.tables import SqliteTables

T = TypeVar("T")


def join(
    connection: sqlite3.Connection, path: str, name: str, now: float, work: Callable[[SqliteTables], T]
) -> tuple[T, Notifications, int]:
    """The answer, what to send once the caller has committed, and the change number that shows the commit."""
    _check(connection, path)
    row_factory = connection.row_factory
    text_factory = connection.text_factory
    connection.row_factory = None
    connection.text_factory = str
    try:
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # only the writer thread checkpoints
        connection.execute("SAVEPOINT onthedot_join")
        try:
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
    return answer, notifications, tables.transition_count


def _check(connection: sqlite3.Connection, path: str) -> None:
    if not isinstance(connection, sqlite3.Connection):
        raise StoreRefused(
            f"connection=…: {path} is joined through a sqlite3.Connection to that file, not through {connection!r}"
        )
    if not connection.in_transaction:
        raise StoreRefused("begin a transaction first: without one there is nothing to join")
    (file,) = [file for _, name, file in connection.execute("PRAGMA database_list") if name == "main"]
    if not (file and os.path.exists(file) and os.path.samefile(file, path)):  # noqa: PTH110, PTH121
        raise StoreRefused(
            f"this connection is to {file or 'memory'}, and the tasks are in {path}: it must be one file"
        )
