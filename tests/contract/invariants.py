"""Invariants of a store, checked through the contract only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import get_args

from onthedot.stores.contract import Inspect, Record, State

ENDED = ("succeeded", "failed", "cancelled")


async def every(store: Inspect, where: Mapping[str, str] | None = None, limit: int = 100) -> list[Record]:
    """All matching records, page by page."""
    rows: list[Record] = []
    after: str | None = None
    while True:
        page = await store.find(where or {}, after, limit)
        rows += page.rows
        if page.after is None:
            return rows
        assert page.after != after, "the cursor does not advance"
        after = page.after


async def check(store: Inspect) -> None:
    rows = await every(store)
    uuids = [row.uuid for row in rows]
    assert len(set(uuids)) == len(uuids), "a record is listed twice"
    assert list(await store.get(uuids)) == rows, "get and find disagree"
    assert [row.seq for row in rows] == sorted((row.seq for row in rows), reverse=True), (
        "records are not sorted, newest first"
    )

    tally = {key: number for key, number in (await store.tally()).items() if number}
    assert tally == Counter((row.source, row.state) for row in rows), "the tally differs from the records"

    by_state = {state: {row.uuid for row in await every(store, {"state": state})} for state in get_args(State)}
    assert sum(map(len, by_state.values())) == len(rows), "a record is in two states, or in none"
    assert not by_state["running"] & by_state["ready"]

    for row in rows:
        history = row.history
        assert (row.state in ENDED) == (history.ended is not None) == (history.keep_until is not None), row
        if row.state == "running":
            assert history.session is not None, row
        assert history.retries >= 0 <= history.crashes, row
        assert row.attempt >= 1, row
