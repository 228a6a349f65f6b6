"""The lists of `find`: candidates in their order, and their records."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, assert_never

import msgspec

from onthedot.stores.rules.filters import FILTERS
from onthedot.stores.rules.pages import MOST_NAMED, Candidate, Key, ReadRequest, in_order, is_behind, source_of
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import Row, json_list

_LAST = 2**62
_decode_seqs = msgspec.json.Decoder(list[int]).decode


class SqliteLists:
    def __init__(self, db: sqlite3.Connection, app: int, where: Mapping[str, str]) -> None:
        self._db = db
        self._where = where
        self._parameters: dict[str, Any] = dict.fromkeys(FILTERS) | dict(where) | {"app": app}
        self._parameters |= {name: int(where[name]) for name in ("since", "until") if name in where}
        self._sources = {name: number for number, name in db.execute(SQL["sources"], (app,))}

    def records(self, seqs: list[int]) -> Iterator[Row]:
        """Those that match the filters."""
        return self._db.execute(SQL["listed"], self._parameters | {"seqs": json_list(seqs)})

    def candidates(self, request: ReadRequest) -> list[Candidate]:
        match request.name:
            case "named":
                return self._named(request)
            case "added" | "running" | "flow" | "flows" | "waiters":
                return self._list(f"list_{request.name}", request, (0, _LAST))
            case "unqueued" | "scheduled" | "waiting":
                return self._list(f"list_{request.name}", request, (-_LAST, 0))
            case "parked":
                query = "list_parked_in_lane" if "lane" in self._where else "list_parked"
                return self._list(query, request, (-_LAST, 0))
            case "ready":
                return self._ready(request)
            case "ended":
                return self._ended(request)
            case _:
                assert_never(request.name)

    def _list(self, query: str, request: ReadRequest, start: Key, **names: object) -> list[Candidate]:
        """start: before all keys."""
        moment, seq = request.after or start
        place = {"moment": moment, "seq": seq, "size": request.size}
        return [Candidate(*row) for row in self._db.execute(SQL[query], self._parameters | place | names)]

    def _named(self, request: ReadRequest) -> list[Candidate]:
        named = [
            Candidate(*row) for row in self._db.execute(SQL["list_named"], self._parameters | {"size": MOST_NAMED + 1})
        ]
        if len(named) <= MOST_NAMED:
            return in_order("named", named, request.after, request.size)
        return self._list("list_added", request, (0, _LAST))

    def _ready(self, request: ReadRequest) -> list[Candidate]:
        source = source_of(self._where)
        found: list[Candidate] = []
        for name, number in self._sources.items():
            if source in (None, name):
                for suspect in (False, True):
                    found += self._list("list_ready", request, (-_LAST, 0), source_id=number, suspect=suspect)
        return in_order("ready", found, None, request.size)

    def _ended(self, request: ReadRequest) -> list[Candidate]:
        """Of one millisecond all are read, since they are ordered by seq."""
        source = source_of(self._where)
        query = "ended_in_state" if source is None else "ended_of_source"
        moment = _LAST if request.after is None else request.after[0]
        place = {"moment": moment, "source_id": self._sources.get(source or "")}
        found: list[Candidate] = []
        last: int | None = None
        for ended, seqs in self._db.execute(SQL[query], self._parameters | place):
            if ended != last and len(found) >= request.size:
                break
            last = ended
            found += [
                Candidate(ended, seq, ended)
                for seq in _decode_seqs(seqs)
                if is_behind("ended", (ended, seq), request.after)
            ]
        return in_order("ended", found, None, request.size)
