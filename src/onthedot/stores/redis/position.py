"""How a waiting task stands: what a script has read at one moment, judged by the rules that all stores share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onthedot.stores.contract import Limit, Position
from onthedot.stores.redis.record_format import decode, remember_policy, to_record
from onthedot.stores.rules.limits import LimitTable, TokenBucket
from onthedot.stores.rules.position import blockers


def to_standing(answer: Sequence[Any]) -> Position:
    seq, asked, history, state, now, running, ahead, limits, source, lane, digest, text = answer
    remember_policy(digest, text)
    record = to_record(seq, asked, history, state.decode(), float(now))
    rules = LimitTable()
    for field, packed in zip(limits[::2], limits[1::2], strict=True):
        rules.put(to_limit(field, packed))
    if (bucket := _bucket(source)) is not None:
        rules.set_source_bucket(record.source, bucket)
    if record.lane is not None:
        there = rules.lane(record.lane)
        counts = [float(each or 0) for each in lane[:3]] or [0.0, 0.0, 0.0]
        there.running, there.admitted, there.reserved = int(counts[0]), int(counts[1]), counts[2]
        there.bucket = _bucket(lane)
    return Position(blockers(rules, record, running, float(now)), ahead)


def to_limit(field: bytes, packed: bytes) -> Limit:
    name, _, owner = field.decode().rpartition("|")
    cap, rate, burst, paused, reason, since, lane_rule = decode(packed)
    return Limit(
        name, None if cap is False else cap, None if rate is False else rate, burst, paused, reason,
        "operator" if owner == "operator" else "code", None if since is False else since,
        lane_rule.encode() if lane_rule else None,
    )  # fmt: skip


def pack_limit(limit: Limit) -> tuple[object, ...]:
    rule = None if limit.lane_rule is None else limit.lane_rule.decode()
    return (
        limit.name, limit.owner, limit.cap, limit.rate, limit.burst, limit.paused, limit.reason,
        limit.paused_since, rule,
    )  # fmt: skip


def _bucket(fields: Sequence[bytes | None]) -> TokenBucket | None:
    """tokens and at stand last; a lane that is not there, or has no rate, has none."""
    if not fields or not fields[3] or not fields[4]:
        return None
    bucket = TokenBucket(Limit(""), float(fields[4]))
    bucket.tokens = float(fields[3])
    return bucket
