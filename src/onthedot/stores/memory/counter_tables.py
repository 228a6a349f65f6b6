"""Verbs of `TaskTables` about counters, signals and subscriptions, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from onthedot.stores.contract import Counter, Links, NewSignal, Record
from onthedot.stores.memory.counters import CounterTable, SignalTable, SubscriptionTable
from onthedot.stores.memory.side_tables import MemorySideTables


class _LinkedEnds:
    """The ends of tasks with the same links in one call."""

    __slots__ = ("ended", "failed", "links")

    def __init__(self, links: Links) -> None:
        self.links: Links = links
        self.ended: int = 0
        self.failed: int = 0


class MemoryCounterTables(MemorySideTables):
    def __init__(self) -> None:
        super().__init__()
        self._linked_ends: dict[int, _LinkedEnds] = {}  # of the current call, by the id of links: a group shares them
        self.counters: CounterTable = CounterTable()
        self.signals: SignalTable = SignalTable()
        self.subscriptions: SubscriptionTable = SubscriptionTable()

    @property
    def has_reached(self) -> bool:
        return bool(self.counters.reached)

    def counter(self, name: str) -> Counter:
        return self.counters.get(name)

    def raise_counter(self, name: str, ended: int, failed: int) -> None:
        was = self.counters.get(name)
        if self.counters.set(name, Counter(was.value + ended, was.failed + failed), self.now):
            self.notifications.wait_over = True

    def count_end(self, links: Links, *, failed: bool) -> None:
        """Note the end of a task; `raise_counted` raises its counters."""
        ends = self._linked_ends.get(id(links))
        if ends is None:
            ends = self._linked_ends[id(links)] = _LinkedEnds(links)
        ends.ended += 1
        ends.failed += failed

    def raise_counted(self) -> None:
        """Raise each counter once for all ends of the call."""
        for ends in self._linked_ends.values():
            for name in ends.links.increments:
                self.raise_counter(name, ends.ended, ends.failed)
        self._linked_ends.clear()

    def pop_reached(self, limit: int) -> list[Record]:
        return self.counters.pop_reached(limit)

    def has_signal(self, name: str, signal_id: str) -> bool:
        return self.signals.has(name, signal_id, self.now)

    def count_signals(self, name: str) -> int:
        return len(self.signals.kept(name, self.now))

    def append_signal(self, signal: NewSignal, number: int) -> None:
        self.signals.append(signal, number, self.now)
        if self.counters.set(signal.name, Counter(number), self.now):
            self.notifications.wait_over = True

    def subscribe(self, session: str, uuid: str) -> None:
        self.subscriptions.add(session, uuid)

    def subscribers(self, uuid: str) -> Sequence[str]:
        return self.subscriptions.sessions(uuid)

    def drop_session(self, name: str) -> None:
        super().drop_session(name)
        self.subscriptions.end_session(name)

    def drop_signals(self, limit: int) -> None:
        self.signals.drop_old(limit, self.now)

    def drop_counters(self, limit: int) -> None:
        self.counters.drop_old(limit, self.now)
