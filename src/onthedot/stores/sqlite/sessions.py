"""Who is here, until when, and what becomes of what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onthedot.stores.contract import CLIENT_LEASE, Beat, Held, Lease, Record
from onthedot.stores.rules.records import ENDED, ENDING, crashed, moved, past_with
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import Row
from onthedot.stores.sqlite.settle import Settling
from onthedot.stores.sqlite.tables import Board

_GRAVES = 10_000  # how many dead names are remembered


class Session:
    def __init__(
        self, name: str, info: bytes | None, until: float, suspects: int, number: int, fence: int, owner: str
    ) -> None:
        self.name = name
        self.info = info  # None: it has only cancelled, it is no worker
        self.until = until
        self.suspects = suspects  # how many of them it runs
        self.number: int = number  # of its last claim that took something
        self.fence: int = fence  # likewise
        self.owner = owner

    def save(self, board: Board) -> None:
        row = (self.name, self.info, self.until, self.suspects, self.number, self.fence, self.owner)
        board.db.execute(SQL["save_session"], (board.app, *row))


def there(board: Board, name: str) -> Session | None:
    """Alive, whether it has beaten or only cancelled."""
    row: tuple[Any, ...] | None = board.db.execute(SQL["session"], (board.app, name)).fetchone()
    return None if row is None else Session(name, *row)


def worker(board: Board, name: str) -> Session | None:
    session = there(board, name)
    return session if session is not None and session.info is not None else None


def beat(board: Board, name: str, info: bytes, lease: int, owner: str) -> Beat:
    if board.db.execute(SQL["grave"], (board.app, name)).fetchone() is not None:
        return Beat(alive=False)
    session = there(board, name)
    if session is None or session.info is None:
        board.control += 1
        board.told.peers = True
        session = session or Session(name, info, 0, 0, 0, 0, owner)
    session.info, session.until = info, board.now + lease
    session.save(board)
    if lease <= 0:
        bury(board, name)
        return Beat(alive=False)
    return Beat(True, [lease for lease, record in _runs(board, name) if record.past.cancel])


def close(board: Board, name: str) -> None:
    if there(board, name) is not None:
        _leave(board, name)
        _give_back(board, name)


def bury(board: Board, name: str) -> None:
    """A suspect that ran alone took the session down; without one, any run may have done it."""
    _leave(board, name)
    board.db.execute(SQL["bury"], (board.app, name))
    board.db.execute(SQL["level_graves"], (_GRAVES,))
    runs = [record for _, record in _runs(board, name)]
    suspects = [record for record in runs if record.suspect]
    _give_back(board, name, crashes={record.uuid for record in suspects or runs})


def bury_overdue(board: Board) -> None:
    for (name,) in board.db.execute(SQL["overdue"], (board.app, board.now)).fetchall():
        bury(board, name)


def bury_owner(board: Board, owner: str) -> None:
    """Its process is gone."""
    for (name,) in board.db.execute(SQL["owned"], (board.app, owner)).fetchall():
        bury(board, name)


def close_owner(board: Board, owner: str) -> None:
    """Its process goes."""
    for (name,) in board.db.execute(SQL["owned"], (board.app, owner)).fetchall():
        close(board, name)


def _leave(board: Board, name: str) -> None:
    board.db.execute(SQL["drop_session"], (board.app, name))
    board.asked.pop(name, None)
    board.control += 1


def _held(board: Board, name: str) -> list[tuple[int, int, Row, Record]]:
    """fence, at, row, record: in the order of taking."""
    held: list[tuple[int, int, Row, Record]] = []
    for fence, at in board.db.execute(SQL["claims_of"], (board.app, name)).fetchall():
        rows = board.db.execute(SQL["under"], (fence,)).fetchall()
        held += [(fence, at, row, board.record(row)) for row in rows]
    return held


def _runs(board: Board, name: str) -> list[tuple[Lease, Record]]:
    held = _held(board, name)
    return [(Lease(record.uuid, fence, name), record) for fence, _, row, record in held if not row[-1]]


def _give_back(board: Board, name: str, crashes: set[str] | None = None) -> None:
    """crashes: those of a dead session that count as such; None: it was closed in order."""
    held = _held(board, name)
    settling = Settling(board)
    for fence, _, row, _ in held:
        settling.let_go(row, fence, chore=row[-1])
    settling.write()
    for _, at, row, record in held:
        past = record.past
        if crashes is not None:
            past = crashed(past, record.policy.max_crashes, at, record.uuid in crashes)
        if row[-1]:
            board.wait_to_end(record)
        else:
            board.again(record, past, None)
    for _, _, _, record in sorted(held, key=lambda each: (each[3].rank, each[3].seq)):
        board.freed(record)
    board.db.execute(SQL["drop_claims_of"], (board.app, name))


def cancel(board: Board, name: str, uuids: Sequence[str], reason: str, owner: str) -> Held:
    _present(board, name, owner)
    leased: dict[int, Record] = {}
    for uuid in uuids:
        record = board.by_uuid(uuid)
        if record is None or record.state in ENDED or record.seq in leased:
            continue
        hold = board.db.execute(SQL["hold"], (record.seq,)).fetchone()
        if hold is not None:
            board.save(moved(record, record.state, past_with(record.past, cancel=True)))
            board.db.execute(SQL["touch"], (record.seq,))
            holder = board.db.execute(SQL["claim"], (hold[0],)).fetchone()
            board.told.cancel.append((holder[0], uuid, reason))
            continue
        if record.past.why not in ENDING:
            record = board.to_chores(record, "cancel")
        record = moved(record, record.state, past_with(record.past, why="cancel", cancel=True))
        board.save(record)
        leased[record.seq] = record
    return _lease(board, name, leased)


def lift(board: Board, name: str, uuids: Sequence[str], owner: str) -> Held:
    bury_overdue(board)
    _present(board, name, owner)
    leased: dict[int, Record] = {}
    for uuid in uuids:
        record = board.by_uuid(uuid)
        if record is None or record.state in ENDED or record.seq in leased or board.is_held(record):
            continue
        if record.past.why not in ENDING:
            record = board.to_chores(record, "lifted")
        if record.past.why == "lifted":
            leased[record.seq] = record
    return _lease(board, name, leased)


def _present(board: Board, name: str, owner: str) -> None:
    """For a while, although it may be no worker."""
    known = there(board, name)
    session = known or Session(name, None, 0, 0, 0, 0, owner)
    if known is None:  # others watch for its death, too
        board.control += 1
        board.told.peers = True
    if session.info is None:
        session.until = board.now + CLIENT_LEASE
        session.save(board)


def _lease(board: Board, name: str, leased: Mapping[int, Record]) -> Held:
    """As chores, by their numbers."""
    if not leased:
        return Held(0, [])
    board.fence += 1
    seqs = list(leased)
    board.db.executemany(SQL["leave_chore"], [(seq,) for seq in seqs])
    board.db.execute(SQL["hold_many"], (board.fence, True, 0, msgspec.json.encode(seqs).decode()))
    board.db.execute(SQL["new_claim"], (board.fence, board.app, name, int(board.now), len(seqs)))
    return Held(board.fence, list(leased.values()))
