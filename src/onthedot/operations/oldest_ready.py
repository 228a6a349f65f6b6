"""The age of the task that runs next, of a store and of each source."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from onthedot.stores.contract import Record, State, Store


class OldestReady(NamedTuple):
    """Seconds since the task that runs next was due. of_all: None: none is ready."""

    of_all: float | None
    by_source: Mapping[str, float]


async def read_oldest_ready(store: Store, sources: Sequence[str], now: float, head: int) -> OldestReady:
    """Read the tasks that run next; of a longer queue, also one task of each source that is not among them.

    Of a source whose ready tasks are all parked, the first of these counts.

    sources: that have ready or parked tasks; now: ms; head: how many tasks of all sources are read
    """
    if not sources:
        return OldestReady(None, {})
    page = await store.find({"state": "ready"}, None, head)
    found = {record.source: record for record in reversed(page.rows)}
    if page.after is not None:
        found |= await _next_records(store, "ready", [name for name in sources if name not in found])
    found |= await _next_records(store, "parked", [name for name in sources if name not in found])
    ages = {name: max(0.0, now - record.due) / 1000 for name, record in found.items()}
    of_all = ages[page.rows[0].source] if page.rows else max(ages.values(), default=None)
    return OldestReady(of_all, ages)


async def _next_records(store: Store, state: State, sources: Sequence[str]) -> dict[str, Record]:
    finds = [store.find({"source": name, "state": state}, None, 1) for name in sources]
    return {record.source: record for page in await asyncio.gather(*finds) for record in page.rows}
