"""Settle in memory: one outcome after the other. The decisions are shared (`rules.settle`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from onthedot.stores.contract import Completed, Ended, Outcome, Record, Requeued, Suspended, Verdict
from onthedot.stores.rules.insert import add
from onthedot.stores.rules.lanes import release_capacity
from onthedot.stores.rules.outbox import publish
from onthedot.stores.rules.records import after_end, with_state
from onthedot.stores.rules.settle import late_verdict, requeue_outcome, suspend

if TYPE_CHECKING:
    from onthedot.stores.memory.tables import MemoryTables


def settle(tables: MemoryTables, outcomes: Sequence[Outcome]) -> list[Verdict]:
    verdicts: list[Verdict] = [_settle(tables, outcome) for outcome in outcomes]
    tables.raise_counted()
    return verdicts


def _settle(tables: MemoryTables, outcome: Outcome) -> Verdict:
    lease = outcome.lease
    record = tables.records.get(lease.uuid)
    if record is None:
        return "lost"
    history = record.history
    claim = tables.leases.get(lease.uuid)
    if claim is None or claim.fence != lease.fence or claim.session != lease.session:
        return late_verdict(history.settled_fence, history.session, lease)
    started = history.started if claim.chores else claim.at
    tables.end_lease(record, claim)
    match outcome:
        case Completed():
            result = tables.keep_result(outcome)
            over = after_end(history, lease, started, tables.now, outcome.keep, result, history.error)
            _end(tables, with_state(record, "succeeded", over), outcome.keep)
        case Ended():
            over = after_end(history, lease, started, tables.now, outcome.keep, None, outcome.error)
            _end(tables, with_state(record, outcome.state, over), outcome.keep)
        case Requeued():
            requeue_outcome(tables, outcome, record, started, chore=claim.chores)
        case Suspended():
            suspend(tables, outcome, record, started, chore=claim.chores)
        case _:
            assert_never(outcome)
    if tables.limits.has_limits or tables.suspects or record.lane is not None:
        release_capacity(tables, record)
    if outcome.effects is not None:
        add(tables, outcome.effects.tasks)
        if outcome.effects.events:
            publish(tables, outcome.effects.events)
    return "ok"


def _end(tables: MemoryTables, record: Record, keep: int) -> None:
    """record: as it has ended."""
    policy = record.policy
    notified = tables.notifications.ended
    if record.unique is not None and policy.unique_for is None:
        tables.free_key(record.source, record.unique, record.uuid)
    if policy.reply_to is not None:
        notified.setdefault(policy.reply_to, []).append(record.uuid)
    if tables.subscriptions.sessions_by_uuid:
        for session in tables.subscriptions.end_task(record.uuid):
            notified.setdefault(session, []).append(record.uuid)
    if record.links is not None:
        tables.count_end(record.links, failed=record.state != "succeeded")
    tables.store_end(record, keep)
