"""What may start now: limits of sources and lanes, their buckets, and the tasks that their lane holds back."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from heapq import heappop, heappush
from typing import Literal

from onthedot.stores.contract import Limit, Record
from onthedot.stores.rules.ordered_queue import OrderedQueue

SWEEP = 5_000  # lanes a purge looks at
_SLACK_MS = 1e-3  # what a moment may lose to rounding: the tokens of this time are lent, and stay owed


class TokenBucket:
    """Tokens of one rate; starts full. `spend` is the only way out, time the only way in."""

    __slots__ = ("at", "tokens")

    def __init__(self, limit: Limit, now: float) -> None:
        self.tokens: float = limit.burst
        self.at: float = now

    def level(self, limit: Limit, now: float) -> float:
        assert limit.rate is not None
        if now > self.at:
            self.tokens += limit.rate * (now - self.at) / 1000
            self.at = now
        self.tokens = min(self.tokens, limit.burst)
        return self.tokens

    def spend(self, cost: float) -> None:
        self.tokens -= cost


class Lane:
    """One key's tasks: how many run, how many were let into ready, who waits outside."""

    __slots__ = ("admitted", "bucket", "name", "parked", "refill_at", "reserved", "running")

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.running: int = 0
        self.admitted: int = 0
        self.reserved: float = 0.0  # what the admitted ones will cost
        self.parked: OrderedQueue = OrderedQueue()
        self.bucket: TokenBucket | None = None
        self.refill_at: float | None = None

    @property
    def empty(self) -> bool:
        return not (self.running or self.admitted or self.parked.members)


