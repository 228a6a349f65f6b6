"""The outbox of the memory store: `Outbox` of the capabilities."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Literal

from onthedot.clock.protocol import Clock
from onthedot.stores.contract import (
    Arrival,
    HandleRecord,
    LogPage,
    NewEvent,
    NewTask,
    OutboxEvent,
    OutboxState,
    RelayRequest,
    RelayResult,
    UnreadCount,
)
from onthedot.stores.memory.tables import MemoryTables
from onthedot.stores.rules import outbox as outbox_rules


class MemoryOutbox:
    """Verbs of events. The store has the lock and the tables."""

    _clock: Clock
    _lock: threading.Lock
    _tables: MemoryTables

    def _call(self, session: str | None = None) -> AbstractContextManager[MemoryTables]:
        raise NotImplementedError

    @contextmanager
    def _event_call(self, session: str | None = None) -> Generator[MemoryTables, None, None]:
        with self._call(session) as tables:
            tables.events.now = tables.now
            yield tables

    async def publish(self, events: Sequence[NewEvent]) -> Sequence[bool]:
        with self._event_call() as tables:
            return outbox_rules.publish(tables, events)

    async def relay(
        self,
        session: str,
        sent: Sequence[int],
        refused: Mapping[int, str],
        request: RelayRequest | None,
        *,
        to_log: bool = False,
    ) -> RelayResult:
        with self._event_call(session) as tables:
            return outbox_rules.relay(tables, session, sent, refused, request, to_log=to_log)

    async def read_log(
        self, group: str, session: str, topics: Sequence[str], after: Mapping[int, int], limit: int
    ) -> LogPage:
        with self._event_call(session) as tables:
            return outbox_rules.read_log(tables, group, session, topics, after, limit)

    async def commit_positions(self, group: str, session: str, positions: Mapping[int, int]) -> None:
        with self._event_call(session) as tables:
            outbox_rules.commit_positions(tables, group, session, positions)

    async def record_arrivals(self, arrivals: Sequence[Arrival]) -> None:
        with self._event_call() as tables:
            tables.events.insert_arrivals(arrivals)

    async def complete_handles(
        self, correlation_ids: Sequence[str], resumed: Sequence[str] = ()
    ) -> Sequence[HandleRecord]:
        with self._event_call() as tables:
            return outbox_rules.complete_handles(tables, correlation_ids, resumed)

    async def create_handle(self, handle: HandleRecord, tasks: Sequence[NewTask] = ()) -> HandleRecord:
        with self._event_call() as tables:
            return outbox_rules.create_handle(tables, handle, tasks)

    async def amend_events(
        self, ids: Sequence[str], action: Literal["retry", "discard"], reason: str = ""
    ) -> Sequence[str]:
        with self._event_call() as tables:
            amended = tables.events.amend(ids, action, reason)
            tables.notifications.events = tables.notifications.events or bool(amended)
            return amended

    async def purge_events(self, limit: int, *, keep_sent: int, keep_arrivals: int) -> int:
        with self._event_call() as tables:
            return tables.events.purge(limit, keep_sent, keep_arrivals)

    # -- reads

    async def handles(self, correlation_ids: Sequence[str]) -> Sequence[HandleRecord]:
        with self._lock:
            now = self._clock.now()
            found = [handle for each in correlation_ids for handle in self._tables.events.handles_of(each)]
            return [outbox_rules.as_seen(handle, now) for handle in found]

    async def arrivals(self, correlation_id: str) -> Sequence[Arrival]:
        with self._lock:
            return self._tables.events.arrivals(correlation_id)

    async def find_events(self, where: Mapping[str, str], after: int, limit: int) -> Sequence[OutboxEvent]:
        with self._lock:
            return self._tables.events.find(where, after, limit)

    async def unread(self, group: str, topics: Sequence[str]) -> Sequence[UnreadCount]:
        with self._lock:
            return self._tables.events.unread(group, topics)

    async def outbox_state(self) -> OutboxState:
        with self._lock:
            return self._tables.events.state(self._clock.now())
