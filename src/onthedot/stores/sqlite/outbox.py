"""The outbox of the SQLite store: `SyncOutbox` of the capabilities."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, TypeVar

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
from onthedot.stores.rules import outbox as outbox_rules
from onthedot.stores.sqlite.event_retention import purge_events
from onthedot.stores.sqlite.reads import SqliteReads
from onthedot.stores.sqlite.tables import SqliteTables

T = TypeVar("T")


class SqliteOutbox:
    """Verbs of events. The store has the threads.

    Relays and readers are answered before the fsync: a power cut reverts their last steps, and they repeat them.
    """

    def _write(
        self,
        work: Callable[[SqliteTables], T],
        session: str | None = None,
        *,
        at_commit: bool = False,
        is_add: bool = False,
    ) -> Awaitable[T]:
        raise NotImplementedError

    def read(self, work: Callable[[SqliteReads], T]) -> Awaitable[T]:
        raise NotImplementedError

    def _join(self, connection: object, work: Callable[[SqliteTables], T]) -> T:
        raise NotImplementedError

    async def publish(self, events: Sequence[NewEvent]) -> Sequence[bool]:
        return await self._write(lambda tables: outbox_rules.publish(tables, events), is_add=True)

    async def relay(
        self,
        session: str,
        sent: Sequence[int],
        refused: Mapping[int, str],
        request: RelayRequest | None,
        *,
        to_log: bool = False,
    ) -> RelayResult:
        def write(tables: SqliteTables) -> RelayResult:
            return outbox_rules.relay(tables, session, sent, refused, request, to_log=to_log)

        return await self._write(write, session, at_commit=True)

    async def read_log(
        self, group: str, session: str, topics: Sequence[str], after: Mapping[int, int], limit: int
    ) -> LogPage:
        def write(tables: SqliteTables) -> LogPage:
            return outbox_rules.read_log(tables, group, session, topics, after, limit)

        return await self._write(write, session, at_commit=True)

    async def commit_positions(self, group: str, session: str, positions: Mapping[int, int]) -> None:
        def write(tables: SqliteTables) -> None:
            outbox_rules.commit_positions(tables, group, session, positions)

        await self._write(write, session, at_commit=True)

    async def record_arrivals(self, arrivals: Sequence[Arrival]) -> None:
        """Answered after the fsync: the bus may forget an event that is recorded."""
        await self._write(lambda tables: tables.events.insert_arrivals(arrivals))

    async def complete_handles(
        self, correlation_ids: Sequence[str], resumed: Sequence[str] = ()
    ) -> Sequence[HandleRecord]:
        def write(tables: SqliteTables) -> list[HandleRecord]:
            return outbox_rules.complete_handles(tables, correlation_ids, resumed)

        return await self._write(write, at_commit=True)

    async def create_handle(self, handle: HandleRecord, tasks: Sequence[NewTask] = ()) -> HandleRecord:
        return await self._write(lambda tables: outbox_rules.create_handle(tables, handle, tasks), is_add=True)

    async def amend_events(
        self, ids: Sequence[str], action: Literal["retry", "discard"], reason: str = ""
    ) -> Sequence[str]:
        def write(tables: SqliteTables) -> list[str]:
            amended = tables.events.amend(ids, action, reason)
            tables.notifications.events = tables.notifications.events or bool(amended)
            return amended

        return await self._write(write)

    async def purge_events(self, limit: int, *, keep_sent: int, keep_arrivals: int) -> int:
        return await self._write(lambda tables: purge_events(tables, limit, keep_sent, keep_arrivals), at_commit=True)

    # -- reads

    async def handles(self, correlation_ids: Sequence[str]) -> Sequence[HandleRecord]:
        return await self.read(lambda reads: reads.events.handles(correlation_ids, reads.now))

    async def arrivals(self, correlation_id: str) -> Sequence[Arrival]:
        return await self.read(lambda reads: reads.events.arrivals(correlation_id))

    async def find_events(self, where: Mapping[str, str], after: int, limit: int) -> Sequence[OutboxEvent]:
        return await self.read(lambda reads: reads.events.find(where, after, limit))

    async def unread(self, group: str, topics: Sequence[str]) -> Sequence[UnreadCount]:
        return await self.read(lambda reads: reads.events.unread(group, topics))

    async def outbox_state(self) -> OutboxState:
        return await self.read(lambda reads: reads.events.state(reads.now))

    # -- inside the caller's transaction

    def publish_in(self, connection: object, events: Sequence[NewEvent]) -> Sequence[bool]:
        """Publishes with the caller's commit, or not at all. On the caller's thread, and connection to this file."""
        return self._join(connection, lambda tables: outbox_rules.publish(tables, events))

    def create_handle_in(self, connection: object, handle: HandleRecord, tasks: Sequence[NewTask] = ()) -> HandleRecord:
        """Keeps the handle and adds the tasks with the caller's commit, or not at all."""
        return self._join(connection, lambda tables: outbox_rules.create_handle(tables, handle, tasks))
