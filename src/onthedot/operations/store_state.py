"""The reads that most views of a store begin with, so that a view makes none of them twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from onthedot.operations.workers import ComponentInfo, WorkerInfo, component_infos, worker_infos
from onthedot.stores.contract import Limit, State, Store

Tally: TypeAlias = Mapping[tuple[str, State], int]


@dataclass(frozen=True, slots=True)
class StoreState:
    """The tasks by source and state, the limits and the sessions of a store."""

    tally: Tally
    limits: Sequence[Limit]
    workers: Sequence[WorkerInfo]
    components: Sequence[ComponentInfo]


async def read_store_state(store: Store) -> StoreState:
    """At once: it is one round trip to Redis, and one wake-up of the thread of SQLite. It needs an event loop."""
    tally, limits, sessions = await asyncio.gather(store.tally(), store.limits(), store.sessions())
    return StoreState(tally, limits, worker_infos(sessions), component_infos(sessions))
