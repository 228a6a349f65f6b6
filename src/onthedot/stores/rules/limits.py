"""Limits of sources and lanes, and their token buckets: what may start now."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Literal

from onthedot.stores.contract import Limit, Record

SWEEP = 5_000  # lanes that a purge checks
SLACK_MS = 1e-3  # what a moment may lose to rounding: the tokens of this time are lent, and stay owed
CLOCK_STEP_MS = 2_000.0  # a bucket that is further ahead than this continues from the clock's new time


class TokenBucket:
    """Tokens of one rate; a new one has the burst of its limit. `spend` is the only way out, time the only way in."""

    __slots__ = ("at", "tokens")

    def __init__(self, tokens: float, at: float) -> None:
        self.tokens: float = tokens
        self.at: float = at

    def level(self, limit: Limit, now: float) -> float:
        assert limit.rate is not None
        if now > self.at:
            self.tokens += limit.rate * (now - self.at) / 1000
            self.at = now
        elif self.is_ahead(now):
            self.at = now
        self.tokens = min(self.tokens, limit.burst)
        return self.tokens

    def spend(self, cost: float) -> None:
        self.tokens -= cost

    def is_ahead(self, now: float) -> bool:
        """The clock was set back. Clocks of processes differ by less than CLOCK_STEP_MS."""
        return self.at - now > CLOCK_STEP_MS


class Lane:
    """The tasks of one limit key: how many run, and how many were admitted to ready."""

    __slots__ = ("admitted", "bucket", "name", "refill_at", "reserved", "running")

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.running: int = 0
        self.admitted: int = 0
        self.reserved: float = 0.0  # what the admitted tasks will cost
        self.bucket: TokenBucket | None = None
        self.refill_at: float | None = None


class LimitTable:
    """Limits by name and owner, what they come to, and the lanes and buckets that they use."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], Limit] = {}
        self._effective: dict[str, Limit | None] = {}
        self._source_buckets: dict[str, TokenBucket] = {}
        self.lanes: dict[str, Lane] = {}
        self.has_limits: bool = False  # False: no limit was ever declared and no lane used, so nothing is read

    def put(self, limit: Limit) -> bool:
        """False: it is unchanged."""
        if self._records.get((limit.name, limit.owner)) == limit:
            return False
        self._records[limit.name, limit.owner] = limit
        self.has_limits = self.has_limits or is_effective(limit)
        self._effective.clear()
        return True

    def are_stored(self, limits: Iterable[Limit]) -> bool:
        """Each as it is given; one that sets nothing may be missing."""
        return all(
            self._records.get((limit.name, limit.owner), Limit(limit.name, owner=limit.owner)) == limit
            for limit in limits
        )

    def all(self) -> list[Limit]:
        return list(self._records.values())

    def effective(self, name: str) -> Limit | None:
        """The limit that the records of a source or lane come to."""
        if not self.has_limits:
            return None
        if name not in self._effective:
            if len(self._effective) > 100_000:
                self._effective.clear()
            self._effective[name] = _merge(name, self._relevant(name))
        return self._effective[name]

    def _relevant(self, name: str) -> Iterable[Limit]:
        """The most specific first: the name's own before its star, the operator's before code's."""
        head, slash, _ = name.partition("/")
        for each in (name, f"{head}/*") if slash else (name,):
            for owner in ("operator", "code"):
                if (limit := self._records.get((each, owner))) is not None:
                    yield limit

    def source_capacity(self, source: str, running: int, now: float) -> tuple[float, float | None]:
        """How many more tasks of a source may start now, and in how many ms it is worth asking again."""
        limit = self.effective(source)
        if limit is None:
            return float("inf"), None
        if closed_reason(limit, running):
            return 0, None
        capacity = float("inf") if limit.cap is None else limit.cap - running
        if limit.rate is None:
            return capacity, None
        tokens = self.source_bucket(source, limit, now).level(limit, now)
        lent = _slack(limit.rate)
        if tokens + lent < 1:
            return 0, _time_for(1 - tokens, limit.rate)
        return min(capacity, int(tokens + lent)), None

    def spend(self, source: str, starts: int, now: float) -> None:
        limit = self.effective(source)
        if limit is not None and limit.rate is not None:
            self.source_bucket(source, limit, now).spend(starts)

    def source_bucket(self, source: str, limit: Limit, now: float) -> TokenBucket:
        bucket = self._source_buckets.get(source)
        if bucket is None:
            bucket = self._source_buckets[source] = TokenBucket(limit.burst, now)
        return bucket

    def set_source_bucket(self, source: str, bucket: TokenBucket) -> None:
        """A bucket that was read from elsewhere."""
        self._source_buckets[source] = bucket

    def lane(self, name: str) -> Lane:
        lane = self.lanes.get(name)
        if lane is None:
            lane = self.lanes[name] = Lane(name)
            self.has_limits = True
        return lane

    def has_capacity(self, lane: Lane, cost: float, now: float) -> bool:
        """Whether one more task may be admitted to ready. If time alone decides, the lane's refill is set."""
        limit = self.effective(lane.name)
        if limit is None:
            return True
        if closed_reason(limit, lane.running + lane.admitted):
            return False
        if limit.rate is None:
            return True
        cost = min(cost, limit.burst)
        missing = cost - (self._level(lane, limit, now) - lane.reserved)
        if missing <= _slack(limit.rate):
            return True
        if lane.reserved + cost <= limit.burst:  # otherwise the admitted tasks must start first
            self.set_refill(lane, now + _time_for(missing, limit.rate))
        return False

    def may_start(self, lane: Lane, cost: float, now: float) -> bool:
        """Whether an admitted task may start. Checked again at the claim, since limits can have changed."""
        limit = self.effective(lane.name)
        if limit is None:
            return True
        if closed_reason(limit, lane.running):
            return False
        if limit.rate is None:
            return True
        cost = min(cost, limit.burst)  # a task that was added under a larger burst waits for a full bucket
        if cost - self._level(lane, limit, now) > _slack(limit.rate):
            self.set_refill(lane, now)  # what was reserved for it may be enough for the first parked task
            return False
        assert lane.bucket is not None
        lane.bucket.spend(cost)
        return True

    def time_to_start(self, lane: Lane, cost: float, now: float) -> float | None:
        """Ms until the bucket has the tokens of an admitted task; None: no rate decides."""
        limit = self.effective(lane.name)
        if limit is None or limit.rate is None:
            return None
        return max(0.0, _time_for(min(cost, limit.burst) - self._level(lane, limit, now), limit.rate))

    def _level(self, lane: Lane, limit: Limit, now: float) -> float:
        if lane.bucket is None:
            lane.bucket = TokenBucket(limit.burst, now)
        return lane.bucket.level(limit, now)

    def set_refill(self, lane: Lane, when: float) -> None:
        """Admit in this lane at that time, or earlier if that was planned before."""
        if lane.refill_at is None or when < lane.refill_at:
            lane.refill_at = when

    def snapshot(self, record: Record) -> LimitTable:
        """The same rules over copies of this task's lane and bucket, for a read: a rule writes what it computes."""
        copies = LimitTable()
        copies._records = self._records
        copies.has_limits = self.has_limits
        if (bucket := self._source_buckets.get(record.source)) is not None:
            copies.set_source_bucket(record.source, copy(bucket))
        lane = None if record.lane is None else self.lanes.get(record.lane)
        if lane is not None:
            copies.lanes[lane.name] = copy(lane)
            copies.lanes[lane.name].bucket = copy(lane.bucket)
        return copies

    def sweep(self, now: float) -> None:
        """Forget lanes that are over, at most SWEEP per call."""

    def is_full(self, lane: Lane, now: float) -> bool:
        """Forgetting a bucket that is not full would fill it."""
        limit = self.effective(lane.name)
        if lane.bucket is None or limit is None or limit.rate is None:
            return True
        return self._level(lane, limit, now) >= limit.burst


