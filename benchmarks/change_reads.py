"""Reading the change feed, per transition: counts alone, counts and 100 uuids, all uuids: ``./dev bench changes``.

CPU time of the reader and of the server. The feed has 60,000 transitions in 201 calls, and is read in one page.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.cpu_times import children_cpu
from benchmarks.postgres import server as postgres_server
from benchmarks.report import Figure
from onthedot.clock.system import SystemClock
from onthedot.model.uuid7 import new_uuid
from onthedot.stores import connect
from onthedot.stores.contract import ClaimRequest, Completed, Lease, NewTask, Outcome, SlotPool, Store
from tests.support.services import valkey

TASKS = 20_000  # three transitions each
BATCH = 200
READS = 9
PAGE = 500
ALL = "all"
RESOLVED = {"counts": 0, "100 resolved": 100, ALL: 10**6}
TARGETS = {"counts": 0.5, "100 resolved": 0.5}
"""Times the cost of a read that resolves all."""


class Cost(NamedTuple):
    """µs per transition."""

    own: float
    server: float


async def _fill(store: Store, tasks: int) -> str:
    """Run tasks, and return the cursor before them."""
    cursor = (await store.changes("", 1)).cursor
    await store.heartbeat("w", b"", 10**7)
    outcomes: list[Outcome] = []
    for number in range(1, tasks // BATCH + 1):
        await store.add([NewTask(new_uuid(), "a", b"{}") for _ in range(BATCH)])
        turn = await store.turn("w", outcomes, ClaimRequest(number, [SlotPool(BATCH, {"a": BATCH})]))
        assert turn.claim is not None
        outcomes = [Completed(Lease(record.uuid, turn.claim.fence, "w")) for record in turn.claim.tasks]
    await store.turn("w", outcomes, None)
    await store.close_session("w")
    return cursor


async def _read(store: Store, start: str, resolve: int, tasks: int) -> Cost:
    server = children_cpu(os.getpid())
    own = time.process_time()
    number = 0
    cursor = start
    while (page := await store.changes(cursor, PAGE, resolve)).entries:
        assert not page.gap
        number += sum(sum(by_state.values()) for entry in page.entries for by_state in entry.counts.values())
        cursor = page.cursor
    own = time.process_time() - own
    server = children_cpu(os.getpid()) - server
    assert number == 3 * (tasks // BATCH * BATCH)
    return Cost(own * 1e6 / number, server * 1e6 / number)


async def measure(url: str, tasks: int = TASKS) -> dict[str, Cost]:
    """The cost of each way to read; medians, in turn."""
    store = connect(url, SystemClock(), name=f"changes-{new_uuid()[-8:]}")
    await store.open()
    try:
        start = await _fill(store, tasks)
        found: dict[str, list[Cost]] = {kind: [] for kind in RESOLVED}
        for _ in range(READS):
            for kind, resolve in RESOLVED.items():
                found[kind].append(await _read(store, start, resolve, tasks))
    finally:
        await store.close()
    return {
        kind: Cost(statistics.median(cost.own for cost in costs), statistics.median(cost.server for cost in costs))
        for kind, costs in found.items()
    }


def _figures(url: str, scale: float) -> list[Figure]:
    costs = asyncio.run(measure(url, max(BATCH, int(TASKS * scale))))
    nanoseconds = {kind: 1000 * (cost.own + cost.server) for kind, cost in costs.items()}
    return [
        Figure(nanoseconds[kind], nanoseconds[ALL], "ns", f"{kind} beside all", target, least=False)
        for kind, target in TARGETS.items()
    ]


def changes_memory(scale: float) -> list[Figure]:
    return _figures("memory://", scale)


def changes_sqlite(scale: float) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="onthedot-bench-") as folder:
        return _figures(f"sqlite:///{Path(folder, 'shop.db')}", scale)


def changes_redis(scale: float) -> list[Figure]:
    with valkey.server() as server:
        return _figures(server.url, scale)


def changes_postgres(scale: float) -> list[Figure]:
    with postgres_server() as url:
        return _figures(url, scale)


MEASURES = [changes_memory, changes_sqlite, changes_redis, changes_postgres]
