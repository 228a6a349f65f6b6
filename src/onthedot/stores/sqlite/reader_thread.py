"""The reader: its own thread and connection, so that a slow page never stops the queue."""

from __future__ import annotations

from pathlib import Path

from onthedot.errors import StoreUnavailable
from onthedot.stores.sqlite.errors import inode, translate
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.reads import SqliteReads
from onthedot.stores.sqlite.request_thread import Request, RequestThread, answer
from onthedot.stores.sqlite.schema import connect


class ReaderThread(RequestThread[SqliteReads]):
    def __init__(self, path: str, name: str) -> None:
        super().__init__("onthedot-sqlite-reader", path)
        self._name = name
        self._looking: SqliteReads | None = None
        self._inode = 0

    def work(self, calls: list[Request[SqliteReads]]) -> None:
        for call in calls:
            if not call.take():
                continue
            try:
                call.answer = call.work(self._opened())
            except Exception as error:  # noqa: BLE001 - told to whoever asked
                call.error = translate(error, self.path)
        answer(calls)

    def _opened(self) -> SqliteReads:
        if self._looking is not None and inode(self.path) != self._inode:
            self.close()
        if self._looking is None:
            if not inode(self.path):  # to connect would make an empty one
                raise StoreUnavailable(f"{self.path} is not there any more; whoever adds next makes a new one")
            db = connect(self.path)
            db.execute("PRAGMA query_only = 1")
            app = db.execute(SQL["app"], (self._name,)).fetchone()
            if app is None:
                db.close()
                raise StoreUnavailable(f"{self.path} is not open")
            self._looking, self._inode = SqliteReads(db, app[0], Path(f"{self.path}-sessions")), inode(self.path)
        return self._looking

    def disconnect(self) -> None:
        self.close()

    def close(self) -> None:
        if self._looking is not None:
            self._looking.db.close()
            self._looking = None
