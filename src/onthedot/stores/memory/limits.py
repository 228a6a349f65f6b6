"""The limits of a memory store: refills in a heap, parked tasks in one queue per lane."""

from __future__ import annotations

from heapq import heappop, heappush

from onthedot.stores.contract import Limit
from onthedot.stores.memory.ordered_queue import OrderedQueue
from onthedot.stores.rules.limits import SLACK_MS, SWEEP, Lane, LimitTable


class MemoryLimitTable(LimitTable):
    """A lane is forgotten with its last task, or by a sweep where its bucket must fill up first."""

    def __init__(self) -> None:
        super().__init__()
        self.parked: dict[str, OrderedQueue] = {}
        self._refills: list[tuple[float, str]] = []
        self._to_sweep: list[str] = []

    def parked_in(self, lane: str) -> OrderedQueue:
        queue = self.parked.get(lane)
        if queue is None:
            queue = self.parked[lane] = OrderedQueue()
        return queue

    def recheck(self, limit: Limit, now: float) -> None:
        """The limit has changed: its lanes with parked tasks admit again, and no others."""
        head, slash, key = limit.name.partition("/")
        star = slash and key == "*"
        names = [name for name in self.parked if name.startswith(head + "/")] if star else [limit.name]
        for name in names:
            if self.has_parked(name):
                self.set_refill(self.lane(name), now)

    def has_parked(self, lane: str) -> bool:
        return lane in self.parked and bool(self.parked[lane].members)

    def set_refill(self, lane: Lane, when: float) -> None:
        if lane.refill_at is None or when < lane.refill_at:
            lane.refill_at = when
            heappush(self._refills, (when, lane.name))

    def pop_refilled(self, limit: int, now: float) -> list[str]:
        names: list[str] = []
        while len(names) < limit and self._refills:
            when, name = self._refills[0]
            lane = self.lanes.get(name)
            is_ahead = lane is not None and lane.bucket is not None and lane.bucket.is_ahead(now)
            if when > now + SLACK_MS and not is_ahead:
                break
            heappop(self._refills)
            if lane is not None and lane.refill_at == when:
                lane.refill_at = None
                names.append(name)
        return names

    def next_refill(self) -> float | None:
        return self._refills[0][0] if self._refills else None

    def sweep(self, now: float) -> None:
        """A part per call: there may be one lane per customer."""
        self._to_sweep = self._to_sweep or list(self.lanes)
        for name in self._to_sweep[-SWEEP:]:
            lane = self.lanes.get(name)
            if lane is not None and self._is_empty(lane) and self.is_full(lane, now):
                self._forget(lane)
        del self._to_sweep[-SWEEP:]

    def forget(self, name: str) -> None:
        """A lane without a rate is over with its last task."""
        lane = self.lanes.get(name)
        if lane is not None and lane.bucket is None and self._is_empty(lane):
            self._forget(lane)

    def _is_empty(self, lane: Lane) -> bool:
        return not (lane.running or lane.admitted or self.has_parked(lane.name))

    def _forget(self, lane: Lane) -> None:
        del self.lanes[lane.name]
        self.parked.pop(lane.name, None)
