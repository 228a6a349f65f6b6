"""Records are never changed, only replaced: how the next one comes from the last."""

from __future__ import annotations

from math import ceil

from onthedot.stores.contract import ENDED, NO_HISTORY, History, Lease, Reason, Record, Requeued, State, Suspended, Wait

UNQUEUED_REASONS: frozenset[Reason] = frozenset(
    {"cancel", "expired", "crashed", "stray", "undecodable", "lifted", "upstream"}
)
"""Reasons of tasks that are in no queue: of chores, which must end, and of lifted tasks, which may be requeued."""


def with_state(record: Record, state: State, history: History | None = None) -> Record:
    return Record(
        record.uuid, record.source, record.body, record.policy, record.lane, record.unique, record.due, record.seq,
        record.added, state, record.history if history is None else history, record.links,
    )  # fmt: skip


def rescheduled(record: Record, due: int, state: State, history: History) -> Record:
    return Record(
        record.uuid, record.source, record.body, record.policy, record.lane, record.unique, due, record.seq,
        record.added, state, history, record.links,
    )  # fmt: skip


def with_history(
    history: History,
    reason: Reason | None = None,
    session: str | None = None,
    started: int | None = None,
    cancel_requested: bool = False,
    result: bytes | None = None,
) -> History:
    return History(
        reason or history.reason,
        history.retries,
        history.crashes,
        history.earlier,
        history.cancel_requested or cancel_requested,
        history.settled_fence,
        session or history.session,
        started if started is not None else history.started,
        history.ended,
        history.keep_until,
        history.result if result is None else result,
        history.error,
        history.hops,
        history.revives,
        history.wait,
        history.wait_until,
    )


def ended(
    history: History,
    lease: Lease,
    started: int | None,
    now: float,
    keep: int,
    result: bytes | None,
    error: bytes | None,
) -> History:
    at = int(now)
    return History(
        history.reason,
        history.retries,
        history.crashes,
        history.earlier,
        history.cancel_requested,
        lease.fence,
        lease.session,
        started,
        at,
        at + keep,
        result,
        error,
        history.hops,
        history.revives,
    )


def adopted(record: Record, seq: int) -> Record:
    """As the copy of another store's begins, whose fences and sessions are others."""
    was = record.history
    history = History(
        "lifted", was.retries, was.crashes, was.earlier, started=was.started, error=was.error, hops=was.hops + 1,
        revives=was.revives,
    )  # fmt: skip
    return Record(
        record.uuid, record.source, record.body, record.policy, record.lane, record.unique, record.due, seq,
        record.added, "scheduled", history,
    )  # fmt: skip


def is_superseded(here: Record, copy: Record) -> bool:
    """Moved away from here, and so the copy that comes may take its place; not if that is older than what has gone."""
    return here.state in ENDED and here.history.reason == "lifted" and here.history.hops <= copy.history.hops


def revived(record: Record, now: float) -> Record:
    """Due now; or waiting as at first, if it never started."""
    was = record.history
    waits = None if record.links is None or was.started is not None else record.links.waits
    history = History(
        earlier=record.attempt, settled_fence=was.settled_fence, session=was.session, started=was.started,
        hops=was.hops, revives=was.revives + 1, wait_until=None if waits is None else times_out(waits, now),
    )  # fmt: skip
    return rescheduled(record, int(now), "scheduled" if waits is None else "waiting", history)


def times_out(wait: Wait, now: float) -> int | None:
    """When a wait that begins now is over in any case."""
    return None if wait.timeout is None else ceil(now + wait.timeout)


def settled_by(history: History, lease: Lease) -> History:
    return History(
        history.reason,
        history.retries,
        history.crashes,
        history.earlier,
        history.cancel_requested,
        lease.fence,
        lease.session,
        history.started,
        history.ended,
        history.keep_until,
        history.result,
        history.error,
        history.hops,
        history.revives,
        history.wait,
        history.wait_until,
    )


def after_requeue(history: History, outcome: Requeued, started: int | None) -> History:
    lease = outcome.lease
    crashes = history.crashes
    earlier = history.earlier
    if outcome.reset_crashes:
        earlier += crashes
        crashes = 0
    return History(
        "due",
        history.retries + outcome.counted,
        crashes,
        earlier,
        history.cancel_requested,
        lease.fence,
        lease.session,
        started,
        error=outcome.error or history.error,
        hops=history.hops,
        revives=history.revives,
    )


def after_suspension(history: History, outcome: Suspended, started: int | None, wait_until: int | None) -> History:
    lease = outcome.lease
    return History(
        "due",
        history.retries,
        0,
        history.earlier + history.crashes,
        history.cancel_requested,
        lease.fence,
        lease.session,
        started,
        error=history.error,
        hops=history.hops,
        revives=history.revives,
        wait=outcome.wait,
        wait_until=wait_until,
    )


def after_wait(history: History) -> History:
    if history.started is None and history == History(wait_until=history.wait_until):  # nothing else has happened
        return NO_HISTORY
    return History(
        "due",
        history.retries,
        history.crashes,
        history.earlier,
        history.cancel_requested,
        history.settled_fence,
        history.session,
        history.started,
        error=history.error,
        hops=history.hops,
        revives=history.revives,
    )


def after_crash(history: History, most: int, started: int, counted: bool) -> History:
    crashes = history.crashes + counted
    return History(
        "crashed" if crashes >= most and not history.cancel_requested else "crash",
        history.retries,
        crashes,
        history.earlier,
        history.cancel_requested,
        history.settled_fence,
        history.session,
        started,
        error=history.error,
        hops=history.hops,
        revives=history.revives,
    )


def expiry(record: Record) -> int | None:
    """Only what never started expires."""
    if record.policy.expires is None or record.history.started is not None:
        return None
    return record.due + record.policy.expires


def alarm_of(record: Record) -> int | None:
    """The one moment at which something happens by itself to a record that waits."""
    match record.state:
        case "scheduled":
            return record.due
        case "waiting":
            return record.history.wait_until
        case _:
            return expiry(record)
