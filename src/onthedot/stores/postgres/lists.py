"""The lists of `find`: candidates in their order, and their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from onthedot.stores.postgres.connections import PostgresConnection
from onthedot.stores.postgres.queries import SQL
from onthedot.stores.rules.filters import FILTERS
from onthedot.stores.rules.pages import MOST_NAMED, Candidate, ReadRequest, in_order, is_behind, source_of

_LAST = 2**62
_LAST_CHARACTER = "\U0010ffff"
_TIMES = ("since", "until")


class PostgresLists:
    def __init__(self, reads: PostgresConnection, app: str, where: Mapping[str, str]) -> None:
        self._reads = reads
        self._app = app
        self._where = where

    async def records(self, seqs: Sequence[int], now: float | None) -> Sequence[Any]:
        """Those that match the filters."""
        if not seqs:
            return ()
        where = self._where
        filters = [int(where[name]) if name in _TIMES and name in where else where.get(name) for name in FILTERS]
        return await self._reads.rows(SQL["listed"], self._app, now, seqs, *filters)

    async def candidates(self, request: ReadRequest) -> list[Candidate]:
        where = self._where
        match request.name:
            case "named":
                return await self._named(request)
            case "added" | "running" | "flows":
                return await self._by_seq(request, f"list_{request.name}", _LAST)
            case "flow":
                return await self._by_seq(request, "list_flow", _LAST, where["flow"])
            case "waiters":
                return await self._by_seq(request, "list_waiters", _LAST, where["waits_for"])
            case "unqueued" | "waiting":
                return await self._by_seq(request, f"list_{request.name}", 0)
            case "scheduled":
                return await self._by_moment(request, "list_scheduled")
            case "parked" if "lane" in where:
                return await self._by_moment(request, "list_parked_in_lane", where["lane"])
            case "parked":
                return await self._by_moment(request, "list_parked")
            case "ready":
                return await self._by_moment(request, "list_ready", source_of(where))
            case "ended":
                return await self._ended(request)
            case _:
                assert_never(request.name)

    async def _by_seq(self, request: ReadRequest, query: str, start: int, *names: str) -> list[Candidate]:
        """start: before all seqs of the list."""
        seq = start if request.after is None else request.after[1]
        rows = await self._reads.rows(SQL[query], self._app, seq, request.size, *names)
        return [Candidate(row["moment"], row["seq"], row["time"]) for row in rows]

    async def _by_moment(self, request: ReadRequest, query: str, *names: str | None) -> list[Candidate]:
        moment, seq = request.after or (-_LAST, 0)
        rows = await self._reads.rows(SQL[query], self._app, moment, seq, request.size, *names)
        return [Candidate(row["moment"], row["seq"], row["time"]) for row in rows]

    async def _named(self, request: ReadRequest) -> list[Candidate]:
        start = self._where["uuid"]
        rows = await self._reads.rows(SQL["list_named"], self._app, start, start + _LAST_CHARACTER, MOST_NAMED + 1)
        if len(rows) > MOST_NAMED:
            return await self._by_seq(request, "list_added", _LAST)
        named = [Candidate(row["moment"], row["seq"], row["time"]) for row in rows]
        return in_order("named", named, request.after, request.size)

    async def _ended(self, request: ReadRequest) -> list[Candidate]:
        """The rest of the millisecond of the last page, then what ended before."""
        state = self._where["state"]
        source = source_of(self._where)
        found: list[Candidate] = []
        moment = _LAST
        if request.after is not None:
            moment = request.after[0]
            found += _ends(await self._reads.rows(SQL["ended_at"], self._app, state, moment, source), request)
        if len(found) < request.size:
            query = "ended_in_state" if source is None else "ended_of_source"
            names = () if source is None else (source,)
            rows = await self._reads.rows(SQL[query], self._app, state, moment, request.size - len(found), *names)
            found += _ends(rows, request)
        return in_order("ended", found, None, request.size)


def _ends(rows: Sequence[Any], request: ReadRequest) -> list[Candidate]:
    return [
        Candidate(row["ended"], seq, row["ended"])
        for row in rows
        for seq in row["seqs"]
        if is_behind("ended", (row["ended"], seq), request.after)
    ]
