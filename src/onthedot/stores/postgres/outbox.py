"""The outbox of the Postgres store: `AsyncOutbox` of the capabilities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from onthedot.stores.contract import (
    MAX_READ_BYTES,
    RELAYS,
    Arrival,
    HandleRecord,
    HandleStatus,
    LogPage,
    NewEvent,
    NewTask,
    OutboxEvent,
    OutboxState,
    RelayRequest,
    RelayResult,
    TopicState,
    UnreadCount,
)
from onthedot.stores.postgres import events as event_json, protocol, transactions
from onthedot.stores.postgres.connections import PostgresConnections
from onthedot.stores.postgres.notifier import Notification, decode_notification
from onthedot.stores.postgres.queries import SQL
from onthedot.stores.postgres.url import PostgresAddress
from onthedot.stores.rules.filters import EVENT_FILTERS, check_event_filters

_BY_STATUS = {"pending": "find_pending_events", "failed": "find_failed_events"}  # they have an index


class PostgresOutbox(ABC):
    """Verbs of events. The store has the connections."""

    address: PostgresAddress
    _name: str  # of the app

    @property
    @abstractmethod
    def connections(self) -> PostgresConnections: ...

    @abstractmethod
    def _now(self) -> float | None: ...

    @abstractmethod
    def _request(self, **fields: Any) -> str: ...

    @abstractmethod
    def _notify(self, notification: Notification) -> None: ...

    @abstractmethod
    def _set_member(self, session: str, *, alive: bool) -> None:
        """Whether hints about events concern a session."""

    # -- the outbox and the log

    async def publish(self, events: Sequence[NewEvent]) -> Sequence[bool]:
        row = await self.connections.add.row(SQL["publish"], self._publish_request(events, notify=False))
        fresh: Sequence[bool] = row["fresh"]
        self._notify(Notification(events=any(fresh)))
        return fresh

    async def relay(
        self,
        session: str,
        sent: Sequence[int],
        refused: Mapping[int, str],
        request: RelayRequest | None,
        *,
        to_log: bool = False,
    ) -> RelayResult:
        fields = event_json.encode_relay_request(sent, refused, request, to_log=to_log)
        row = await self.connections.events.row(SQL["relay"], self._request(session=session, **fields))
        self._set_member(session, alive=row["alive"])
        self._notify(decode_notification(row["notification"], session))
        return event_json.to_relay_result(row)

    async def read_log(
        self, group: str, session: str, topics: Sequence[str], after: Mapping[int, int], limit: int
    ) -> LogPage:
        request = self._request(
            group=group, session=session, topics=topics, after=after, limit=limit, most_bytes=MAX_READ_BYTES
        )
        row = await self.connections.events.row(SQL["read_log"], request)
        self._set_member(session, alive=row["alive"])
        self._notify(decode_notification(row["notification"], session))
        return event_json.to_log_page(row)

    async def commit_positions(self, group: str, session: str, positions: Mapping[int, int]) -> None:
        request = self._request(group=group, session=session, positions=positions)
        await self.connections.events.row(SQL["commit_positions"], request)

    async def amend_events(
        self, ids: Sequence[str], action: Literal["retry", "discard"], reason: str = ""
    ) -> Sequence[str]:
        request = self._request(ids=ids, action=action, reason=reason)
        row = await self.connections.add.row(SQL["amend_events"], request)
        self._notify(decode_notification(row["notification"]))
        amended: Sequence[str] = row["amended"]
        return amended

    async def purge_events(self, limit: int, *, keep_sent: int, keep_arrivals: int) -> int:
        request = self._request(limit=limit, keep_sent=keep_sent, keep_arrivals=keep_arrivals)
        deleted: int = (await self.connections.add.row(SQL["purge_events"], request))["deleted"]
        return deleted

    # -- resume handles

    async def record_arrivals(self, arrivals: Sequence[Arrival]) -> None:
        request = self._request(arrivals=[event_json.encode_arrival(arrival) for arrival in arrivals])
        await self.connections.events.row(SQL["record_arrivals"], request)

    async def complete_handles(
        self, correlation_ids: Sequence[str], resumed: Sequence[str] = ()
    ) -> Sequence[HandleRecord]:
        request = self._request(correlation_ids=list(dict.fromkeys(correlation_ids)), resumed=resumed)
        row = await self.connections.events.row(SQL["complete_handles"], request)
        return event_json.to_handles(row["handles"])

    async def create_handle(self, handle: HandleRecord, tasks: Sequence[NewTask] = ()) -> HandleRecord:
        row = await self.connections.add.row(SQL["create_handle"], self._handle_request(handle, tasks, joined=False))
        self._notify(decode_notification(row["notification"]))
        return event_json.to_handle(row["handle"])

    # -- in the caller's transaction

    def publish_in(self, connection: object, events: Sequence[NewEvent]) -> Sequence[bool]:
        request = self._publish_request(events, notify=self.address.notify)
        fresh: Sequence[bool] = transactions.call(connection, "publish_v1", request)["fresh"]
        return fresh

    async def publish_awaited(self, connection: object, events: Sequence[NewEvent]) -> Sequence[bool]:
        request = self._publish_request(events, notify=self.address.notify)
        fresh: Sequence[bool] = (await transactions.call_awaited(connection, "publish_v1", request))["fresh"]
        return fresh

    def create_handle_in(self, connection: object, handle: HandleRecord, tasks: Sequence[NewTask] = ()) -> HandleRecord:
        request = self._handle_request(handle, tasks, joined=True)
        return event_json.to_handle(transactions.call(connection, "create_handle_v1", request)["handle"])

    async def create_handle_awaited(
        self, connection: object, handle: HandleRecord, tasks: Sequence[NewTask] = ()
    ) -> HandleRecord:
        request = self._handle_request(handle, tasks, joined=True)
        row = await transactions.call_awaited(connection, "create_handle_v1", request)
        return event_json.to_handle(row["handle"])

    def _publish_request(self, events: Sequence[NewEvent], *, notify: bool) -> str:
        return self._request(events=event_json.encode_events(events), complete=True, notify=notify)

    def _handle_request(self, handle: HandleRecord, tasks: Sequence[NewTask], *, joined: bool) -> str:
        encoded = protocol.encode_tasks(tasks)
        return self._request(
            **event_json.encode_handle(handle),
            tasks=encoded,
            in_parts=protocol.must_be_in_parts(encoded),
            joined=joined,
        )

    # -- reads

    async def handles(self, correlation_ids: Sequence[str]) -> Sequence[HandleRecord]:
        rows = await self.connections.reads.rows(SQL["handles"], self._name, self._now(), list(correlation_ids))
        return [event_json.to_handle(row["handle"]) for row in rows]

    async def arrivals(self, correlation_id: str) -> Sequence[Arrival]:
        rows = await self.connections.reads.rows(SQL["arrivals"], self._name, correlation_id)
        return [
            Arrival(row["correlation_id"], row["event_id"], row["type"], row["event"].encode(), row["at"])
            for row in rows
        ]

    async def find_events(self, where: Mapping[str, str], after: int, limit: int) -> Sequence[OutboxEvent]:
        check_event_filters(where)
        query = "find_event" if "id" in where else _BY_STATUS.get(where.get("status", ""), "find_events")
        filters = [where.get(name) for name in EVENT_FILTERS]
        rows = await self.connections.reads.rows(SQL[query], self._name, after, limit, *filters)
        return [event_json.to_outbox_event(row) for row in rows]

    async def unread(self, group: str, topics: Sequence[str]) -> Sequence[UnreadCount]:
        rows = await self.connections.reads.rows(SQL["unread"], self._name, group, list(topics))
        return [UnreadCount(row["topic"], row["bucket"], row["number"]) for row in rows]

    async def outbox_state(self) -> OutboxState:
        reads = self.connections.reads
        topics = [TopicState(**row) for row in await reads.rows(SQL["topic_states"], self._name)]
        owners: dict[str, dict[int, str]] = {}
        lag: dict[str, int] = {}
        for row in await reads.rows(SQL["bucket_states"], self._name):
            group = row["consumer_group"]
            if row["session"] is not None:
                owners.setdefault(group, {})[row["bucket"]] = row["session"]
            if group != RELAYS:
                lag[group] = lag.get(group, 0) + row["lag"]
        handles: dict[HandleStatus, int] = {
            row["status"]: row["number"] for row in await reads.rows(SQL["handle_states"], self._name, self._now())
        }
        return OutboxState(topics, owners, lag, handles)
