"""Chores: tasks that end without a run. Settle is the only end, also for them."""

from __future__ import annotations

from onthedot.clock.durations import DAY, WEEK
from onthedot.definitions.sources import Source
from onthedot.model.failures import UNDECODABLE_RECORD, WORKER_DIED, encode_reason
from onthedot.stores.contract import Ended, Lease, Record

_KEEP = WEEK  # ms, for sources that this process does not know
KEEP_FAILED = 30 * DAY


def outcome_for_chore(record: Record, lease: Lease, source: Source | None, reason: str = "") -> Ended:
    """reason: of a task with links, where there is more to say than its record does."""
    keep = _KEEP
    keep_failed = KEEP_FAILED
    if source is not None:
        keep = source.options.keep
        keep_failed = source.options.keep_failed
    match record.history.reason:
        case "stray":
            reason = f"unknown source {record.source!r}: no code in this process declares it"
            return Ended(lease, "failed", encode_reason(reason, error_type="UnknownSource"), keep_failed)
        case "crashed":
            reason = f"its worker died {record.history.crashes} times over it"
            error = encode_reason(reason, record.attempt - 1, error_type=WORKER_DIED, kind="worker_died")
            return Ended(lease, "failed", error, keep_failed)
        case "undecodable":
            reason = "its record cannot be read; `onthedot doctor` shows what the store has of it"
            return Ended(lease, "failed", encode_reason(reason, error_type=UNDECODABLE_RECORD), keep_failed)
        case "expired":
            return Ended(lease, "cancelled", encode_reason(reason or "expired"), keep)
        case "upstream":
            return Ended(lease, "cancelled", encode_reason(reason or "upstream"), keep)
        case _:
            return Ended(lease, "cancelled", encode_reason("cancelled"), keep)
