"""Sessions: until when they live, and what happens to their tasks when they end."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from onthedot.stores.contract import CLIENT_LEASE, ENDED, HeartbeatResult, Lease, LeasedTasks, Record
from onthedot.stores.rules.lanes import release_capacity
from onthedot.stores.rules.notifications import CancelRequest
from onthedot.stores.rules.places import end_as_chore, queue_chore, requeue
from onthedot.stores.rules.records import UNQUEUED_REASONS, after_crash, with_history, with_state
from onthedot.stores.rules.task_tables import LeasedRecord, SessionEntry, TaskTables


def heartbeat(tables: TaskTables, name: str, info: bytes, lease_ms: int) -> HeartbeatResult:
    """Open or renew a session. A dead one stays dead."""
    if tables.is_dead(name):
        return HeartbeatResult(alive=False)
    session = tables.find_session(name) or SessionEntry(name, tables.process)
    joined = session.role == "client"
    session.role = "worker"
    session.info = info
    session.until = tables.now + lease_ms
    tables.save_session(session, joined=joined)
    cancel_requests = [
        Lease(each.record.uuid, each.fence, name)
        for each in tables.leased_by(name)
        if each.record.history.cancel_requested and not each.chore
    ]
    return HeartbeatResult(alive=True, cancel_requests=cancel_requests)


def close_session(tables: TaskTables, name: str, *, crashed: bool = False) -> None:
    """crashed: its process died. A name that never sent a heartbeat is dead from now on, too."""
    if crashed:
        if not tables.is_dead(name):
            reap_session(tables, name)
    elif tables.find_session(name) is not None:
        tables.drop_session(name)
        release_session(tables, name, tables.leased_by(name))


def reap_overdue(tables: TaskTables) -> None:
    """Reap the sessions whose lease has run out."""
    for name in tables.overdue_sessions():
        reap_session(tables, name)


def reap_session(tables: TaskTables, name: str) -> None:
    """If the session ran a suspect, that is what crashed; otherwise any of its runs may have."""
    tables.drop_session(name)
    tables.mark_dead(name)
    leased = tables.leased_by(name)
    runs = [each.record for each in leased if not each.chore]
    suspects = [record for record in runs if record.is_suspect]
    release_session(tables, name, leased, crashed={record.uuid for record in suspects or runs})


def release_session(
    tables: TaskTables, name: str, leased: Sequence[LeasedRecord], crashed: Collection[str] | None = None
) -> None:
    """Requeue the tasks of a session. crashed: the runs that count as crashed; None: it was closed in order."""
    tables.release(leased, name)
    for record, _, _, chore in leased:
        tables.count(record.source, record.state if chore else "running", -1)
        if record.lane is not None and not chore:
            tables.limits.lane(record.lane).running -= 1
    for record, _, claimed_at, chore in leased:
        history = record.history
        if crashed is not None:
            history = after_crash(history, record.policy.max_crashes, claimed_at, record.uuid in crashed)
        if chore:
            queue_chore(tables, record)
        else:
            requeue(tables, record, history, None)
    for each in sorted(leased, key=lambda each: (each.record.rank, each.record.seq)):
        release_capacity(tables, each.record)


def cancel(tables: TaskTables, name: str, uuids: Sequence[str], reason: str) -> LeasedTasks:
    """Request the cancel of running tasks; lease the others to the caller, which ends them."""
    open_client_session(tables, name)
    chores: dict[str, Record] = {}
    for uuid in uuids:
        record = tables.load(uuid)
        if record is None or record.state in ENDED or uuid in chores:
            continue
        holder = tables.lease_holder(record)
        if holder is not None:
            history = with_history(record.history, cancel_requested=True)
            tables.save(with_state(record, record.state, history), leased=True)
            tables.notifications.cancel_requests.append(CancelRequest(holder, uuid, reason))
            continue
        if record.history.reason not in UNQUEUED_REASONS:
            record = end_as_chore(tables, record, "cancel")
        history = with_history(record.history, reason="cancel", cancel_requested=True)
        chores[uuid] = with_state(record, record.state, history)
        tables.save(chores[uuid])
    return lease_chores(tables, name, list(chores.values()))


def open_client_session(tables: TaskTables, name: str) -> None:
    """For a caller that may be no worker: it lives for CLIENT_LEASE."""
    session = tables.find_session(name)
    joined = session is None
    session = session or SessionEntry(name, tables.process)
    if session.role == "client":
        session.until = tables.now + CLIENT_LEASE
        tables.save_session(session, joined=joined)


def lease_chores(tables: TaskTables, name: str, chores: Sequence[Record]) -> LeasedTasks:
    return LeasedTasks(tables.lease(name, (), chores), chores)


def subscribe(tables: TaskTables, name: str, uuids: Sequence[str]) -> None:
    """Only tasks that live are subscribed to: nothing else would end the subscription."""
    open_client_session(tables, name)
    for uuid in uuids:
        record = tables.load(uuid)
        if record is not None and record.state not in ENDED:
            tables.subscribe(name, uuid)
