"""Counters, waiting tasks, signals and subscriptions of a memory store."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush, nlargest
from itertools import islice

from onthedot.stores.contract import (
    COUNTER_KEEP,
    MAX_SUBSCRIPTIONS,
    NO_COUNTER,
    Counter,
    NewSignal,
    Record,
    StoredSignal,
    Wait,
)
from onthedot.stores.memory.ordered_queue import OrderedQueue, last_key


class CounterTable:
    """Counters by name, and the tasks that wait for them in order of the value."""

    def __init__(self) -> None:
        self._counters: OrderedDict[str, tuple[Counter, int]] = OrderedDict()  # with its time; the oldest change first
        self._waiting: dict[str, OrderedQueue] = {}  # by the value that they wait for
        self.reached: dict[str, None] = {}  # counters that have reached a value, in this order

    def get(self, name: str) -> Counter:
        return self._counters.get(name, (NO_COUNTER, 0))[0]

    def set(self, name: str, counter: Counter, now: float) -> bool:
        """Whether a wait is over now."""
        self._counters[name] = (counter, int(now) + COUNTER_KEEP)
        self._counters.move_to_end(name)
        return self._mark_reached(name)

    def _mark_reached(self, name: str) -> bool:
        queue = self._waiting.get(name)
        first = None if queue is None else queue.moment()
        if first is None or first > self.get(name).value:
            return False
        self.reached[name] = None
        return True

    def add_waiting(self, wait: Wait, records: Sequence[Record]) -> bool:
        """Whether their wait is over at once."""
        is_over = False
        for name, value in wait.counters:
            queue = self._waiting.get(name)
            if queue is None:
                queue = self._waiting[name] = OrderedQueue()
            queue.push_many(value, records)
            if value <= self.get(name).value:
                self.reached[name] = None
                is_over = True
        return is_over

    def remove_waiting(self, wait: Wait, records: Sequence[Record]) -> None:
        for name, value in wait.counters:
            queue = self._waiting.get(name)
            if queue is not None:
                queue.remove_many(value, records)
                if not queue.members:
                    del self._waiting[name]

    def pop_reached(self, limit: int) -> list[Record]:
        """By seq. Their waits have not ended yet: the caller moves them all."""
        found: dict[int, Record] = {}
        while self.reached and len(found) < limit:
            name = next(iter(self.reached))
            queue = self._waiting.get(name)
            if queue is not None:
                popped = queue.pop_many(limit - len(found), last_key(self.get(name).value))
                found |= {record.seq: record for record in popped}
            if queue is None or not self._mark_reached(name):
                del self.reached[name]
                self._forget_empty(name)
        return [found[seq] for seq in sorted(found)]

    def _forget_empty(self, name: str) -> None:
        queue = self._waiting.get(name)
        if queue is not None and not queue.members:
            del self._waiting[name]

    def drop_old(self, limit: int, now: float) -> None:
        for name in list(islice(self.reached, limit)):
            if name not in self._waiting:  # all that waited were cancelled, and no turn has looked
                del self.reached[name]
        for name in list(islice(self._counters, limit)):
            counter, until = self._counters[name]
            if until > now:
                return
            if name in self._waiting:
                self.set(name, counter, now)
            else:
                del self._counters[name]


class SignalTable:
    """Signals by name and id, in order of their numbers."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, tuple[StoredSignal, int]]] = {}  # with its time
        self._ends: list[tuple[int, str, str]] = []

    def kept(self, name: str, now: float) -> list[StoredSignal]:
        return [signal for signal, until in self._by_name.get(name, {}).values() if until > now]

    def names(self, limit: int, now: float) -> list[str]:
        last = nlargest(limit, (end for end in self._ends if end[0] > now))
        return list(dict.fromkeys(name for _, name, _ in last))

    def has(self, name: str, signal_id: str, now: float) -> bool:
        _, until = self._by_name.get(name, {}).get(signal_id, (None, 0))
        return until > now

    def append(self, signal: NewSignal, number: int, now: float) -> None:
        signals = self._by_name.setdefault(signal.name, {})
        signals.pop(signal.id, None)  # past its time: the new one is the last
        until = int(now) + signal.keep
        signals[signal.id] = (StoredSignal(number, signal.id, signal.payload), until)
        heappush(self._ends, (until, signal.name, signal.id))

    def drop_old(self, limit: int, now: float) -> None:
        for _ in range(limit):
            if not self._ends or self._ends[0][0] > now:
                return
            end, name, signal_id = heappop(self._ends)
            signals = self._by_name.get(name, {})
            _, until = signals.get(signal_id, (None, 0))
            if until == end:  # otherwise its id was used again
                del signals[signal_id]
            if not signals:
                self._by_name.pop(name, None)


class SubscriptionTable:
    """Which sessions hear of a task."""

    def __init__(self) -> None:
        self.sessions_by_uuid: dict[str, dict[str, None]] = {}
        self._uuids: dict[str, dict[str, None]] = {}  # by session

    def add(self, session: str, uuid: str) -> None:
        uuids = self._uuids.setdefault(session, {})
        if len(uuids) < MAX_SUBSCRIPTIONS:
            uuids[uuid] = None
            self.sessions_by_uuid.setdefault(uuid, {})[session] = None

    def sessions(self, uuid: str) -> Sequence[str]:
        return list(self.sessions_by_uuid.get(uuid, ()))

    def end_task(self, uuid: str) -> Iterable[str]:
        """The subscribers, for the last time."""
        sessions = self.sessions_by_uuid.pop(uuid, {})
        for session in sessions:
            self._uuids[session].pop(uuid, None)
        return sessions

    def end_session(self, session: str) -> None:
        for uuid in self._uuids.pop(session, ()):
            sessions = self.sessions_by_uuid[uuid]
            del sessions[session]
            if not sessions:
                del self.sessions_by_uuid[uuid]
