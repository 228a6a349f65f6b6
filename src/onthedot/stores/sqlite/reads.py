"""Reads, on a thread and connection of their own: a slow page never stops the queue."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from onthedot.errors import StoreUnavailable
from onthedot.stores.contract import (
    ENDED,
    MAX_AHEAD,
    NO_COUNTER,
    NO_HISTORY,
    ChangePage,
    Counter,
    Lease,
    Limit,
    Note,
    NoteKind,
    Page,
    Position,
    Record,
    Schedule,
    SignalPage,
    State,
    StoredSignal,
)
from onthedot.stores.rules.change_log import choose_newest
from onthedot.stores.rules.pages import PageBuilder
from onthedot.stores.rules.position import blockers
from onthedot.stores.rules.records import UNQUEUED_REASONS
from onthedot.stores.sqlite.change_rows import to_call
from onthedot.stores.sqlite.errors import translate
from onthedot.stores.sqlite.event_reads import SqliteEventReads
from onthedot.stores.sqlite.files import may_write
from onthedot.stores.sqlite.limits import SqliteLimitTable
from onthedot.stores.sqlite.lists import SqliteLists
from onthedot.stores.sqlite.presence import is_gone
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.request_thread import Request, RequestThread, answer, inode
from onthedot.stores.sqlite.rows import TASK_COLUMNS, Row, TaskRow, json_list, to_limit, to_readable, to_schedule
from onthedot.stores.sqlite.schema import connect, connect_read_only
from onthedot.stores.sqlite.series import SqliteSeries
from onthedot.stores.sqlite.side_tables import Sequences


class SqliteReads:
    def __init__(self, db: sqlite3.Connection, app: int, is_gone: Callable[[str], bool]) -> None:
        """is_gone: whether a process has died."""
        self.db = db
        self._app = app
        self._is_gone = is_gone
        self.now: float = 0.0  # of the current request
        self.events: SqliteEventReads = SqliteEventReads(db, app)
        self.series: SqliteSeries = SqliteSeries(db, app)

    def get(self, uuids: Sequence[str]) -> list[Record | None]:
        rows = self.db.execute(SQL["get"], (json_list(uuids), self._app))
        found = {record.uuid: record for record in (_as_seen(row, self.now) for row in rows)}
        return [found.get(uuid) for uuid in uuids]

    def results(self, uuids: Sequence[str]) -> list[bytes | None]:
        found: dict[str, bytes | None] = dict(self.db.execute(SQL["results"], (json_list(uuids), self._app, self.now)))
        return [found.get(uuid) for uuid in uuids]

    def find(self, where: Mapping[str, str], after: str | None, limit: int) -> Page:
        builder = PageBuilder(where, after, limit)
        lists = SqliteLists(self.db, self._app, where)
        self.db.execute("BEGIN")  # one snapshot for all reads
        try:
            if builder.needs_fence:
                builder.fence = Sequences(*self.db.execute(SQL["sequences"]).fetchone()).fence
            while (request := builder.next_request()) is not None:
                candidates = lists.candidates(request)
                rows = lists.records([each.seq for each in candidates])
                builder.take(
                    request, candidates, {record.seq: record for record in (_as_seen(row, self.now) for row in rows)}
                )
        finally:
            self.db.execute("COMMIT")
        return builder.page()

    def notes(self, uuid: str, after: int, limit: int, kind: NoteKind | None) -> list[tuple[int, Note]]:
        wanted = {"app": self._app, "uuid": uuid, "after": after, "limit": limit, "kind": kind}
        rows = self.db.execute(SQL["notes"], wanted)
        return [
            (number, Note(Lease(uuid, fence, session), kind, name, data))
            for number, fence, session, kind, name, data in rows
        ]

    def signals(self, name: str, after: int, limit: int) -> SignalPage:
        self.db.execute("BEGIN")  # one snapshot for both reads
        try:
            rows = self.db.execute(SQL["signals"], (self._app, name, after, self.now, limit)).fetchall()
            return SignalPage(self.counters([name])[0].value, [StoredSignal(*row) for row in rows])
        finally:
            self.db.execute("COMMIT")

    def signal_names(self, limit: int) -> list[str]:
        rows = self.db.execute(SQL["signal_names"], (self._app, self.now, limit))
        return list(dict.fromkeys(name for (name,) in rows))

    def counters(self, names: Sequence[str]) -> list[Counter]:
        rows = self.db.execute(SQL["counters"], (self._app, json_list(names)))
        found = {name: Counter(value, failed) for name, value, failed in rows}
        return [found.get(name, NO_COUNTER) for name in names]

    def tally(self) -> dict[tuple[str, State], int]:
        return {(source, state): number for source, state, number in self.db.execute(SQL["tally"], (self._app,))}

    def position(self, uuid: str) -> Position | None:
        self.db.execute("BEGIN")  # one snapshot for all reads
        try:
            found = self.db.execute(SQL["leased_task"], (self._app, uuid)).fetchone()
            if found is None:
                return None
            *columns, fence, _ = found
            row = TaskRow(*columns)
            (source,) = self.db.execute(SQL["source_name"], (row.source,)).fetchone()
            record = to_readable(row, source, self.now)
            if fence is not None or record.state in ENDED or record.history.reason in UNQUEUED_REASONS:
                return None
            if record.state == "waiting":
                return None
            (running,) = self.db.execute(SQL["tally_of"], (row.source, "running")).fetchone() or (0,)
            limits = SqliteLimitTable(self.db, self._app)  # what the rules change in it is never saved
            limits.load()
            return Position(blockers(limits, record, running, self.now), self._ahead(record, row.source))
        finally:
            self.db.execute("COMMIT")

    def _ahead(self, record: Record, source: int) -> int:
        place = (record.rank, record.seq, MAX_AHEAD)
        queues: list[tuple[str, Row]] = [("ready_before", (source, suspect, *place)) for suspect in (0, 1)]
        if record.state == "parked":
            queues.append(("parked_before", (self._app, record.lane, *place)))
        counts: list[int] = [self.db.execute(SQL[name], queue).fetchone()[0] for name, queue in queues]
        return min(MAX_AHEAD, sum(counts))

    def schedules(self) -> list[Schedule]:
        return [to_schedule(row) for row in self.db.execute(SQL["all_schedules"], (self._app,))]

    def limits(self) -> list[Limit]:
        return [to_limit(row) for row in self.db.execute(SQL["limits"], (self._app,))]

    def sessions(self) -> dict[str, bytes]:
        workers = self.db.execute(SQL["workers"], (self._app, self.now)).fetchall()
        processes = {process for _, process, _ in workers}
        dead = {process for process in processes if self._is_gone(process)}
        return {name: info for name, process, info in workers if process not in dead}

    def changes(self, after: str, limit: int, resolve: int = 0) -> ChangePage:
        if not after:
            return ChangePage([], str(self._last_change()))
        last = int(after)
        rows = self.db.execute(SQL["changes"], (self._app, last, limit)).fetchall()
        calls = [to_call(at, text) for _, at, text in rows]
        uuids: dict[int, str] = {}
        if seqs := choose_newest(calls, resolve):
            uuids = dict(self.db.execute(SQL["uuids_of"], (json_list(seqs),)).fetchall())
        end = self._last_change()
        gap = not self._before_first_change(end) <= last <= end
        last = rows[-1][0] if rows else min(last, end)
        return ChangePage([call.to_entry(uuids) for call in calls], str(last), gap)

    def _last_change(self) -> int:
        return Sequences(*self.db.execute(SQL["sequences"]).fetchone()).transitions

    def _before_first_change(self, end: int) -> int:
        """The number before the first row, of any app; `end` if there is none."""
        row = self.db.execute(SQL["first_change"]).fetchone()
        if row is None:
            return end
        number, at, text = row
        before: int = number - to_call(at, text).number
        return before


class ReaderThread(RequestThread[SqliteReads]):
    def __init__(self, path: str, name: str, now: Callable[[], float]) -> None:
        super().__init__("onthedot-sqlite-reader", path)
        self._name = name
        self._now = now
        self._reads: SqliteReads | None = None
        self._inode = 0

    def is_gone(self, process: str) -> bool:
        """Of the machine; a simulation has another."""
        return is_gone(Path(f"{self.path}-sessions"), process)

    def work(self, calls: list[Request[SqliteReads]]) -> None:
        for call in calls:
            if not call.take():
                continue
            try:
                reads = self._opened()
                reads.now = self._now()
                call.answer = call.work(reads)
            except Exception as error:  # noqa: BLE001 - it is the answer of the call
                call.error = translate(error, self.path)
        answer(calls)

    def _opened(self) -> SqliteReads:
        if self._reads is not None and inode(self.path) != self._inode:
            self.close()
        if self._reads is None:
            if not inode(self.path):  # a connection would create an empty file
                raise StoreUnavailable(f"{self.path} does not exist any more; the next add creates a new one")
            db = connect(self.path) if may_write(self.path) else connect_read_only(self.path)
            db.execute("PRAGMA query_only = 1")
            app = db.execute(SQL["app"], (self._name,)).fetchone()
            if app is None:
                db.close()
                raise StoreUnavailable(f"{self.path} is not open")
            (number,) = app
            self._reads = SqliteReads(db, number, self.is_gone)
            self._inode = inode(self.path)
        return self._reads

    def disconnect(self) -> None:
        self.close()

    def close(self) -> None:
        if self._reads is not None:
            self._reads.db.close()
            self._reads = None


def _as_seen(row: Row, now: float) -> Record:
    """As a reader sees it: with the claim that holds it."""
    *columns, session, claimed_at, source = row
    task = TaskRow(*columns)
    if session is not None:
        if task.reason is None:  # it has no history yet, so these columns are null
            task = TaskRow(*columns[:TASK_COLUMNS])
            task.reason = NO_HISTORY.reason
        task.state = "running"
        task.session = session
        task.started = claimed_at
    return to_readable(task, source, now)
