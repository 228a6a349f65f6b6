"""Reads of events, on the connection for reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from onthedot.stores.contract import (
    RELAYS,
    Arrival,
    HandleRecord,
    HandleStatus,
    OutboxEvent,
    OutboxState,
    TopicState,
    UnreadCount,
)
from onthedot.stores.rules.filters import EVENT_FILTERS, check_event_filters
from onthedot.stores.rules.outbox import as_seen
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import json_list, to_event, to_handle

_BY_STATUS = {"pending": "find_pending_events", "failed": "find_failed_events"}  # they have an index


class SqliteEventReads:
    def __init__(self, db: sqlite3.Connection, app: int) -> None:
        self._db = db
        self._app = app

    def find(self, where: Mapping[str, str], after: int, limit: int) -> list[OutboxEvent]:
        check_event_filters(where)
        query = "find_event" if "id" in where else _BY_STATUS.get(where.get("status", ""), "find_events")
        parameters: dict[str, Any] = dict.fromkeys(EVENT_FILTERS) | dict(where)
        rows = self._db.execute(SQL[query], parameters | {"app": self._app, "after": after, "limit": limit})
        return [to_event(row) for row in rows]

    def handles(self, correlation_ids: Sequence[str], now: float) -> list[HandleRecord]:
        with self._snapshot():
            rows = [row for each in correlation_ids for row in self._db.execute(SQL["handles_of"], (self._app, each))]
        return [as_seen(to_handle(row), now) for row in rows]

    def arrivals(self, correlation_id: str) -> list[Arrival]:
        return [Arrival(*row) for row in self._db.execute(SQL["arrivals"], (self._app, correlation_id))]

    def unread(self, group: str, topics: Sequence[str]) -> list[UnreadCount]:
        wanted = {"app": self._app, "group": group, "relays": RELAYS, "topics": json_list(list(topics))}
        return [UnreadCount(*row) for row in self._db.execute(SQL["unread"], wanted)]

    def state(self, now: float) -> OutboxState:
        with self._snapshot():
            handles: dict[HandleStatus, int] = dict(self._db.execute(SQL["handle_counts"], (now, self._app)).fetchall())
            lags: dict[str, int] = dict(self._db.execute(SQL["lags"], (self._app, RELAYS)).fetchall())
            return OutboxState(self._topics(), self._owners(), lags, handles)

    def _topics(self) -> list[TopicState]:
        topics: dict[str, TopicState] = {}
        for topic, pending, oldest in self._db.execute(SQL["pending_topics"], {"app": self._app}):
            topics[topic] = TopicState(topic, pending, oldest)
        for topic, failed, blocked_keys, error, _ in self._db.execute(SQL["failed_topics"], (self._app,)):
            known = topics.get(topic, TopicState(topic))
            topics[topic] = replace(known, failed=failed, blocked_keys=blocked_keys, error=error)
        return [topics[topic] for topic in sorted(topics)]

    def _owners(self) -> dict[str, dict[int, str]]:
        owners: dict[str, dict[int, str]] = {}
        for group, bucket, session in self._db.execute(SQL["all_owners"], (self._app,)):
            owners.setdefault(group, {})[bucket] = session
        return owners

    @contextmanager
    def _snapshot(self) -> Generator[None]:
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("COMMIT")
