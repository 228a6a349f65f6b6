"""Which limits stop a pending task, by the rules of the claim."""

from __future__ import annotations

from onthedot.stores.contract import Blocker, Limit, Record
from onthedot.stores.rules.limits import LimitTable, closed_reason


def blockers(limits: LimitTable, record: Record, running: int, now: float) -> list[Blocker]:
    """limits: a copy that is thrown away, since its rules write. running: tasks of its source."""
    found: list[Blocker] = []
    free, wait = limits.source_capacity(record.source, running, now)
    if free <= 0:
        found.append(_blocker(limits.effective(record.source), running, 0, wait))
    if record.lane is not None:
        lane = limits.lane(record.lane)
        lane.refill_at = None  # the rule below sets it for this task
        is_admitted = record.state == "ready"
        check = limits.may_start if is_admitted else limits.has_capacity
        if not check(lane, record.policy.cost, now):
            wait = None if lane.refill_at is None else lane.refill_at - now
            admitted = lane.admitted
            if is_admitted:  # its rate was declared, or lowered, after it was admitted
                wait = limits.time_to_start(lane, record.policy.cost, now)
                admitted = 0
            found.append(_blocker(limits.effective(record.lane), lane.running, admitted, wait))
    return found


def _blocker(limit: Limit | None, running: int, admitted: int, wait: float | None) -> Blocker:
    assert limit is not None  # nothing else stops a task
    reason = closed_reason(limit, running + admitted) or "rate"
    return Blocker(limit, reason, running, wait if reason == "rate" else None)
