"""Which limits hold a task back, by the rules that the claim goes by."""

from __future__ import annotations

from onthedot.stores.contract import Blocker, Limit, Record
from onthedot.stores.rules.limits import LimitTable, closed_reason


def blockers(limits: LimitTable, record: Record, running: int, now: float) -> list[Blocker]:
    """limits: a copy that is thrown away, since its rules write. running: of its source."""
    found: list[Blocker] = []
    free, wait = limits.source_capacity(record.source, running, now)
    if free <= 0:
        found.append(_hold(limits.effective(record.source), running, 0, wait))
    if record.lane is not None:
        lane, cost = limits.lane(record.lane), record.policy.cost
        in_ready = record.state == "ready"
        lane.refill_at = None  # of others: what stands there afterwards is this one's
        if not (limits.may_start if in_ready else limits.has_capacity)(lane, cost, now):
            wait = None if lane.refill_at is None else lane.refill_at - now
            let_in = 0 if in_ready else lane.admitted
            found.append(_hold(limits.effective(record.lane), lane.running, let_in, wait))
    return found


def _hold(limit: Limit | None, running: int, let_in: int, wait: float | None) -> Blocker:
    assert limit is not None  # nothing else stops anybody
    reason = closed_reason(limit, running + let_in) or "rate"
    return Blocker(limit, reason, running, wait if reason == "rate" else None)
