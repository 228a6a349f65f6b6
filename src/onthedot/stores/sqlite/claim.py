"""Claim: which ready tasks a session gets, in order, within room and limits; and when to come back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import merge

import msgspec

from onthedot.stores.contract import BATCH, CHORES, Ask, Claimed, Pool, Record, Schedule
from onthedot.stores.rules.limits import admitted
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import Row, to_record
from onthedot.stores.sqlite.sessions import Session
from onthedot.stores.sqlite.tables import Board

_Ready = tuple[int, int, bool, Record, Row]  # rank and seq by which they come, a suspect, the task
_MINE = 20_000  # claimed rows that are remembered
_PAGE = 100


class Claiming:
    """One ask of one session."""

    def __init__(self, board: Board, session: Session, ask: Ask) -> None:
        self._board = board
        self._session = session
        self._ask = ask
        self._fence = board.fence + 1
        self._number = 0  # of what it has taken
        self._suspects = ask.suspects - session.suspects

    def again(self) -> tuple[list[Record], list[Record]]:
        """What is still held under the last one."""
        board = self._board
        rows = board.db.execute(SQL["under"], (self._session.fence,)).fetchall() if self._session.fence else []
        return [board.record(row) for row in rows if not row[-1]], [board.record(row) for row in rows if row[-1]]

    def take(self) -> tuple[list[Record], list[Record]]:
        chores = self._chores()
        tasks: list[Record] = []
        for pool in self._ask.pools:
            tasks += self._pool(pool)
        if self._number:
            board, session = self._board, self._session
            board.fence = session.fence = self._fence
            session.number, session.suspects = self._ask.number, self._ask.suspects - self._suspects
            row = (self._fence, board.app, session.name, int(board.now), self._number)
            board.db.execute(SQL["new_claim"], row)
            session.save(board)
        return tasks, chores

    def _hold(self, seqs: list[int], *, chore: bool) -> None:
        row = (self._fence, chore, self._number, msgspec.json.encode(seqs).decode())
        self._board.db.execute(SQL["hold_many"], row)
        self._number += len(seqs)

    # -- chores

    def _chores(self) -> list[Record]:
        board = self._board
        chores = [board.record(row) for row in board.db.execute(SQL["chores"], (board.app, CHORES)).fetchall()]
        if self._ask.known is not None:
            chores += self._strays(self._ask.known, CHORES - len(chores))
        if chores:
            board.db.executemany(SQL["leave_chore"], [(record.seq,) for record in chores])
            self._hold([record.seq for record in chores], chore=True)
        return chores

    def _strays(self, known: frozenset[str], most: int) -> list[Record]:
        """Ready tasks of sources that nobody here knows: to be ended."""
        board = self._board
        strays: list[Record] = []
        for _, source in board.db.execute(SQL["ready_sources"], {"app": board.app, "suspect": 0}).fetchall():
            for suspect in (False, True) if source not in known else ():
                while len(strays) < most and (record := self._first(source, suspect)) is not None:
                    strays.append(board.to_chores(record, "stray"))
        return strays

    def _first(self, source: str, suspect: bool) -> Record | None:
        board, queue = self._board, (self._board.id_of(source), suspect, -(2**62), 0, 1)
        row = board.db.execute(SQL["queue"], queue).fetchone()
        return None if row is None else board.record(board.db.execute(SQL["by_seq"], (row[7],)).fetchone())

    # -- tasks

    def _in(self, source: str, suspect: bool, most: int, left: Mapping[str, float]) -> Iterator[_Ready]:
        """Ready ones in order, a page at a time, as long as there is room for them."""
        board, now = self._board, self._board.now
        rank, seq, queue = -(2**62), 0, (board.id_of(source), suspect)
        while left[source] > 0 and (not suspect or self._suspects > 0):
            rows = board.db.execute(SQL["queue"], (*queue, rank, seq, most)).fetchall()
            for row in rows:
                whole = row if row[10] is None else board.db.execute(SQL["by_seq"], (row[7],)).fetchone()
                yield row[-1], row[7], suspect, to_record(whole, source, now), whole
            if len(rows) < most:
                return
            rank, seq, most = rows[-1][-1], rows[-1][7], _PAGE

    def _pool(self, pool: Pool) -> list[Record]:
        board, taken = self._board, list[Record]()
        left = {source: min(asked, self._room(source)[0]) for source, asked in pool.room.items() if asked > 0}
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
                board.mine[record.uuid] = (row, self._fence)
                left[source] -= 1
                self._suspects -= suspect
            else:
                shut += 1
        for (source, suspect), last in seen.items():
            board.db.execute(SQL["taken"], (board.id_of(source), suspect, *last))
        self._taken(taken)
        return taken

    def _starts(self, record: Record) -> bool:
        """The last look at its lane; not open any more: parked."""
        board, limits = self._board, self._board.limits
        if record.lane is None:
            board.disarm(record)
            return True
        lane = limits.lane(record.lane)
        admitted(lane, record, -1)
        if not limits.starts(lane, record.policy.cost, board.now):
            board.park(record)
            return False
        board.disarm(record)
        lane.running += 1
        if (first := board.first_parked(record.lane)) is not None:  # from now on time may open it for the next
            limits.opens(lane, first.policy.cost, board.now)
        return True

    def _taken(self, taken: list[Record]) -> None:
        if not taken:
            return
        board = self._board
        if len(board.mine) > _MINE:  # of sessions that died
            board.mine.clear()
        starts: dict[str, int] = {}
        for record in taken:
            starts[record.source] = starts.get(record.source, 0) + 1
        for source, number in starts.items():
            board.count(source, "ready", -number)
            board.count(source, "running", +number)
            board.limits.spend(source, number, board.now)
        seqs = [record.seq for record in taken]
        board.moves["running"] += seqs
        self._hold(seqs, chore=False)

    def _room(self, source: str) -> tuple[float, float | None]:
        board = self._board
        if not board.limits.declared:
            return float("inf"), None
        return board.limits.room(source, board.counted(source, "running"), board.now)

    # -- coming back

    def claimed(self, tasks: list[Record], chores: list[Record], *, more: bool) -> Claimed:
        board = self._board
        rest = self._rest()
        return Claimed(
            self._session.fence if tasks or chores else 0,
            tasks,
            chores,
            [to_schedule(row) for row in board.db.execute(SQL["due_schedules"], (board.app, board.now))],
            rest,
            frozenset(board.told.woke),
            self._next_in(rest),
            more or len(chores) == CHORES,
            board.now,
        )

    def _rest(self) -> dict[str, float | None]:
        """Asked sources that have nothing to take now, and for how many ms (None: until something happens)."""
        board, rest = self._board, dict[str, float | None]()
        for pool in self._ask.pools:
            for source, asked in pool.room.items():
                if asked <= 0:
                    continue
                kinds = (False, True) if self._suspects > 0 else (False,)
                places = ((board.id_of(source), suspect) for suspect in kinds)
                if all(board.db.execute(SQL["any_ready"], place).fetchone() is None for place in places):
                    rest[source] = None
                    continue
                free, wait = self._room(source)
                if free <= 0:
                    rest[source] = wait
        return rest

    def _next_in(self, rest: Mapping[str, float | None]) -> float | None:
        board = self._board
        board.limits.save()
        moments = board.db.execute(SQL["moments"], {"app": board.app, "now": board.now}).fetchone()
        waits = [wait for wait in rest.values() if wait is not None]
        waits += [max(0.0, moment - board.now) for moment in moments if moment is not None]
        return min(waits, default=None)


def to_schedule(row: Row) -> Schedule:
    name, rule, declared, next_at, rev, paused, last_at, runs = row
    return Schedule(name, rule, declared, next_at, rev, bool(paused), last_at, runs)
