"""Series of an SQLite store."""

from __future__ import annotations

import sqlite3

from onthedot.stores.contract import SeriesEntry
from onthedot.stores.sqlite.queries import SQL


class SqliteSeries:
    """Entries of one app, on a connection."""

    def __init__(self, db: sqlite3.Connection, app: int) -> None:
        self._db = db
        self._app = app

    def revision(self, entry: SeriesEntry) -> int:
        row = self._db.execute(SQL["series_revision"], (self._app, entry.series, entry.at, entry.writer)).fetchone()
        (revision,) = row or (0,)
        return int(revision)

    def delete(self, entry: SeriesEntry) -> None:
        self._db.execute(SQL["delete_series_entry"], (self._app, entry.series, entry.at, entry.writer))

    def put(self, entry: SeriesEntry) -> None:
        self._db.execute(SQL["put_series_entry"], (self._app, entry.series, entry.at, entry.writer, entry.data))

    def drop_older(self, series: str, at: int, limit: int) -> None:
        self._db.execute(SQL["drop_older_entries"], (self._app, series, at, limit))

    def drop_beyond(self, series: str, most: int, limit: int) -> None:
        named = {"app": self._app, "series": series, "most": most, "limit": limit}
        self._db.execute(SQL["drop_surplus_entries"], named)

    def read(self, series: str, since: int, until: int, limit: int, *, newest_first: bool) -> list[SeriesEntry]:
        statement = SQL["read_series_backwards" if newest_first else "read_series"]
        return [SeriesEntry(*row) for row in self._db.execute(statement, (self._app, series, since, until, limit))]
