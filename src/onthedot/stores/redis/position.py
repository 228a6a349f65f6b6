"""The position of a pending task: a script reads its limits and lane, and the shared rules decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from onthedot.stores.contract import Limit, Position
from onthedot.stores.redis.policy_format import remember_policy
from onthedot.stores.redis.record_format import decode, or_none, to_record
from onthedot.stores.rules.limits import LimitTable, TokenBucket
from onthedot.stores.rules.position import blockers


class PositionAnswer(NamedTuple):
    """The answer of `lua/verbs/position.lua`."""

    seq: bytes
    task: bytes
    history: bytes | None
    state: bytes
    now: bytes
    running: int
    ahead: int
    limits: Sequence[bytes]  # field and packed limit in turn
    source: Sequence[bytes | None]  # of a lane: running, admitted, reserved, tokens, at
    lane: Sequence[bytes | None]
    digest: bytes
    policy: bytes


def to_position(answer: PositionAnswer) -> Position:
    now = float(answer.now)
    remember_policy(answer.digest.decode(), answer.policy)
    record = to_record(answer.seq, answer.task, answer.history, answer.state.decode(), now)
    limits = LimitTable()
    for field, packed in zip(answer.limits[::2], answer.limits[1::2], strict=True):
        limits.put(to_limit(field, packed))
    bucket = _bucket(answer.source)
    if bucket is not None:
        limits.set_source_bucket(record.source, bucket)
    if record.lane is not None:
        running, admitted, reserved, *_ = answer.lane
        lane = limits.lane(record.lane)
        lane.running = int(running or 0)
        lane.admitted = int(admitted or 0)
        lane.reserved = float(reserved or 0)
        lane.bucket = _bucket(answer.lane)
    return Position(blockers(limits, record, answer.running, now), answer.ahead)


def to_limit(field: bytes, packed: bytes) -> Limit:
    name, _, owner = field.decode().rpartition("|")
    fields: list[Any] = [*decode(packed), ""]  # an older version has stored no mode
    cap, rate, burst, paused, reason, since, lane_rule, mode = fields[:8]  # others are of a newer version
    return Limit(
        name,
        or_none(cap),
        or_none(rate),
        burst,
        paused,
        reason,
        "operator" if owner == "operator" else "code",
        or_none(since),
        lane_rule.encode() if lane_rule else None,
        mode,
    )


def pack_limit(limit: Limit) -> tuple[object, ...]:
    rule = None if limit.lane_rule is None else limit.lane_rule.decode()
    return (
        limit.name, limit.owner, limit.cap, limit.rate, limit.burst, limit.paused, limit.reason,
        limit.paused_since, rule, limit.mode,
    )  # fmt: skip


def _bucket(lane: Sequence[bytes | None]) -> TokenBucket | None:
    """None for a lane that does not exist, or has no rate."""
    tokens, filled_at = lane[3:]
    if not tokens or not filled_at:
        return None
    return TokenBucket(float(tokens), float(filled_at))
