"""The SQLite store: one file, any number of processes of one machine; the default."""

from onthedot.stores.sqlite.store import SqliteStore
from onthedot.stores.sqlite.url import makes_schema, path_of

__all__ = ["SqliteStore", "makes_schema", "path_of"]
