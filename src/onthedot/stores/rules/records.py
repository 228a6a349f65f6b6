"""Records are never changed, only replaced: how the next one comes from the last."""

from __future__ import annotations

from math import ceil

from msgspec.structs import replace

from onthedot.stores.contract import ENDED, NO_HISTORY, History, Lease, Reason, Record, Requeued, State, Suspended, Wait

UNQUEUED_REASONS: frozenset[Reason] = frozenset(
    {"cancel", "expired", "crashed", "stray", "undecodable", "lifted", "upstream"}
)
"""Reasons of tasks that are in no queue: of chores, which must end, and of lifted tasks, which may be requeued."""


def with_state(record: Record, state: State, history: History | None = None) -> Record:
    return replace(record, state=state, history=record.history if history is None else history)


def rescheduled(record: Record, due: int, state: State, history: History) -> Record:
    return replace(record, due=due, state=state, history=history)


def with_history(
    history: History,
    reason: Reason | None = None,
    session: str | None = None,
    started: int | None = None,
    cancel_requested: bool = False,
    result: bytes | None = None,
) -> History:
    return replace(
        history,
        reason=reason or history.reason,
        session=session or history.session,
        started=history.started if started is None else started,
        cancel_requested=history.cancel_requested or cancel_requested,
        result=history.result if result is None else result,
    )


def after_settle(history: History, lease: Lease) -> History:
    return replace(history, settled_fence=lease.fence, session=lease.session)


def after_end(
    history: History,
    lease: Lease,
    started: int | None,
    now: float,
    keep: int,
    result: bytes | None,
    error: bytes | None,
) -> History:
    ended = int(now)
    return replace(
        history,
        settled_fence=lease.fence,
        session=lease.session,
        started=started,
        ended=ended,
        keep_until=ended + keep,
        result=result,
        error=error,
        wait=None,
        wait_until=None,
    )


def after_adopt(record: Record, seq: int) -> Record:
    """As the copy of another store's begins, whose fences and sessions are others."""
    was = record.history
    history = History(
        reason="lifted",
        retries=was.retries,
        crashes=was.crashes,
        earlier=was.earlier,
        started=was.started,
        error=was.error,
        hops=was.hops + 1,
        revives=was.revives,
    )
    return replace(record, seq=seq, state="scheduled", history=history, links=None)


def is_superseded(here: Record, copy: Record) -> bool:
    """Moved away from here, and so the copy that comes may take its place; not if that is older than what has gone."""
    return here.state in ENDED and here.history.reason == "lifted" and here.history.hops <= copy.history.hops


def after_revive(record: Record, now: float) -> Record:
    """Due now; or waiting as at first, if it never started."""
    was = record.history
    waits = None if record.links is None or was.started is not None else record.links.waits
    history = History(
        earlier=record.attempt,
        settled_fence=was.settled_fence,
        session=was.session,
        started=was.started,
        hops=was.hops,
        revives=was.revives + 1,
        wait_until=None if waits is None else wait_deadline(waits, now),
    )
    return rescheduled(record, int(now), "scheduled" if waits is None else "waiting", history)


def wait_deadline(wait: Wait, now: float) -> int | None:
    """When a wait that begins now is over in any case."""
    return None if wait.timeout is None else ceil(now + wait.timeout)


def after_requeue(history: History, outcome: Requeued, started: int | None) -> History:
    crashes = history.crashes
    earlier = history.earlier
    if outcome.reset_crashes:
        earlier += crashes
        crashes = 0
    return replace(
        _without_end(history),
        reason="due",
        retries=history.retries + outcome.counted,
        crashes=crashes,
        earlier=earlier,
        settled_fence=outcome.lease.fence,
        session=outcome.lease.session,
        started=started,
        error=outcome.error or history.error,
    )


def after_suspension(history: History, outcome: Suspended, started: int | None, wait_until: int | None) -> History:
    return replace(
        _without_end(history),
        reason="due",
        crashes=0,
        earlier=history.earlier + history.crashes,
        settled_fence=outcome.lease.fence,
        session=outcome.lease.session,
        started=started,
        wait=outcome.wait,
        wait_until=wait_until,
    )


def after_wait(history: History) -> History:
    if history.started is None and history == History(wait_until=history.wait_until):  # nothing else has happened
        return NO_HISTORY
    return replace(_without_end(history), reason="due")


def after_crash(history: History, most: int, started: int, counted: bool) -> History:
    crashes = history.crashes + counted
    return replace(
        _without_end(history),
        reason="crashed" if crashes >= most and not history.cancel_requested else "crash",
        crashes=crashes,
        started=started,
    )


def _without_end(history: History) -> History:
    """Without an end, its result and a wait."""
    return replace(history, ended=None, keep_until=None, result=None, wait=None, wait_until=None)


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
