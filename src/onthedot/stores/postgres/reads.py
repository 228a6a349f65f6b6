"""Reads, on a connection of their own: a slow page never delays the queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from onthedot.stores.capabilities import ServerInfo
from onthedot.stores.contract import (
    MAX_AHEAD,
    ChangeEntry,
    ChangePage,
    Counter,
    Lease,
    Limit,
    Note,
    NoteKind,
    Page,
    Position,
    Record,
    Schedule,
    SeriesEntry,
    SignalPage,
    State,
    StoredSignal,
    Transition,
)
from onthedot.stores.postgres.change_cursor import SeenCalls
from onthedot.stores.postgres.connections import PostgresConnection
from onthedot.stores.postgres.lists import PostgresLists
from onthedot.stores.postgres.protocol import to_record
from onthedot.stores.postgres.queries import SQL
from onthedot.stores.rules.limits import LimitTable, TokenBucket
from onthedot.stores.rules.pages import PageBuilder
from onthedot.stores.rules.position import blockers


class PostgresReads(ABC):
    """The part of the store that reads."""

    _name: str  # of the app

    @property
    @abstractmethod
    def _reads(self) -> PostgresConnection: ...

    @abstractmethod
    def _now(self) -> float | None:
        """None: the server's clock."""

    async def get(self, uuids: Sequence[str]) -> list[Record | None]:
        rows = await self._reads.rows(SQL["get"], self._name, self._now(), list(uuids))
        found = {row["uuid"]: to_record(row) for row in rows}
        return [found.get(uuid) for uuid in uuids]

    async def results(self, uuids: Sequence[str]) -> list[bytes | None]:
        rows = await self._reads.rows(SQL["results"], self._name, self._now(), list(uuids))
        found: dict[str, bytes | None] = {row["uuid"]: row["result"] for row in rows}
        return [found.get(uuid) for uuid in uuids]

    async def find(self, where: Mapping[str, str], after: str | None, limit: int) -> Page:
        builder = PageBuilder(where, after, limit)
        lists = PostgresLists(self._reads, self._name, where)
        if builder.needs_fence:
            builder.fence = (await self._reads.row(SQL["last_fence"]))["fence"]
        while (request := builder.next_request()) is not None:
            candidates = await lists.candidates(request)
            rows = await lists.records([each.seq for each in candidates], self._now())
            builder.take(request, candidates, {row["seq"]: to_record(row) for row in rows})
        return builder.page()

    async def notes(self, uuid: str, after: int, limit: int, kind: NoteKind | None = None) -> list[tuple[int, Note]]:
        rows = await self._reads.rows(SQL["notes"], self._name, uuid, after, limit, kind)
        return [
            (row["number"], Note(Lease(uuid, row["fence"], row["session"]), row["kind"], row["name"], row["data"]))
            for row in rows
        ]

    async def signals(self, name: str, after: int, limit: int) -> SignalPage:
        rows = await self._reads.rows(SQL["signals"], self._name, self._now(), name, after, limit)
        signals = [StoredSignal(row["number"], row["id"], row["payload"]) for row in rows if row["id"] is not None]
        return SignalPage(rows[0]["value"], signals)

    async def signal_names(self, limit: int) -> list[str]:
        rows = await self._reads.rows(SQL["signal_names"], self._name, self._now(), limit)
        return list(dict.fromkeys(row["name"] for row in rows))

    async def counters(self, names: Sequence[str]) -> list[Counter]:
        rows = await self._reads.rows(SQL["counters"], self._name, list(names))
        return [Counter(row["value"], row["failed"]) for row in rows]

    async def server(self) -> ServerInfo:
        row = await self._reads.row(SQL["server"], self._now())
        return ServerInfo(float(row["now"]), f"PostgreSQL {row['version']}")

    async def read_series(
        self, series: str, since: int, until: int, limit: int, *, newest_first: bool = False
    ) -> Sequence[SeriesEntry]:
        statement = SQL["read_series_backwards" if newest_first else "read_series"]
        rows = await self._reads.rows(statement, self._name, series, since, until, limit)
        return [SeriesEntry(*row) for row in rows]

    async def tally(self) -> dict[tuple[str, State], int]:
        rows = await self._reads.rows(SQL["tally"], self._name)
        return {(row["source"], row["state"]): row["number"] for row in rows}

    async def schedules(self) -> list[Schedule]:
        return [Schedule(**row) for row in await self._reads.rows(SQL["schedules"], self._name)]

    async def limits(self) -> list[Limit]:
        return [Limit(**row) for row in await self._reads.rows(SQL["limits"], self._name)]

    async def sessions(self) -> dict[str, bytes]:
        rows = await self._reads.rows(SQL["sessions"], self._name, self._now())
        return {row["name"]: row["info"] for row in rows}

    async def position(self, uuid: str) -> Position | None:
        row = await self._reads.row(SQL["position"], self._name, self._now(), uuid, MAX_AHEAD)
        if row is None:
            return None
        now = row["now"]
        record = to_record(row)
        table = LimitTable()
        for limit in await self.limits():
            table.put(limit)
        if row["source_tokens"] is not None:
            table.set_source_bucket(record.source, TokenBucket(row["source_tokens"], row["source_tokens_at"]))
        if record.lane is not None:
            lane = table.lane(record.lane)
            lane.running = row["lane_running"]
            lane.admitted = row["lane_admitted"]
            lane.reserved = row["lane_reserved"]
            if row["lane_tokens"] is not None:
                lane.bucket = TokenBucket(row["lane_tokens"], row["lane_tokens_at"])
        return Position(blockers(table, record, row["source_running"], now), min(row["ahead"], MAX_AHEAD))

    async def changes(self, after: str, limit: int, resolve: int = 0) -> ChangePage:
        if not after:
            row = await self._reads.row(SQL["snapshot"])
            return ChangePage([], row["snapshot"])
        seen = SeenCalls.of(after)
        rows = await self._reads.rows(
            SQL["changes"], self._name, seen.first, seen.end, list(seen.missing), limit, resolve
        )
        now = SeenCalls.of(rows[0]["snapshot"])
        is_other_data = now.end < seen.end
        gap = is_other_data or rows[0]["changes_after"] >= seen.end
        calls = {call: list(group) for call, group in groupby(rows, itemgetter("call")) if call is not None}
        if len(calls) == limit:
            cursor = str(seen.after_page(now, max(calls)))
        elif calls or is_other_data:
            cursor = str(now)
        else:
            cursor = after
        return ChangePage([_to_entry(rows) for rows in calls.values()], cursor, gap)


def _to_entry(rows: Sequence[Mapping[str, Any]]) -> ChangeEntry:
    """Of the rows of one call."""
    counts: dict[str, dict[State, int]] = {}
    transitions: list[Transition] = []
    at: int = rows[0]["at"]
    for row in rows:
        source: str = row["source"]
        state: State = row["state"]
        by_state = counts.setdefault(source, {})
        by_state[state] = by_state.get(state, 0) + row["number"]
        transitions += [Transition(at, uuid, source, state) for uuid in row["uuids"] or ()]
    return ChangeEntry(at, counts, transitions)
