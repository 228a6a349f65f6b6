"""The schema of the file: its version is stored in it, and it is migrated forward automatically."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from onthedot.errors import StoreRefused
from onthedot.stores.sqlite.errors import translate
from onthedot.stores.sqlite.files import create_database
from onthedot.stores.sqlite.queries import SQL

VERSION = 4
BUSY_MS = 250  # for another program's lock; then it is checked whether a call still waits


def _read(file: str) -> str:
    return Path(__file__).with_name(file).read_text("utf-8")


def _add_events_and_lists() -> str:
    columns = (
        "ALTER TABLE onthedot_sequence ADD COLUMN event_seq INTEGER NOT NULL DEFAULT 0;\n"
        "ALTER TABLE onthedot_history ADD COLUMN revives INTEGER NOT NULL DEFAULT 0;\n"
        "ALTER TABLE onthedot_change RENAME COLUMN moves TO transitions;\n"
    )
    old_changes = "DELETE FROM onthedot_change;\n"  # they have another form
    tables = ("event_schema.sql", "series_schema.sql", "list_migration.sql", "list_schema.sql")
    return columns + old_changes + "\n".join(map(_read, tables))


_MIGRATIONS: dict[int, Callable[[], str]] = {3: _add_events_and_lists}  # from this version to the next


def schema_text() -> str:
    return "\n".join(map(_read, ("schema.sql", "event_schema.sql", "series_schema.sql", "list_schema.sql")))


def connect(path: str, factory: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    create_database(path)
    db = sqlite3.connect(
        path,
        timeout=BUSY_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
        factory=factory,
        cached_statements=256,
    )
    try:
        db.execute("PRAGMA wal_autocheckpoint = 0")  # only the writer thread checkpoints, under its lock
        db.execute("PRAGMA synchronous = FULL")
    except BaseException:
        db.close()
        raise
    return db


def prepare(db: sqlite3.Connection, path: str, *, auto: bool = True) -> None:
    """Migrate a connection's file to this version, under the write lock."""
    is_current = _is_current(db, path)
    if not is_current:
        _check_auto(path, auto=auto)
    db.execute("PRAGMA journal_mode = WAL")
    if is_current:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        migrate(db, path)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def migrate(db: sqlite3.Connection, path: str, *, auto: bool = True) -> None:
    """Migrate the file to this version inside the current transaction."""
    with suppress(sqlite3.OperationalError):  # no such table; the usual case takes one query
        if db.execute(SQL["version"]).fetchone() == (VERSION,):
            return
    if _is_current(db, path):
        return
    _check_auto(path, auto=auto)
    version = _version(db)
    steps = [schema_text()] if version == 0 else [_MIGRATIONS[step]() for step in range(version, VERSION)]
    for statement in _statements("".join(steps)):
        db.execute(statement)
    db.execute("UPDATE onthedot_sequence SET version = ?", (VERSION,))


def _check_auto(path: str, *, auto: bool) -> None:
    if not auto:
        raise StoreRefused(
            f"{path} has no schema of version {VERSION}; run `onthedot schema install`, or auto_schema=1"
        )


def _version(db: sqlite3.Connection) -> int:
    """0: no schema. The file may be the user's own, so user_version is not used."""
    tables = {name for (name,) in db.execute(SQL["own_tables"])}
    if "onthedot_sequence" not in tables:
        if tables:
            raise StoreRefused("the file has tables of an unreleased onthedot: delete it, or use another file")
        return 0
    version: int
    (version,) = db.execute(SQL["version"]).fetchone()
    return version


def _is_current(db: sqlite3.Connection, path: str) -> bool:
    version = _version(db)
    if version > VERSION:
        raise StoreRefused(f"{path} has schema version {version}, and this onthedot knows {VERSION}: upgrade onthedot")
    if version and any(step not in _MIGRATIONS for step in range(version, VERSION)):
        raise StoreRefused(
            f"{path} has schema version {version}, too old to be migrated to {VERSION}: use another file, or delete it "
            "with all its tasks"
        )
    return version == VERSION


def _statements(text: str) -> list[str]:
    """One by one: executescript() would commit in between."""
    statements: list[str] = []
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            statements.append(statement)
            statement = ""
    return statements


def app_of(db: sqlite3.Connection, name: str) -> int:
    """The number of an app; it is written only once, so that reading takes no lock."""
    row = db.execute(SQL["app"], (name,)).fetchone()
    if row is None:
        db.execute(SQL["new_app"], (name,))
        row = db.execute(SQL["app"], (name,)).fetchone()
    number: int
    (number,) = row
    return number


def is_ready(path: str, name: str) -> bool:
    """Whether the file has all that an app needs; then `open` need not write."""
    try:
        with closing(connect_read_only(path)) as db:
            return _version(db) == VERSION and db.execute(SQL["app"], (name,)).fetchone() is not None
    except sqlite3.Error:  # the writer reports what is wrong
        return False


def connect_read_only(path: str) -> sqlite3.Connection:
    """Also to a file in a folder that this user may not write: SQLite keeps its locks beside the file.

    Without a WAL no process has the file open, so it is read without locks then.
    """
    db = _connect_by_uri(path, "mode=ro")
    try:
        db.execute(SQL["own_tables"]).fetchone()
    except sqlite3.OperationalError as error:
        db.close()
        wal = Path(f"{path}-wal")
        if not _lacks_rights(error) or (wal.exists() and wal.stat().st_size):
            raise
        return _connect_by_uri(path, "immutable=1")
    except BaseException:
        db.close()
        raise
    return db


def _connect_by_uri(path: str, options: str) -> sqlite3.Connection:
    where = f"{Path(path).absolute().as_uri()}?{options}"
    return sqlite3.connect(where, uri=True, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False)


def _lacks_rights(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


# -- for commands


def install(path: str) -> None:
    with _opened(path) as db:
        prepare(db, path)


def check(path: str) -> tuple[bool, str]:
    """Whether the file has the schema of this version, and a message."""
    if not Path(path).exists():
        return False, f"{path}: no such file"
    with _opened(path, connect_read_only) as db:
        if _is_current(db, path):
            return True, f"{path}: schema version {VERSION}, as it should be"
        found = _version(db)
        return False, f"{path}: schema version {found}, this onthedot needs {VERSION}: run `onthedot schema install`"


def apps_in(path: str) -> list[str]:
    """The apps that have data in the file; a read leaves a name without data. Empty if it is not a store."""
    try:
        with closing(connect_read_only(path)) as db:
            return [name for (name,) in db.execute(SQL["apps"])]
    except sqlite3.Error as error:
        if _lacks_rights(error):
            raise translate(error, path) from None
        return []  # the next open reports what is wrong


@contextmanager
def _opened(path: str, how: Callable[[str], sqlite3.Connection] = connect) -> Generator[sqlite3.Connection, None, None]:
    try:
        with closing(how(path)) as db:
            yield db
    except sqlite3.Error as error:
        raise translate(error, path) from None
