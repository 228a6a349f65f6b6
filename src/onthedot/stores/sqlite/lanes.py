"""Limits and lanes as the memory store has them, in tables. A transaction reads each lane once and writes it once."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from onthedot.stores.contract import Limit
from onthedot.stores.limits import Bucket, Lane, Limits
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import Row

_SLACK_MS = 1e-3


class Lanes(Limits):
    def __init__(self, db: sqlite3.Connection, app: int) -> None:
        super().__init__()
        self._db = db
        self._app = app
        self._was: dict[str, Row] = {}

    def load(self) -> None:
        """The limits, which are few. Until they change, nothing is read where none is declared."""
        self._effective.clear()
        rows = self._db.execute(SQL["limits"], (self._app,))
        limits = [
            Limit(name, cap, rate, burst, bool(paused), why, by) for name, cap, rate, burst, paused, why, by in rows
        ]
        self._records = {(limit.name, limit.by): limit for limit in limits}
        self.declared: bool = bool(limits)

    def put_all(self, limits: Sequence[Limit], now: float) -> None:
        rows = [
            (self._app, each.name, each.by, each.cap, each.rate, each.burst, each.paused, each.reason)
            for each in limits
        ]
        self._db.executemany(SQL["put_limit"], rows)
        self.load()
        for (name,) in self._db.execute(SQL["parked_lanes"], (self._app,)).fetchall():
            self.refill(self.lane(name), now)

    def lane(self, name: str) -> Lane:
        lane = self.lanes.get(name)
        if lane is not None:
            return lane
        lane = self.lanes[name] = Lane(name)
        row = self._db.execute(SQL["lane"], (self._app, name)).fetchone()
        if row is not None:
            lane.running, lane.admitted, lane.pledged, tokens, at, lane.refill_at = row
            if tokens is not None:
                lane.bucket = Bucket(Limit(name, burst=tokens), at)
        self._was[name] = self._row(lane)
        return lane

    def _row(self, lane: Lane) -> Row:
        tokens, at = (None, None) if lane.bucket is None else (lane.bucket.tokens, lane.bucket.at)
        return self._app, lane.name, lane.running, lane.admitted, lane.pledged, tokens, at, lane.refill_at

    def _source_bucket(self, source: str, limit: Limit, now: float) -> Bucket:
        lane = self.lane(source)
        if lane.bucket is None:
            lane.bucket = Bucket(limit, now)
        return lane.bucket

    def refill(self, lane: Lane, when: float) -> None:
        if lane.refill_at is None or when < lane.refill_at:
            lane.refill_at = when

    def refilled(self, now: float) -> Lane | None:
        self.save()
        row = self._db.execute(SQL["refilled"], (self._app, now + _SLACK_MS)).fetchone()
        if row is None:
            return None
        lane = self.lane(row[0])
        lane.refill_at = None
        return lane

    def save(self) -> None:
        if not self.lanes:
            return
        rows = {name: self._row(lane) for name, lane in self.lanes.items()}
        self._db.executemany(SQL["save_lane"], [row for name, row in rows.items() if row != self._was[name]])
        self._was = rows

    def forget(self) -> None:
        """The transaction is over: others may change them from now on."""
        self.lanes.clear()
        self._was.clear()

    def sweep(self, now: float) -> None:
        self.save()
        for (name,) in self._db.execute(SQL["idle_lanes"], {"app": self._app}).fetchall():
            lane, limit = self.lane(name), self.effective(name)
            if (
                lane.bucket is None
                or limit is None
                or limit.rate is None
                or self._level(lane, limit, now) >= limit.burst
            ):
                self._db.execute(SQL["drop_lane"], (self._app, name))
                del self.lanes[name], self._was[name]
