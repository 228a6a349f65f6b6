"""Errors of SQLite and of the file system, translated into store errors that advise what to do."""

from __future__ import annotations

import errno
import sqlite3

from onthedot.errors import StoreBusy, StoreError, StoreFull, StoreRefused, StoreUnavailable


def translate(error: Exception, path: str) -> Exception:
    if isinstance(error, OSError):
        return _KINDS.get(error.errno or 0, StoreUnavailable)(
            f"{path}: {error}; SQLite needs a folder that exists and that this user may write, with some room"
        )
    if not isinstance(error, sqlite3.Error):
        return error
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    kind, advice = _ADVICE.get(code) or _ADVICE.get(code & 0xFF, (StoreUnavailable, "nothing was acknowledged"))
    return kind(f"{path}: {error}; {advice}")


def is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


_KINDS: dict[int, type[StoreError]] = {
    errno.ENOSPC: StoreFull, errno.EACCES: StoreRefused, errno.EPERM: StoreRefused, errno.EROFS: StoreRefused,
}  # fmt: skip
_ADVICE: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_READONLY_DBMOVED: (StoreUnavailable, "the file was deleted or replaced while it was open"),
    sqlite3.SQLITE_BUSY: (StoreBusy, "another program holds the database; nothing was written, try again"),
    sqlite3.SQLITE_FULL: (StoreFull, "the disk is full: nothing was written; free some space"),
    sqlite3.SQLITE_IOERR: (StoreUnavailable, "the disk does not answer or is full; nothing was acknowledged"),
    sqlite3.SQLITE_READONLY: (
        StoreRefused,
        "the file or its folder may not be written by this user, and SQLite needs both",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        StoreUnavailable,
        "the file cannot be opened or made: does its folder exist, and may this user write there?",
    ),
    sqlite3.SQLITE_NOTADB: (StoreRefused, "this file is not an SQLite database; name another one"),
    sqlite3.SQLITE_CORRUPT: (StoreRefused, "the database is damaged: run `PRAGMA integrity_check` and restore a copy"),
}
