"""Verbs of `TaskTables` about counters, signals and subscriptions, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from onthedot.stores.contract import Counter, NewSignal, Record
from onthedot.stores.memory.counters import CounterTable, SignalTable, SubscriptionTable
from onthedot.stores.memory.side_tables import MemorySideTables


class MemoryCounterTables(MemorySideTables):
    def __init__(self) -> None:
        super().__init__()
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

    def pop_reached(self, limit: int) -> list[tuple[Record, Counter]]:
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
