"""Settle: the decisions about an outcome. The stores write ends themselves, since every task passes there."""

from __future__ import annotations

from onthedot.stores.contract import Lease, Note, Record, Requeued, Suspended, Verdict
from onthedot.stores.rules.journal import write_note
from onthedot.stores.rules.places import must_end, queue_chore, requeue
from onthedot.stores.rules.records import (
    after_requeue,
    after_settle,
    after_suspension,
    after_wait,
    rescheduled,
    wait_deadline,
    with_state,
)
from onthedot.stores.rules.task_tables import TaskTables


def late_verdict(settled_fence: int, session: str | None, lease: Lease) -> Verdict:
    """Of a lease that is over. settled_fence, session: by which the task was settled last."""
    return "repeat" if settled_fence == lease.fence and session == lease.session else "lost"


def requeue_outcome(
    tables: TaskTables, outcome: Requeued, record: Record, claimed_at: int | None, *, chore: bool
) -> None:
    """The task is released. claimed_at: the start of this run."""
    history = record.history
    if chore and history.reason != "lifted":  # it must end
        queue_chore(tables, with_state(record, record.state, after_settle(history, outcome.lease)))
        return
    if outcome.error:
        write_note(tables, record.seq, Note(outcome.lease, "error", str(record.attempt), outcome.error))
    started = history.started if outcome.after is None else claimed_at
    requeue(tables, record, after_requeue(history, outcome, started), outcome.after)


def suspend(tables: TaskTables, outcome: Suspended, record: Record, claimed_at: int | None, *, chore: bool) -> None:
    """The task waits, unless it must end."""
    if chore:
        queue_chore(tables, with_state(record, record.state, after_settle(record.history, outcome.lease)))
        return
    history = after_suspension(record.history, outcome, claimed_at, wait_deadline(outcome.wait, tables.now))
    if must_end(history):
        requeue(tables, record, after_wait(history), None)
        return
    tables.enter([rescheduled(record, record.due, "waiting", history)])
