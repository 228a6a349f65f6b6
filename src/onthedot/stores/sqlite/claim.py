"""Claim: which ready tasks a session gets, in order, within room and limits; and when to come back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import merge

import msgspec

from onthedot.stores.contract import BATCH, CHORES, ClaimRequest, ClaimResult, Record, Schedule, SlotPool
from onthedot.stores.rules.limits import admitted
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import Row, to_record
from onthedot.stores.sqlite.sessions import Session
from onthedot.stores.sqlite.tables import SqliteTables

_Ready = tuple[int, int, bool, Record, Row]  # rank and seq by which they come, a suspect, the task
_MINE = 20_000  # claimed rows that are remembered
_PAGE = 100


class SqlitePicker:
    """One ask of one session."""

    def __init__(self, tables: SqliteTables, session: Session, request: ClaimRequest) -> None:
        self._tables = tables
        self._session = session
        self._ask = request
        self._fence = tables.fence + 1
        self._number = 0  # of what it has taken
        self._suspects = request.max_suspects - session.suspects

    def repeat_claim(self) -> tuple[list[Record], list[Record]]:
        """What is still held under the last one."""
        tables = self._tables
        rows = tables.db.execute(SQL["leased_under"], (self._session.fence,)).fetchall() if self._session.fence else []
        return [tables.record(row) for row in rows if not row[-1]], [tables.record(row) for row in rows if row[-1]]

    def take(self) -> tuple[list[Record], list[Record]]:
        chores = self._chores()
        tasks: list[Record] = []
        for pool in self._ask.pools:
            tasks += self._pool(pool)
        if self._number:
            tables, session = self._tables, self._session
            tables.fence = session.fence = self._fence
            session.number, session.suspects = self._ask.number, self._ask.max_suspects - self._suspects
            row = (self._fence, tables.app, session.name, int(tables.now), self._number)
            tables.db.execute(SQL["new_claim"], row)
            session.save(tables)
        return tasks, chores

    def _hold(self, seqs: list[int], *, chore: bool) -> None:
        row = (self._fence, chore, self._number, msgspec.json.encode(seqs).decode())
        self._tables.db.execute(SQL["lease_many"], row)
        self._number += len(seqs)

    # -- chores

    def _chores(self) -> list[Record]:
        tables = self._tables
        chores = [tables.record(row) for row in tables.db.execute(SQL["chores"], (tables.app, CHORES)).fetchall()]
        if self._ask.known_sources is not None:
            chores += self._strays(self._ask.known_sources, CHORES - len(chores))
        if chores:
            tables.db.executemany(SQL["leave_chore"], [(record.seq,) for record in chores])
            self._hold([record.seq for record in chores], chore=True)
        return chores

    def _strays(self, known: frozenset[str], most: int) -> list[Record]:
        """Ready tasks of sources that nobody here knows: to be ended."""
        tables = self._tables
        strays: list[Record] = []
        for _, source in tables.db.execute(SQL["ready_sources"], {"app": tables.app, "suspect": 0}).fetchall():
            for suspect in (False, True) if source not in known else ():
                while len(strays) < most and (record := self._first(source, suspect)) is not None:
                    strays.append(tables.end_as_chore(record, "stray"))
        return strays

    def _first(self, source: str, suspect: bool) -> Record | None:
        tables, queue = self._tables, (self._tables.id_of(source), suspect, -(2**62), 0, 1)
        row = tables.db.execute(SQL["ready_page"], queue).fetchone()
        return None if row is None else tables.record(tables.db.execute(SQL["by_seq"], (row[7],)).fetchone())

    # -- tasks

    def _in(self, source: str, suspect: bool, most: int, left: Mapping[str, float]) -> Iterator[_Ready]:
        """Ready ones in order, a page at a time, as long as there is room for them."""
        tables, now = self._tables, self._tables.now
        rank, seq, queue = -(2**62), 0, (tables.id_of(source), suspect)
        while left[source] > 0 and (not suspect or self._suspects > 0):
            rows = tables.db.execute(SQL["ready_page"], (*queue, rank, seq, most)).fetchall()
            for row in rows:
                whole = row if row[10] is None else tables.db.execute(SQL["by_seq"], (row[7],)).fetchone()
                yield row[-1], row[7], suspect, to_record(whole, source, now), whole
            if len(rows) < most:
                return
            rank, seq, most = rows[-1][-1], rows[-1][7], _PAGE

    def _pool(self, pool: SlotPool) -> list[Record]:
        tables, taken = self._tables, list[Record]()
        left = {source: min(asked, self._room(source)[0]) for source, asked in pool.capacity.items() if asked > 0}
        seen: dict[tuple[str, bool], tuple[int, int]] = {}  # the last that was taken out of each queue
        queues = [
            self._in(source, suspect, int(min(room, pool.total)), left)
            for source, room in left.items()
            if room > 0 and pool.total > 0
            for suspect in (False, True)[: 1 + (self._suspects > 0)]
        ]
        shut = 0  # ready ones whose lane has closed meanwhile: no claim walks past more than a batch of them
        for rank, seq, suspect, record, row in merge(*queues):
            if len(taken) >= pool.total or shut >= BATCH:
                break
            source = record.source
            if left[source] <= 0 or (suspect and self._suspects <= 0):
                continue
            seen[source, suspect] = (rank, seq)
            if (record.lane is None and record.policy.expires is None) or self._starts(record):
                taken.append(record)
                tables.recent_claims[record.uuid] = (row, self._fence)
                left[source] -= 1
                self._suspects -= suspect
            else:
                shut += 1
        for (source, suspect), last in seen.items():
            tables.db.execute(SQL["leave_ready_until"], (tables.id_of(source), suspect, *last))
        self._taken(taken)
        return taken

    def _starts(self, record: Record) -> bool:
        """The last look at its lane; not open any more: parked."""
        tables, limits = self._tables, self._tables.limits
        if record.lane is None:
            tables.clear_alarm(record)
            return True
        lane = limits.lane(record.lane)
        admitted(lane, record, -1)
        if not limits.may_start(lane, record.policy.cost, tables.now):
            tables.park(record)
            return False
        tables.clear_alarm(record)
        lane.running += 1
        if (first := tables.first_parked(record.lane)) is not None:  # from now on time may open it for the next
            limits.has_capacity(lane, first.policy.cost, tables.now)
        return True

    def _taken(self, taken: list[Record]) -> None:
        if not taken:
            return
        tables = self._tables
        if len(tables.recent_claims) > _MINE:  # of sessions that died
            tables.recent_claims.clear()
        starts: dict[str, int] = {}
        for record in taken:
            starts[record.source] = starts.get(record.source, 0) + 1
        for source, number in starts.items():
            tables.count(source, "ready", -number)
            tables.count(source, "running", +number)
            tables.limits.spend(source, number, tables.now)
        seqs = [record.seq for record in taken]
        tables.moves["running"] += seqs
        self._hold(seqs, chore=False)

    def _room(self, source: str) -> tuple[float, float | None]:
        tables = self._tables
        if not tables.limits.declared:
            return float("inf"), None
        return tables.limits.source_capacity(source, tables.counted(source, "running"), tables.now)

    # -- coming back

    def claimed(self, tasks: list[Record], chores: list[Record], *, more: bool) -> ClaimResult:
        tables = self._tables
        rest = self._rest()
        return ClaimResult(
            self._session.fence if tasks or chores else 0,
            tasks,
            chores,
            [to_schedule(row) for row in tables.db.execute(SQL["due_schedules"], (tables.app, tables.now))],
            rest,
            frozenset(tables.told.woken),
            self._next_in(rest),
            more or len(chores) == CHORES,
            tables.now,
        )

    def _rest(self) -> dict[str, float | None]:
        """Asked sources that have nothing to take now, and for how many ms (None: until something happens)."""
        tables, rest = self._tables, dict[str, float | None]()
        for pool in self._ask.pools:
            for source, asked in pool.capacity.items():
                if asked <= 0:
                    continue
                kinds = (False, True) if self._suspects > 0 else (False,)
                places = ((tables.id_of(source), suspect) for suspect in kinds)
                if all(tables.db.execute(SQL["any_ready"], place).fetchone() is None for place in places):
                    rest[source] = None
                    continue
                free, wait = self._room(source)
                if free <= 0:
                    rest[source] = wait
        return rest

    def _next_in(self, rest: Mapping[str, float | None]) -> float | None:
        tables = self._tables
        tables.limits.save()
        moments = tables.db.execute(SQL["next_times"], {"app": tables.app, "now": tables.now}).fetchone()
        waits = [wait for wait in rest.values() if wait is not None]
        waits += [max(0.0, moment - tables.now) for moment in moments if moment is not None]
        return min(waits, default=None)


def to_schedule(row: Row) -> Schedule:
    name, rule, digest, next_at, rev, paused, last_at, runs, incoming = row
    return Schedule(name, rule, digest, next_at, rev, bool(paused), last_at, runs, bool(incoming))
