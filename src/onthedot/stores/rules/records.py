"""Records are never changed, only replaced: how the next one comes from the last."""

from __future__ import annotations

from math import ceil

from onthedot.stores.contract import Lease, Past, Record, State, Why

ENDED: frozenset[State] = frozenset({"succeeded", "failed", "cancelled"})
ENDING: frozenset[Why] = frozenset({"cancel", "expired", "crashed", "stray", "lifted"})
"""In no order: a chore's, which must end; or lifted, which may be put down again."""


def due_in(after: float, now: float) -> int:
    """Rounded up, so that nothing is early; now is now."""
    return ceil(now + after) if after > 0 else int(now)


def moved(record: Record, state: State, past: Past | None = None) -> Record:
    return Record(
        record.uuid, record.source, record.body, record.policy, record.lane, record.unique, record.due, record.seq,
        record.added, state, record.past if past is None else past,
    )  # fmt: skip


def due_again(record: Record, due: int, past: Past) -> Record:
    return Record(
        record.uuid, record.source, record.body, record.policy, record.lane, record.unique, due, record.seq,
        record.added, "scheduled", past,
    )  # fmt: skip


def past_with(
    past: Past,
    why: Why | None = None,
    session: str | None = None,
    started: int | None = None,
    cancel: bool = False,
    result: bytes | None = None,
) -> Past:
    return Past(
        why or past.why, past.retries, past.crashes, past.earlier, past.cancel or cancel, past.settled,
        session or past.session, started if started is not None else past.started, past.ended, past.keep_until,
        past.result if result is None else result, past.error, past.hops,
    )  # fmt: skip


def ended(
    past: Past, lease: Lease, started: int | None, now: float, keep: int, result: bytes | None, error: bytes | None
) -> Past:
    at = int(now)
    return Past(
        past.why, past.retries, past.crashes, past.earlier, past.cancel, lease.fence, lease.session,
        started, at, at + keep, result, error, past.hops,
    )  # fmt: skip


def adopted(record: Record, seq: int) -> Record:
    """As the copy of another store's begins, whose fences and sessions are others."""
    was = record.past
    past = Past(
        "lifted", was.retries, was.crashes, was.earlier, started=was.started, error=was.error, hops=was.hops + 1
    )  # fmt: skip
    return Record(
        record.uuid, record.source, record.body, record.policy, record.lane, record.unique, record.due, seq,
        record.added, "scheduled", past,
    )  # fmt: skip


def gone(here: Record, copy: Record) -> bool:
    """Moved away from here, and so the copy that comes may take its place; not if that is older than what has gone."""
    return here.state in ENDED and here.past.why == "lifted" and here.past.hops <= copy.past.hops


def revived(record: Record, now: float) -> Record:
    was = record.past
    past = Past(
        earlier=record.attempt, settled=was.settled, session=was.session, started=was.started, hops=was.hops
    )  # fmt: skip
    return due_again(record, int(now), past)


def settled_by(past: Past, lease: Lease) -> Past:
    return Past(
        past.why, past.retries, past.crashes, past.earlier, past.cancel, lease.fence, lease.session, past.started,
        past.ended, past.keep_until, past.result, past.error, past.hops,
    )  # fmt: skip


def back(past: Past, lease: Lease, counted: bool, started: int | None, error: bytes) -> Past:
    return Past(
        "due", past.retries + counted, past.crashes, past.earlier, past.cancel, lease.fence, lease.session,
        started, error=error or past.error, hops=past.hops,
    )  # fmt: skip


def crashed(past: Past, most: int, started: int, counted: bool) -> Past:
    crashes = past.crashes + counted
    return Past(
        "crashed" if crashes >= most and not past.cancel else "crash", past.retries, crashes, past.earlier,
        past.cancel, past.settled, past.session, started, error=past.error, hops=past.hops,
    )  # fmt: skip


def expiry(record: Record) -> int | None:
    """Only what never started expires."""
    if record.policy.expires is None or record.past.started is not None:
        return None
    return record.due + record.policy.expires


def alarm(record: Record) -> int | None:
    """The one moment at which something happens by itself to a record that waits."""
    return record.due if record.state == "scheduled" else expiry(record)