class LimitTable:
    """Limit records by name and by whom, and what they come to."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], Limit] = {}
        self._effective: dict[str, Limit | None] = {}
        self._sources: dict[str, TokenBucket] = {}
        self.lanes: dict[str, Lane] = {}
        self.declared: bool = False  # nothing is looked at where nothing was ever declared or laned
        self._refills: list[tuple[float, str]] = []
        self._to_sweep: list[str] = []

    def put(self, limit: Limit, now: float) -> bool:
        """False: that is how it was. Else the lanes it is about are looked at again, and no others."""
        if self._records.get((limit.name, limit.owner)) == limit:
            return False
        self._records[limit.name, limit.owner] = limit
        self.declared = self.declared or is_effective(limit)
        self._effective.clear()
        head, slash, key = limit.name.partition("/")
        about = (name for name in self.lanes if name.startswith(head + "/")) if slash and key == "*" else (limit.name,)
        for name in about:
            if (lane := self.lanes.get(name)) is not None and lane.parked.members:
                self.set_refill(lane, now)
        return True

    def all(self) -> list[Limit]:
        return list(self._records.values())

    def effective(self, name: str) -> Limit | None:
        if not self.declared:
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
            for by in ("operator", "code"):
                if (limit := self._records.get((each, by))) is not None:
                    yield limit

    def source_capacity(self, source: str, running: int, now: float) -> tuple[float, float | None]:
        """How many more of a source may start now, and in how many ms it is worth asking again."""
        limit = self.effective(source)
        if limit is None:
            return float("inf"), None
        if closed_reason(limit, running):
            return 0, None
        room = float("inf") if limit.cap is None else limit.cap - running
        if limit.rate is None:
            return room, None
        tokens = self._source_bucket(source, limit, now).level(limit, now)
        lent = _slack(limit.rate)
        if tokens + lent < 1:
            return 0, _time_for(1 - tokens, limit.rate)
        return min(room, int(tokens + lent)), None

    def spend(self, source: str, starts: int, now: float) -> None:
        limit = self.effective(source)
        if limit is not None and limit.rate is not None:
            self._source_bucket(source, limit, now).spend(starts)

    def _source_bucket(self, source: str, limit: Limit, now: float) -> TokenBucket:
        bucket = self._sources.get(source)
        if bucket is None:
            bucket = self._sources[source] = TokenBucket(limit, now)
        return bucket

    def set_source_bucket(self, source: str, bucket: TokenBucket) -> None:
        """A bucket that was read from elsewhere."""
        self._sources[source] = bucket

    def lane(self, name: str) -> Lane:
        lane = self.lanes.get(name)
        if lane is None:
            lane = self.lanes[name] = Lane(name)
            self.declared = True
        return lane

    def has_capacity(self, lane: Lane, cost: float, now: float) -> bool:
        """May one more be let into ready? If only time can tell, the lane's refill is set."""
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
        if lane.reserved + cost <= limit.burst:  # else time alone does not open it: the admitted ones must start first
            self.set_refill(lane, now + _time_for(missing, limit.rate))
        return False

    def may_start(self, lane: Lane, cost: float, now: float) -> bool:
        """May an admitted one start? Asked again at the take, since limits can have changed in between."""
        limit = self.effective(lane.name)
        if limit is None:
            return True
        if closed_reason(limit, lane.running):
            return False
        if limit.rate is None:
            return True
        cost = min(cost, limit.burst)  # one that was added under a larger burst waits for a full bucket, not for ever
        if cost - self._level(lane, limit, now) > _slack(limit.rate):
            self.set_refill(lane, now)  # what was pledged to it may be enough for the first of those that are parked
            return False
        assert lane.bucket is not None
        lane.bucket.spend(cost)
        return True

    def _level(self, lane: Lane, limit: Limit, now: float) -> float:
        if lane.bucket is None:
            lane.bucket = TokenBucket(limit, now)
        return lane.bucket.level(limit, now)

    def set_refill(self, lane: Lane, when: float) -> None:
        if lane.refill_at is None or when < lane.refill_at:
            lane.refill_at = when
            heappush(self._refills, (when, lane.name))

    def refilled(self, now: float) -> Lane | None:
        """The next lane whose time has come."""
        while self._refills and self._refills[0][0] <= now + _SLACK_MS:
            when, name = heappop(self._refills)
            lane = self.lanes.get(name)
            if lane is not None and lane.refill_at == when:
                lane.refill_at = None
                return lane
        return None

    def next_refill(self) -> float | None:
        return self._refills[0][0] if self._refills else None

    def snapshot(self, record: Record) -> LimitTable:
        """The same rules over copies of what is this task's, for who only asks: a rule writes down what it finds."""
        scratch = LimitTable()
        scratch._records, scratch.declared = self._records, self.declared
        if (bucket := self._sources.get(record.source)) is not None:
            scratch._sources[record.source] = copy(bucket)
        lane = None if record.lane is None else self.lanes.get(record.lane)
        if lane is not None:
            scratch.lanes[lane.name] = mine = copy(lane)
            mine.bucket = copy(lane.bucket)
        return scratch

    def sweep(self, now: float) -> None:
        """Forgets lanes that are over. A part each time: there may be a lane a customer."""
        self._to_sweep = self._to_sweep or list(self.lanes)
        for name in self._to_sweep[-SWEEP:]:
            lane = self.lanes.get(name)
            if lane is not None and lane.empty and self._full(lane, now):
                del self.lanes[name]
        del self._to_sweep[-SWEEP:]

    def left(self, lane: Lane) -> None:
        """One has gone: a lane that has no rate is over with its last task."""
        if lane.empty and lane.bucket is None:
            self.lanes.pop(lane.name, None)

    def _full(self, lane: Lane, now: float) -> bool:
        """Forgetting a half-full bucket would fill it."""
        limit = self.effective(lane.name)
        if lane.bucket is None or limit is None or limit.rate is None:
            return True
        return self._level(lane, limit, now) >= limit.burst


def is_effective(limit: Limit) -> bool:
    """Does it say anything? What code no longer declares stays as a record that does not."""
    return limit.cap is not None or limit.rate is not None or limit.paused


def closed_reason(limit: Limit, running: int) -> Literal["paused", "cap"] | None:
    """What stops one more start, whatever the time."""
    if limit.paused:
        return "paused"
    return "cap" if limit.cap is not None and running >= limit.cap else None


def admitted(lane: Lane, record: Record, by: int) -> None:
    lane.admitted += by
    lane.reserved += by * record.policy.cost
    if lane.admitted == 0:
        lane.reserved = 0.0


def _slack(rate: float) -> float:
    return rate * _SLACK_MS / 1000


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
