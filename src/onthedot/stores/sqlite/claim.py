"""Which ready tasks a claim takes: a merge of pages by rank over several sources, within slots and limits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from heapq import merge
from typing import TYPE_CHECKING

from onthedot.stores.contract import BATCH, Record, SlotPool
from onthedot.stores.rules.claim import source_capacity, start
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import TaskRow, to_record

if TYPE_CHECKING:
    from onthedot.stores.sqlite.tables import SqliteTables

_MAX_RECENT = 20_000  # claimed rows that are remembered
_PAGE = 100
_Ready = tuple[int, int, bool, Record, TaskRow]  # rank and seq, by which it is ordered; a suspect; the task
_FIRST = (-(2**62), 0)  # before every rank and seq


class SqlitePicker:
    """One pool of one claim request. `suspects`: how many of them it may still take."""

    def __init__(self, tables: SqliteTables, pool: SlotPool, suspects: int) -> None:
        self._tables = tables
        self._pool = pool
        self.suspects: int = suspects
        self._capacity = {
            source: min(slots, source_capacity(tables, source)[0])
            for source, slots in pool.capacity.items()
            if slots > 0
        }

    def run(self) -> list[Record]:
        total = self._pool.total
        taken: list[Record] = []
        fence = self._tables.fence + 1
        recent_claims = self._tables.recent_claims
        passed: dict[tuple[str, bool], tuple[int, int]] = {}  # the last task that was read from each queue
        parked = 0  # ready tasks whose lane has lost its capacity; a claim passes at most BATCH of them
        for rank, seq, suspect, record, row in merge(*self._queues()):
            if len(taken) >= total or parked >= BATCH:
                break
            source = record.source
            if self._capacity[source] <= 0 or (suspect and self.suspects <= 0):
                continue
            passed[source, suspect] = (rank, seq)
            if (record.lane is None and record.policy.expires is None) or start(self._tables, record):
                taken.append(record)
                recent_claims[record.uuid] = (row, fence)
                self._capacity[source] -= 1
                self.suspects -= suspect
            else:
                parked += 1
        for (source, suspect), last in passed.items():
            self._tables.db.execute(SQL["leave_ready_until"], (self._tables.source_id(source), suspect, *last))
        if taken:
            self._count(taken)
        return taken

    def _queues(self) -> list[Iterator[_Ready]]:
        total = self._pool.total
        kinds = (False, True) if self.suspects > 0 else (False,)
        return [
            self._read(source, suspect, int(min(capacity, total)))
            for source, capacity in self._capacity.items()
            if capacity > 0 and total > 0
            for suspect in kinds
        ]

    def _read(self, source: str, suspect: bool, page: int) -> Iterator[_Ready]:
        """Ready tasks in order, one page at a time, while there is capacity for them."""
        tables = self._tables
        now = tables.now
        queue = (tables.source_id(source), suspect)
        rank, seq = _FIRST
        while self._capacity[source] > 0 and (not suspect or self.suspects > 0):
            rows = tables.db.execute(SQL["ready_page"], (*queue, rank, seq, page)).fetchall()
            for columns in rows:
                row = TaskRow(*columns)
                if row.reason is not None:
                    row = TaskRow(*tables.db.execute(SQL["by_seq"], (row.seq,)).fetchone())
                record = to_record(row, source, now)
                rank = row.due - record.policy.boost  # `Record.rank`, without a call per task
                seq = row.seq
                yield rank, seq, suspect, record, row
            if len(rows) < page:
                return
            page = _PAGE

    def _count(self, taken: list[Record]) -> None:
        tables = self._tables
        if len(tables.recent_claims) > _MAX_RECENT:  # of sessions that died
            tables.recent_claims.clear()
        by_source: defaultdict[str, list[int]] = defaultdict(list)
        for record in taken:
            by_source[record.source].append(record.seq)
        for source, seqs in by_source.items():
            tables.count(source, "ready", -len(seqs))
            tables.count(source, "running", +len(seqs))
            tables.transitions[tables.source_id(source), "running"] += seqs
            if tables.limits.has_limits:
                tables.limits.spend(source, len(seqs), tables.now)
