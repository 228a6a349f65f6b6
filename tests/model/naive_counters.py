"""Counters and signals of the naive store. A counter is computed from the rows at every call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from onthedot.clock.protocol import Clock
from onthedot.errors import StoreFull
from onthedot.stores.contract import (
    COUNTER_KEEP,
    MAX_KEPT_SIGNALS,
    Counter,
    Links,
    NewSignal,
    SignalPage,
    StoredSignal,
    Wait,
)
from tests.model.control import Control
from tests.model.rows import Row


@dataclass
class SignalRow:
    name: str
    signal: StoredSignal
    until: int


class NaiveCounters(Control):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.signal_rows: list[SignalRow] = []
        self.signal_values: dict[str, int] = {}
        self.dropped_ends: list[tuple[str, bool]] = []  # counter, failed: of rows that are gone
        self.purged: dict[str, Counter] = {}  # what was counted before a counter was purged
        self.changed_at: dict[str, float] = {}

    def counters(self, names: Sequence[str]) -> list[Counter]:
        return [self._count_of(name) for name in names]

    def _count_of(self, name: str) -> Counter:
        if name in self.signal_values:
            return Counter(self.signal_values[name])
        ends = [
            row.record.state != "succeeded" for row in self.rows.values() if not row.live and name in increments(row)
        ]
        ends += [failed for counter, failed in self.dropped_ends if counter == name]
        before = self.purged.get(name, Counter())
        return Counter(len(ends) - before.value, sum(ends) - before.failed)

    def changed(self, row: Row) -> None:
        """The row has ended, or was revived."""
        for name in increments(row):
            self.changed_at[name] = self.clock.now()

    def drop(self, uuid: str) -> None:
        """Remove a row that has ended."""
        row = self.rows.pop(uuid)
        self.dropped_ends += [(name, row.record.state != "succeeded") for name in increments(row)]

    # -- waits

    def wait_of(self, row: Row) -> Wait | None:
        if not row.waits("waiting"):
            return None
        links = row.record.links or Links()
        return row.record.history.wait or links.waits

    def reached(self, row: Row) -> Counter | None:
        """The first of its counters that has its value."""
        wait = self.wait_of(row)
        for name, value in () if wait is None else wait.counters:
            counter = self._count_of(name)
            if counter.value >= value:
                return counter
        return None

    # -- signals

    def signal(self, signals: Sequence[NewSignal]) -> list[bool]:
        before = [*self.signal_rows], dict(self.signal_values)
        try:
            return [self._signal(each) for each in signals]
        except StoreFull:
            self.signal_rows, self.signal_values = before
            raise

    def _signal(self, new: NewSignal) -> bool:
        kept = self._kept(new.name)
        if any(row.signal.id == new.id for row in kept):
            return False
        if len(kept) >= MAX_KEPT_SIGNALS:
            raise StoreFull(f"{new.name} is full")
        now = int(self.clock.now())
        number = max(now, self.signal_values.get(new.name, 0) + 1)
        self.signal_rows.append(SignalRow(new.name, StoredSignal(number, new.id, new.payload), now + new.keep))
        self.signal_values[new.name] = number
        self.changed_at[new.name] = now
        return True

    def _kept(self, name: str) -> list[SignalRow]:
        return [row for row in self.signal_rows if row.name == name and row.until > self.clock.now()]

    def signals(self, name: str, after: int, limit: int) -> SignalPage:
        found = [row.signal for row in self._kept(name) if row.signal.number > after]
        return SignalPage(self._count_of(name).value, found[:limit])

    def signal_names(self, limit: int) -> list[str]:
        kept = [row for row in self.signal_rows if row.until > self.clock.now()]
        latest = sorted(kept, key=lambda row: row.until, reverse=True)[:limit]
        return list(dict.fromkeys(row.name for row in latest))

    # -- retention

    def is_kept_for_flow(self, row: Row) -> bool:
        flow = row.record.links.flow if row.record.links else None
        return flow is not None and flow in self.rows and self.rows[flow].live

    def keep_members(self) -> None:
        """Members whose flow lives are looked at again a day later."""
        now = self.clock.now()
        for row in self.rows.values():
            if not row.live and (row.record.history.keep_until or 0) <= now and self.is_kept_for_flow(row):
                row.change(keep_until=int(now) + 86_400_000)

    def purge_counters(self) -> None:
        now = self.clock.now()
        awaited = {name for row in self.rows.values() if (wait := self.wait_of(row)) for name, _ in wait.counters}
        for name, changed in list(self.changed_at.items()):
            if changed + COUNTER_KEEP <= now and name not in awaited:
                count = self._count_of(name)
                before = self.purged.get(name, Counter())
                self.purged[name] = Counter(before.value + count.value, before.failed + count.failed)
                self.signal_values.pop(name, None)
                del self.changed_at[name]


def increments(row: Row) -> tuple[str, ...]:
    return row.record.links.increments if row.record.links else ()


def resumed(row: Row) -> None:
    """The wait is over."""
    row.record = replace(row.record, history=replace(row.record.history, wait=None, wait_until=None))
