"""The reader: a thread and connection of its own, so that a slow page never stops the queue."""

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
        self._reads: SqliteReads | None = None
        self._inode = 0

    def work(self, calls: list[Request[SqliteReads]]) -> None:
        for call in calls:
            if not call.take():
                continue
            try:
                call.answer = call.work(self._opened())
            except Exception as error:  # noqa: BLE001 - it is the answer of the call
                call.error = translate(error, self.path)
        answer(calls)

    def _opened(self) -> SqliteReads:
        if self._reads is not None and inode(self.path) != self._inode:
            self.close()
        if self._reads is None:
            if not inode(self.path):  # a connection would create an empty file
                raise StoreUnavailable(f"{self.path} does not exist any more; the next add creates a new one")
            db = connect(self.path)
            db.execute("PRAGMA query_only = 1")
            app = db.execute(SQL["app"], (self._name,)).fetchone()
            if app is None:
                db.close()
                raise StoreUnavailable(f"{self.path} is not open")
            (number,) = app
            self._reads = SqliteReads(db, number, Path(f"{self.path}-sessions"))
            self._inode = inode(self.path)
        return self._reads

    def disconnect(self) -> None:
        self.close()

    def close(self) -> None:
        if self._reads is not None:
            self._reads.db.close()
            self._reads = None
