"""Rows of the naive store, and its limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor
from typing import Literal

from msgspec.structs import replace

from onthedot.clock.protocol import Clock
from onthedot.stores.contract import Blocker, Lease, Limit, Note, Record, State

ENDED = ("succeeded", "failed", "cancelled")
MICROSECOND = 0.001  # ms; epoch milliseconds in a float are not exact


def due_after(now: float, after: int) -> int:
    """The due time, rounded up so that nothing is early; `after=0` is not rounded."""
    return ceil(now + after) if after > 0 else floor(now)


@dataclass
class RowLease:
    """The lease of a row, as a run or as a chore."""

    fence: int
    session: str
    at: float
    chore: bool


@dataclass
class Row:
    record: Record  # its state is never "running": the lease shows that
    alarm: int | None = None
    chore: int | None = None  # its position among the chores, if it must end without running
    lease: RowLease | None = None
    notes: dict[tuple[str, str], tuple[int, Note]] = field(default_factory=dict)
    end: int = 0  # the order of ending
    result_until: int | None = None  # when its result ends before its record

    @property
    def live(self) -> bool:
        return self.record.state not in ENDED

    @property
    def lifted(self) -> bool:
        return self.live and self.record.history.reason == "lifted"

    @property
    def gone(self) -> bool:
        return not self.live and self.record.history.reason == "lifted"

    @property
    def running(self) -> bool:
        return self.lease is not None and not self.lease.chore

    @property
    def place(self) -> tuple[int, int]:
        return self.record.rank, self.record.seq

    @property
    def expiry(self) -> int | None:
        """The expiry of a row that has never started."""
        record = self.record
        if record.policy.expires is None or record.history.started is not None:
            return None
        return record.due + record.policy.expires

    def waits(self, state: State) -> bool:
        """Whether it is ready or parked: not leased, not lifted, and no chore."""
        return self.record.state == state and self.lease is None and self.chore is None and not self.lifted

    @property
    def in_lane(self) -> str | None:
        """The lane in which it uses or waits for capacity."""
        return self.record.lane if self.waits("ready") or self.waits("parked") else None

    def under(self, lease: Lease) -> bool:
        return self.lease is not None and (self.lease.fence, self.lease.session) == (lease.fence, lease.session)

    def move(self, state: State, alarm: int | None) -> None:
        self.record = replace(self.record, state=state)
        self.alarm = alarm
        self.chore = None

    def change(self, **fields: object) -> None:
        self.record = replace(self.record, history=replace(self.record.history, **fields))

    def seen(self) -> Record:
        if self.lease is None or self.lease.chore:
            return self.record
        history = replace(self.record.history, session=self.lease.session, started=floor(self.lease.at))
        return replace(self.record, state="running", history=history)


@dataclass
class SessionRow:
    until: float
    info: bytes | None  # None: a client that has only cancelled
    claims: dict[int, int] = field(default_factory=dict)  # number of the request → fence


@dataclass
class Bucket:
    tokens: float
    at: float


class Limits:
    """Computes everything from the rows at every call."""

    def __init__(self, clock: Clock, rows: Mapping[str, Row]) -> None:
        self.clock = clock
        self.rows = rows
        self.records: dict[tuple[str, str], Limit] = {}
        self.buckets: dict[str, Bucket] = {}

    def put(self, limit: Limit) -> None:
        self.records[limit.name, limit.owner] = limit

    def stored(self, name: str, owner: Literal["code", "operator"]) -> Limit:
        """One that sets nothing, if there is none."""
        return self.records.get((name, owner), Limit(name, owner=owner))

    def effective(self, name: str) -> Limit:
        """The effective limit, field by field: its own before the star, the operator before the code."""
        star = name.partition("/")[0] + "/*"
        found = [self.records[key] for key in ((name, "operator"), (name, "code")) if key in self.records]
        if "/" in name:
            found += [self.records[key] for key in ((star, "operator"), (star, "code")) if key in self.records]
        cap = next((limit.cap for limit in found if limit.cap is not None), None)
        rated = next((limit for limit in found if limit.rate is not None), Limit(name))
        paused = [limit for limit in found if limit.paused]
        return Limit(name, cap, rated.rate, rated.burst, bool(paused), paused[0].reason if paused else "")

    def missing(self, limit: Limit, cost: float) -> float:
        """The missing tokens."""
        if limit.rate is None:
            return 0
        now = self.clock.now()
        bucket = self.buckets.setdefault(limit.name, Bucket(limit.burst, now))
        bucket.tokens = min(limit.burst, bucket.tokens + max(0, now - bucket.at) * limit.rate / 1000)
        bucket.at = now
        slack = limit.rate * MICROSECOND / 1000
        return 0 if bucket.tokens >= cost - slack else cost - bucket.tokens

    def wait(self, name: str, cost: float) -> float | None:
        """ms until the tokens are available; None: never by time alone."""
        limit = self.effective(name)
        missing = self.missing(limit, cost)
        if limit.rate is None or limit.paused or not missing or cost > limit.burst:
            return None
        return missing / limit.rate * 1000

    def spend(self, name: str, cost: float) -> None:
        limit = self.effective(name)
        if limit.rate is not None:
            self.missing(limit, cost)
            self.buckets[name].tokens -= cost

    def in_lane(self, lane: str | None, state: State) -> list[Row]:
        rows = [row for row in self.rows.values() if row.record.lane == lane and row.waits(state)]
        return sorted(rows, key=lambda row: row.place) if lane is not None else []

    def reserved(self, lane: str) -> float:
        return sum(row.record.policy.cost for row in self.in_lane(lane, "ready"))

    def price(self, lane: str, cost: float) -> float:
        """The cost, at most a full bucket."""
        limit = self.effective(lane)
        return cost if limit.rate is None else min(cost, limit.burst)

    def has_capacity(self, lane: str, cost: float) -> bool:
        """Whether one more task may be admitted."""
        return self._may_start(lane, self.price(lane, cost) + self.reserved(lane), len(self.in_lane(lane, "ready")))

    def lane_wait(self, lane: str) -> float | None:
        """ms until time alone admits the first parked row."""
        admitted = self.in_lane(lane, "ready")
        running = self.running(lane)
        cap = self.effective(lane).cap
        for head in self.in_lane(lane, "parked")[:1]:
            if cap is None or running + len(admitted) < cap:
                return self.wait(lane, self.price(lane, head.record.policy.cost) + self.reserved(lane))
        return None

    def running(self, lane: str) -> int:
        return sum(row.running and row.record.lane == lane for row in self.rows.values())

    def may_start(self, lane: str, cost: float) -> bool:
        return self._may_start(lane, self.price(lane, cost))

    def _may_start(self, lane: str, cost: float, admitted: int = 0) -> bool:
        limit = self.effective(lane)
        fits = limit.cap is None or self.running(lane) + admitted < limit.cap
        return fits and not limit.paused and not self.missing(limit, cost)

    def source_fits(self, source: str) -> bool:
        cap = self.effective(source).cap
        return cap is None or sum(row.running and row.record.source == source for row in self.rows.values()) < cap

    def source_may_start(self, source: str) -> bool:
        limit = self.effective(source)
        return self.source_fits(source) and not limit.paused and not self.missing(limit, 1)

    def blockers(self, name: str, running: int, admitted: int, cost: float) -> list[Blocker]:
        """The limit of this name, if it blocks one more task."""
        limit = self.effective(name)
        if limit.paused:
            return [Blocker(limit, "paused", running)]
        if limit.cap is not None and running + admitted >= limit.cap:
            return [Blocker(limit, "cap", running)]
        return [Blocker(limit, "rate", running, self.wait(name, cost))] if self.missing(limit, cost) else []

    def ready(self, sources: Sequence[str]) -> list[Row]:
        rows = [row for row in self.rows.values() if row.waits("ready") and row.record.source in sources]
        return sorted(rows, key=lambda row: row.place)
