"""Reads only, on a connection of their own: a slow page never stops the queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from onthedot.stores.capabilities import ServerInfo
from onthedot.stores.contract import (
    MAX_AHEAD,
    ChangeEntry,
    ChangePage,
    Lease,
    Limit,
    Note,
    Page,
    Position,
    Record,
    Schedule,
    State,
    Transition,
)
from onthedot.stores.postgres.connections import PostgresConnection
from onthedot.stores.postgres.protocol import record_as_seen
from onthedot.stores.postgres.queries import SQL
from onthedot.stores.rules.filters import FILTERS, check
from onthedot.stores.rules.limits import LimitTable, TokenBucket
from onthedot.stores.rules.position import blockers

_LOOK = 20_000  # records a call looks at
_FILTERS = tuple(FILTERS)  # the last two are times
_END = 2**62


class PostgresReads(ABC):
    """The half of the store that reads."""

    @property
    @abstractmethod
    def _connection(self) -> PostgresConnection: ...

    @property
    @abstractmethod
    def _app(self) -> int: ...

    @abstractmethod
    def _now(self) -> float | None:
        """None: by the server's clock."""

    async def get(self, uuids: Sequence[str]) -> list[Record | None]:
        rows = await self._connection.rows(SQL["get"], self._app, self._now(), list(uuids))
        found = {row["uuid"]: record_as_seen(row) for row in rows}
        return [found.get(uuid) for uuid in uuids]

    async def find(self, where: Mapping[str, str], after: str | None, limit: int) -> Page:
        check(where)
        before = int(after) if after else _END
        said: list[Any] = [where.get(name) for name in _FILTERS[:6]]
        said += [int(where[name]) if name in where else None for name in _FILTERS[6:]]
        if where.get("state") == "running":
            found = await self._connection.rows(SQL["find_running"], self._app, self._now(), before, 0, *said, limit)
            rows = [record_as_seen(row) for row in found]
            return Page(rows, str(rows[-1].seq) if len(rows) == limit else None)
        newest = await self._before(before)
        if newest is None:
            return Page([], None)
        low = newest + 1 - _LOOK
        found = await self._connection.rows(SQL["find"], self._app, self._now(), newest + 1, low, *said, limit)
        rows = [record_as_seen(row) for row in found]
        last = rows[-1].seq if len(rows) == limit else low
        return Page(rows, None if await self._before(last) is None else str(last))

    async def _before(self, seq: int) -> int | None:
        row = await self._connection.row(SQL["newest_before"], self._app, seq)
        return None if row is None else row[0]

    async def notes(self, uuid: str, after: int, limit: int) -> list[tuple[int, Note]]:
        rows = await self._connection.rows(SQL["notes"], self._app, uuid, after, limit)
        return [(row[0], Note(Lease(uuid, row[1], row[2]), row[3], row[4], row[5])) for row in rows]

    async def server(self) -> ServerInfo:
        row = await self._connection.row(SQL["server"], self._now())
        return ServerInfo(float(row["now"]), f"PostgreSQL {row['version']}")

    async def tally(self) -> dict[tuple[str, State], int]:
        rows = await self._connection.rows(SQL["tally"], self._app)
        return {(source, state): number for source, state, number in rows}

    async def schedules(self) -> list[Schedule]:
        return [Schedule(*row) for row in await self._connection.rows(SQL["schedules"], self._app)]

    async def limits(self) -> list[Limit]:
        return [Limit(*row) for row in await self._connection.rows(SQL["limits"], self._app)]

    async def sessions(self) -> dict[str, bytes]:
        rows = await self._connection.rows(SQL["sessions"], self._app, self._now())
        return {row["name"]: row["info"] for row in rows}

    async def position(self, uuid: str) -> Position | None:
        row = await self._connection.row(SQL["position"], self._app, self._now(), uuid, MAX_AHEAD)
        if row is None:
            return None
        record = record_as_seen(row[:14])
        limits = LimitTable()
        for said in await self._connection.rows(SQL["limits"], self._app):
            limits.put(Limit(*said), row["now"])
        if row["tokens"] is not None:
            limits._sources[record.source] = _bucket(row["tokens"], row["tokens_at"])
        if record.lane is not None:
            lane = limits.lane(record.lane)
            lane.running, lane.admitted, lane.reserved = row["in_lane"], row["admitted"], row["reserved"]
            if row["lane_tokens"] is not None:
                lane.bucket = _bucket(row["lane_tokens"], row["lane_at"])
        return Position(blockers(limits, record, row["running"], row["now"]), min(row["ahead"], MAX_AHEAD))

    async def changes(self, after: str, limit: int) -> ChangePage:
        if not after:
            row = await self._connection.row(SQL["last_change"], self._app, self._now())
            return ChangePage([], str(row[0]))
        entries: list[ChangeEntry] = []
        for call, at, text in await self._connection.rows(SQL["changes"], self._app, self._now(), int(after), limit):
            moves = _moves(text)
            seqs = [seq for _, some, _ in moves for seq in some or ()]
            names = {row[0]: (row[1], row[2]) for row in await self._connection.rows(SQL["names"], seqs)}
            entries.append(ChangeEntry(str(call), list(_transitions(at, moves, names))))
        return ChangePage(entries, entries[-1].cursor if entries else after)


_Move = tuple[State, list[int] | None, list[tuple[str, str]] | None]  # state, seqs, purged ones by uuid and source
_moves = msgspec.json.Decoder(list[_Move]).decode


def _bucket(tokens: float, at: float) -> TokenBucket:
    return TokenBucket(Limit("", burst=tokens), at)


def _transitions(at: int, moves: Sequence[_Move], names: Mapping[int, tuple[str, str]]) -> Iterator[Transition]:
    """Tasks that were purged since are left out."""
    for state, seqs, deleted in moves:
        for uuid, source in (*(names[seq] for seq in seqs or () if seq in names), *(deleted or ())):
            yield Transition(at, uuid, source, state)