def is_effective(limit: Limit) -> bool:
    """A limit that code no longer declares stays as a record that limits nothing."""
    return limit.cap is not None or limit.rate is not None or limit.paused


def closed_reason(limit: Limit, running: int) -> Literal["paused", "cap"] | None:
    """Why one more task cannot start, whatever the time."""
    if limit.paused:
        return "paused"
    return "cap" if limit.cap is not None and running >= limit.cap else None


def count_admitted(lane: Lane, record: Record, by: int) -> None:
    """A task was admitted to ready (+1), or has left it (-1)."""
    lane.admitted += by
    lane.reserved += by * record.policy.cost
    if lane.admitted == 0:
        lane.reserved = 0.0


def _slack(rate: float) -> float:
    return rate * SLACK_MS / 1000


def _time_for(tokens: float, rate: float) -> float:
    return tokens / rate * 1000


def _merge(name: str, limits: Iterable[Limit]) -> Limit | None:
    found = [limit for limit in limits if is_effective(limit)]
    if not found:
        return None
    cap = next((each.cap for each in found if each.cap is not None), None)
    rated = next((each for each in found if each.rate is not None), None)
    paused = next((each for each in found if each.paused), None)
    return Limit(
        name,
        cap=cap,
        rate=rated.rate if rated else None,
        burst=rated.burst if rated else 1,
        paused=paused is not None,
        reason=paused.reason if paused else "",
    )
