"""The limits of an SQLite store. A transaction reads each lane once and writes it once."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from msgspec.structs import astuple

from onthedot.stores.contract import Limit
from onthedot.stores.rules.limits import CLOCK_STEP_MS, SLACK_MS, SWEEP, Lane, LimitTable, TokenBucket
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import Row, to_limit

_BLANK = (0, 0, 0.0, None, None, None)  # a lane of which nothing has to be kept


class SqliteLimitTable(LimitTable):
    def __init__(self, db: sqlite3.Connection, app: int) -> None:
        super().__init__()
        self._db = db
        self._app = app
        self._stored: dict[str, Row] = {}
        self._swept = ""

    def load(self) -> None:
        """All limits, which are few. They are loaded again when they have changed."""
        self._effective.clear()
        rows = self._db.execute(SQL["limits"], (self._app,))
        limits = [to_limit(row) for row in rows]
        self._records = {(limit.name, limit.owner): limit for limit in limits}
        self.has_limits: bool = bool(limits)

    def records(self) -> list[Limit]:
        """As they are stored, of all owners."""
        return list(self._records.values())

    def put_all(self, limits: Sequence[Limit], now: float) -> list[Limit]:
        """Store limits; return those that have changed. Their lanes with parked tasks admit again."""
        last = {(each.name, each.owner): each for each in limits}
        changed = [each for name, each in last.items() if self._records.get(name) != each]
        rows = [(self._app, *astuple(each)) for each in changed]
        if rows:
            self._db.executemany(SQL["put_limit"], rows)
            self.load()
            self.save()
            self.forget()
        for name in {each.name for each in changed}:
            head, slash, key = name.partition("/")
            lanes = {"low": name, "high": f"{name}\0"}
            if slash and key == "*":
                lanes = {"low": f"{head}/", "high": f"{head}0"}  # "0" comes after "/"
            self._db.execute(SQL["recheck_lanes"], {"app": self._app, "now": now, **lanes})
        return changed

    def lane(self, name: str) -> Lane:
        lane = self.lanes.get(name)
        if lane is not None:
            return lane
        lane = self.lanes[name] = Lane(name)
        row = self._db.execute(SQL["lane"], (self._app, name)).fetchone()
        if row is not None:
            lane.running, lane.admitted, lane.reserved, tokens, at, lane.refill_at = row
            if tokens is not None:
                lane.bucket = TokenBucket(tokens, at)
        self._stored[name] = self._row(lane)
        return lane

    def _row(self, lane: Lane) -> Row:
        bucket = (None, None) if lane.bucket is None else (lane.bucket.tokens, lane.bucket.at)
        return self._app, lane.name, lane.running, lane.admitted, lane.reserved, *bucket, lane.refill_at

    def source_bucket(self, source: str, limit: Limit, now: float) -> TokenBucket:
        lane = self.lane(source)
        if lane.bucket is None:
            lane.bucket = TokenBucket(limit.burst, now)
        return lane.bucket

    def pop_refilled(self, limit: int, now: float) -> list[str]:
        self.save()
        first = self._db.execute(SQL["first_refill"], (self._app,)).fetchone()
        if first is None:
            return []
        first_name, refill_at, filled_at = first
        names: list[str] = []
        if refill_at <= now + SLACK_MS:
            names = [name for (name,) in self._db.execute(SQL["refilled"], (self._app, now + SLACK_MS, limit))]
        elif filled_at is not None and filled_at - now > CLOCK_STEP_MS:
            names = [first_name]
        for name in names:
            self.lane(name).refill_at = None
        return names

    def save(self) -> None:
        """Write the lanes that have changed; those of which nothing has to be kept are deleted."""
        if not self.lanes:
            return
        rows = {name: self._row(lane) for name, lane in self.lanes.items()}
        changed = [name for name, row in rows.items() if row != self._stored[name]]
        blank = [name for name in changed if rows[name] == (self._app, name, *_BLANK)]
        self._db.executemany(SQL["drop_lane"], [(self._app, name) for name in blank])
        self._db.executemany(SQL["save_lane"], [rows[name] for name in changed if name not in blank])
        self._stored = rows

    def forget(self) -> None:
        """The transaction is over: other processes may change the lanes from now on."""
        self.lanes.clear()
        self._stored.clear()

    def sweep(self, now: float) -> None:
        """By name, from where the last sweep ended."""
        self.save()
        rows = self._db.execute(SQL["some_lanes"], {"app": self._app, "after": self._swept, "most": SWEEP}).fetchall()
        self._swept = rows[-1][0] if len(rows) == SWEEP else ""
        for name in [name for name, idle in rows if idle]:
            if self.is_full(self.lane(name), now):
                self._db.execute(SQL["drop_lane"], (self._app, name))
                del self.lanes[name], self._stored[name]
