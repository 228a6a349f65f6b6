"""Who is here, until when, and what becomes of what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onthedot.stores.contract import CLIENT_LEASE, HeartbeatResult, Lease, LeasedTasks, Record
from onthedot.stores.rules.records import CHORE_REASONS, ENDED, after_crash, with_history, with_state
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import Row
from onthedot.stores.sqlite.settle import SettleBatch
from onthedot.stores.sqlite.tables import SqliteTables

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

    def save(self, tables: SqliteTables) -> None:
        row = (self.name, self.info, self.until, self.suspects, self.number, self.fence, self.owner)
        tables.db.execute(SQL["save_session"], (tables.app, *row))


def find_session(tables: SqliteTables, name: str) -> Session | None:
    """Alive, whether it has beaten or only cancelled."""
    row: tuple[Any, ...] | None = tables.db.execute(SQL["session"], (tables.app, name)).fetchone()
    return None if row is None else Session(name, *row)


def worker(tables: SqliteTables, name: str) -> Session | None:
    session = find_session(tables, name)
    return session if session is not None and session.info is not None else None


def _is_dead(tables: SqliteTables, name: str) -> bool:
    return tables.db.execute(SQL["is_dead"], (tables.app, name)).fetchone() is not None


def heartbeat(tables: SqliteTables, name: str, info: bytes, lease: int, owner: str) -> HeartbeatResult:
    if _is_dead(tables, name):
        return HeartbeatResult(alive=False)
    session = find_session(tables, name)
    if session is None or session.info is None:
        tables.control += 1
        tables.told.peers = True
        session = session or Session(name, info, 0, 0, 0, 0, owner)
    session.info, session.until = info, tables.now + lease
    session.save(tables)
    return HeartbeatResult(True, [lease for lease, record in _runs(tables, name) if record.history.cancel_requested])


def crash(tables: SqliteTables, name: str) -> None:
    """Its process died. A name that never sent a heartbeat is dead from now on too."""
    if not _is_dead(tables, name):
        reap_session(tables, name)


def close(tables: SqliteTables, name: str) -> None:
    if find_session(tables, name) is not None:
        _leave(tables, name)
        release_session(tables, name)


def reap_session(tables: SqliteTables, name: str) -> None:
    """A suspect that ran alone took the session down; without one, any run may have done it."""
    _leave(tables, name)
    tables.db.execute(SQL["mark_dead"], (tables.app, name))
    tables.db.execute(SQL["trim_dead"], (_GRAVES,))
    runs = [record for _, record in _runs(tables, name)]
    suspects = [record for record in runs if record.is_suspect]
    release_session(tables, name, crashes={record.uuid for record in suspects or runs})


def reap_overdue(tables: SqliteTables) -> None:
    for (name,) in tables.db.execute(SQL["overdue"], (tables.app, tables.now)).fetchall():
        reap_session(tables, name)


def bury_owner(tables: SqliteTables, owner: str) -> None:
    """Its process is gone."""
    for (name,) in tables.db.execute(SQL["sessions_of_process"], (tables.app, owner)).fetchall():
        reap_session(tables, name)


def close_owner(tables: SqliteTables, owner: str) -> None:
    """Its process goes."""
    for (name,) in tables.db.execute(SQL["sessions_of_process"], (tables.app, owner)).fetchall():
        close(tables, name)


def _leave(tables: SqliteTables, name: str) -> None:
    tables.db.execute(SQL["drop_session"], (tables.app, name))
    tables.asked.pop(name, None)
    tables.control += 1


def _held(tables: SqliteTables, name: str) -> list[tuple[int, int, Row, Record]]:
    """fence, at, row, record: in the order of taking."""
    leased: list[tuple[int, int, Row, Record]] = []
    for fence, at in tables.db.execute(SQL["claims_of"], (tables.app, name)).fetchall():
        rows = tables.db.execute(SQL["leased_under"], (fence,)).fetchall()
        leased += [(fence, at, row, tables.record(row)) for row in rows]
    return leased


def _runs(tables: SqliteTables, name: str) -> list[tuple[Lease, Record]]:
    leased = _held(tables, name)
    return [(Lease(record.uuid, fence, name), record) for fence, _, row, record in leased if not row[-1]]


def release_session(tables: SqliteTables, name: str, crashes: set[str] | None = None) -> None:
    """crashes: those of a dead session that count as such; None: it was closed in order."""
    leased = _held(tables, name)
    settling = SettleBatch(tables)
    for fence, _, row, _ in leased:
        settling.release(row, fence, chore=row[-1])
    settling.write()
    for _, at, row, record in leased:
        history = record.history
        if crashes is not None:
            history = after_crash(history, record.policy.max_crashes, at, record.uuid in crashes)
        if row[-1]:
            tables.queue_chore(record)
        else:
            tables.requeue(record, history, None)
    for _, _, _, record in sorted(leased, key=lambda each: (each[3].rank, each[3].seq)):
        tables.release_capacity(record)
    tables.db.execute(SQL["drop_claims_of"], (tables.app, name))


def cancel(tables: SqliteTables, name: str, uuids: Sequence[str], reason: str, owner: str) -> LeasedTasks:
    _present(tables, name, owner)
    leased: dict[int, Record] = {}
    for uuid in uuids:
        record = tables.by_uuid(uuid)
        if record is None or record.state in ENDED or record.seq in leased:
            continue
        hold = tables.db.execute(SQL["lease"], (record.seq,)).fetchone()
        if hold is not None:
            tables.save(with_state(record, record.state, with_history(record.history, cancel_requested=True)))
            tables.db.execute(SQL["touch"], (record.seq,))
            holder = tables.db.execute(SQL["claim"], (hold[0],)).fetchone()
            tables.told.cancel.append((holder[0], uuid, reason))
            continue
        if record.history.reason not in CHORE_REASONS:
            record = tables.end_as_chore(record, "cancel")
        record = with_state(record, record.state, with_history(record.history, reason="cancel", cancel_requested=True))
        tables.save(record)
        leased[record.seq] = record
    return _lease(tables, name, leased)


def lift(tables: SqliteTables, name: str, uuids: Sequence[str], owner: str) -> LeasedTasks:
    reap_overdue(tables)
    _present(tables, name, owner)
    leased: dict[int, Record] = {}
    for uuid in uuids:
        record = tables.by_uuid(uuid)
        if record is None or record.state in ENDED or record.seq in leased or tables.is_held(record):
            continue
        if record.history.reason not in CHORE_REASONS:
            record = tables.end_as_chore(record, "lifted")
        if record.history.reason == "lifted":
            leased[record.seq] = record
    return _lease(tables, name, leased)


def _present(tables: SqliteTables, name: str, owner: str) -> None:
    """For a while, although it may be no worker."""
    known = find_session(tables, name)
    session = known or Session(name, None, 0, 0, 0, 0, owner)
    if known is None:  # others watch for its death, too
        tables.control += 1
        tables.told.peers = True
    if session.info is None:
        session.until = tables.now + CLIENT_LEASE
        session.save(tables)


def _lease(tables: SqliteTables, name: str, leased: Mapping[int, Record]) -> LeasedTasks:
    """As chores, by their numbers."""
    if not leased:
        return LeasedTasks(0, [])
    tables.fence += 1
    seqs = list(leased)
    tables.db.executemany(SQL["leave_chore"], [(seq,) for seq in seqs])
    tables.db.execute(SQL["lease_many"], (tables.fence, True, 0, msgspec.json.encode(seqs).decode()))
    tables.db.execute(SQL["new_claim"], (tables.fence, tables.app, name, int(tables.now), len(seqs)))
    return LeasedTasks(tables.fence, list(leased.values()))
