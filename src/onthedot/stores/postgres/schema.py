"""The schema of the database. Its version is stored in it; a newer onthedot migrates it forward."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from onthedot.errors import StoreRefused
from onthedot.stores.postgres.connections import ANSWER_TIMEOUT, Connection, PostgresConnection
from onthedot.stores.postgres.errors import code_of
from onthedot.stores.postgres.queries import FOLDER, SQL
from onthedot.stores.postgres.url import PostgresAddress

T = TypeVar("T")

VERSION = 4
_REMOVAL_TIMEOUT = 600.0  # seconds for deleting an app
_LOCK = 1869897843  # advisory: one process at a time creates or migrates the schema
_FUNCTIONS = (
    "prelude", "change_log", "records", "places", "limits", "lanes", "counters", "waits", "subscriptions",
    "unique_keys", "insert", "events", "finish", "settle", "alarms", "schedules", "claim", "sessions", "turn", "cancel",
    "revive", "transfer", "journal", "signals", "relay", "event_log", "resume_handles", "event_retention", "series",
    "retention", "verb_settings",
)  # fmt: skip


def _text(*names: str) -> str:
    return "\n".join((FOLDER / f"{name}.sql").read_text("utf-8") for name in names)


_REVIVES = "ALTER TABLE onthedot.task ADD COLUMN revives integer NOT NULL DEFAULT 0;\n"
_COUNTED_CHANGES = """
ALTER TABLE onthedot.app ADD COLUMN changes_after bigint NOT NULL DEFAULT 0;
ALTER TABLE onthedot.change ADD COLUMN source onthedot.label, ADD COLUMN number integer;
"""
_TABLES = ("event_schema", "series_schema", "list_migration", "list_schema")
MIGRATIONS: dict[int, str] = {3: _REVIVES + _COUNTED_CHANGES + _text(*_TABLES)}
"""The tables, from this version to the next. The functions of the last version are replaced after all steps."""


def schema_text() -> str:
    return f"{_text('schema', 'event_schema', 'series_schema', 'list_schema')}\n{functions_text()}"


def functions_text() -> str:
    return _text(*(f"functions/{name}" for name in _FUNCTIONS))


async def prepare(connection: Connection, address: PostgresAddress) -> None:
    """Bring the database to this version. Reading the version takes no lock."""
    if await _version(connection, address) == VERSION:
        return
    if not address.auto_schema:
        raise StoreRefused(
            f"{address.where} has no schema of version {VERSION}; run `onthedot schema install`, or auto_schema=1"
        )
    await _install(connection, address)


async def _install(connection: Connection, address: PostgresAddress) -> None:
    async with connection.transaction():
        await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
        version = await _version(connection, address)
        if version == VERSION:
            return
        for step in _steps(version):
            await connection.execute(step)
        await connection.execute("UPDATE onthedot.version SET number = $1", VERSION)


def _steps(version: int) -> list[str]:
    """From this version to the last. A process of an older version continues: functions that it calls with other
    arguments, and that no file has any more, remain."""
    if version == 0:
        return [schema_text()]
    functions = functions_text().replace("\nCREATE FUNCTION ", "\nCREATE OR REPLACE FUNCTION ")
    return [*(MIGRATIONS[step] for step in range(version, VERSION)), f"SET LOCAL search_path = onthedot;\n{functions}"]


async def _version(connection: Connection, address: PostgresAddress) -> int:
    """0: there is no schema."""
    try:
        async with connection.transaction():
            version: int = await connection.fetchval("SELECT number FROM onthedot.version")
    except Exception as error:
        if code_of(error) in ("3F000", "42P01"):
            return 0
        raise
    if version > VERSION:
        raise StoreRefused(
            f"{address.where} has schema version {version}, and this onthedot knows {VERSION}: upgrade onthedot"
        )
    if any(step not in MIGRATIONS for step in range(version, VERSION)):
        raise StoreRefused(
            f"{address.where} has schema version {version}, too old to be migrated to {VERSION}: use another database, "
            "or drop the schema onthedot and all its tasks"
        )
    return version


# -- for the command line


def install(url: str) -> None:
    address = PostgresAddress.of(url)
    asyncio.run(_with_connection(address, lambda connection: _install(connection, address)))


def check(url: str) -> tuple[bool, str]:
    """Whether the schema is the one of this version, and a sentence about it."""
    address = PostgresAddress.of(url)
    found = asyncio.run(_with_connection(address, lambda connection: _version(connection, address)))
    if found == VERSION:
        return True, f"{address.where}: schema version {VERSION}, as it should be"
    return False, (
        f"{address.where}: schema version {found}, this onthedot needs {VERSION}: run `onthedot schema install`"
    )


def apps_in(url: str) -> list[str]:
    """The apps that have anything in the database; none if it has no schema yet."""
    address = PostgresAddress.of(url)

    async def read(connection: Connection) -> list[str]:
        if await _version(connection, address) == 0:
            return []
        return [row["name"] for row in await connection.fetch(SQL["apps"])]

    return asyncio.run(_with_connection(address, read))


def remove_app(url: str, name: str) -> None:
    """Delete all rows of an app."""
    address = PostgresAddress.of(url)

    async def remove(connection: Connection) -> None:
        if await _version(connection, address) != VERSION:
            raise StoreRefused(f"{address.where} has no schema of version {VERSION}; run `onthedot schema install`")
        tables = [row["name"] for row in await connection.fetch(SQL["app_tables"])]
        if kept := [row["name"] for row in await connection.fetch(SQL["undeletable_tables"])]:
            raise StoreRefused(
                f"{address.where}: to delete an app, name its owner or another user who may delete rows of "
                f"{', '.join(kept)}"
            )
        async with connection.transaction():
            app = await connection.fetchval("SELECT id FROM onthedot.app WHERE name = $1", name)
            await connection.execute(SQL["remove_notes"], app)
            for table in tables:
                await connection.execute(f"DELETE FROM onthedot.{table} WHERE app = $1", app)  # noqa: S608 - a table of ours
            await connection.execute("DELETE FROM onthedot.app WHERE id = $1", app)

    asyncio.run(_with_connection(address, remove, _REMOVAL_TIMEOUT))


async def _with_connection(
    address: PostgresAddress, work: Callable[[Connection], Awaitable[T]], timeout: float = ANSWER_TIMEOUT
) -> T:
    connection = PostgresConnection(address, timeout)
    try:
        return await connection.with_connection(work)
    finally:
        await connection.close()
