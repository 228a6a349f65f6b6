"""Settling 100 outcomes in one turn, by kind, beside plain outcomes, in every store: ``./dev bench settle``."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.postgres import server as postgres_server
from benchmarks.report import Figure
from onthedot.clock.system import SystemClock
from onthedot.stores import connect
from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import (
    BUCKETS,
    ClaimRequest,
    Completed,
    Effects,
    Ended,
    Lease,
    LeasedTasks,
    Limit,
    NewEvent,
    NewTask,
    Outcome,
    Requeued,
    SlotPool,
    Store,
)
from tests.support.services import valkey

TARGETS = {
    "new task": 3,
    "unique key": 3,
    "both": 3,
    "lane": 3,
    "lane with a waiting task": 10,
    "chore": 3,
    "retry": 3,
    "event": 3,
}
"""Times the cost of plain outcomes. In the lanes with a waiting task, each outcome admits another task as well."""
KINDS = ("plain", *TARGETS)
OUTCOMES = 100


class SettleRounds:
    """A worker that claims 100 tasks of one kind and settles them, kind by kind."""

    def __init__(self, store: Store) -> None:
        self.store: Store = store
        self._number = 0
        self._settled = 0

    async def open(self) -> None:
        await self.store.open()
        await self.store.heartbeat("w", b"", 10**12)
        await self.store.put_limits([Limit("crowded/*", cap=1)])

    async def close(self) -> None:
        await self.store.close_session("w")
        await self.store.close()

    async def round(self, kind: str) -> float:
        """µs of the turn that settles."""
        outcomes = await self._outcomes(kind)
        began = time.perf_counter()
        turn = await self.store.turn("w", outcomes, None)
        took = (time.perf_counter() - began) * 1e6
        assert list(turn.verdicts) == ["ok"] * OUTCOMES
        await self._end_waiting()
        return took

    async def _outcomes(self, kind: str) -> list[Outcome]:
        self._settled += 1
        if kind == "chore":
            new = [self._new("send", f"c{number}") for number in range(OUTCOMES)]
            await self.store.add(new)
            chores = await self.store.cancel("w", [task.uuid for task in new])
            return [Ended(Lease(task.uuid, chores.fence, "w"), "cancelled", b"") for task in chores.tasks]
        leased = await self._leased(kind)
        leases = [Lease(record.uuid, leased.fence, "w") for record in leased.tasks]
        assert len(leases) == OUTCOMES
        match kind:
            case "retry":
                return [Requeued(lease, 0, counted=True, error=b"error") for lease in leases]
            case "event":
                return [Completed(lease, b"1", effects=Effects(events=(self._event(lease.uuid),))) for lease in leases]
            case "new task" | "both":
                news = [self._new("spawned", f"s{number}") for number in range(OUTCOMES)]
                pairs = zip(leases, news, strict=True)
                return [Completed(lease, b"1", effects=Effects((new,))) for lease, new in pairs]
            case _:
                return [Completed(lease, b"1") for lease in leases]

    async def _leased(self, kind: str) -> LeasedTasks:
        source = "crowded" if kind == "lane with a waiting task" else "send"
        await self._add(kind, source)
        if source == "crowded":
            await self._add(kind, source)
        return await self._claim(source)

    async def _add(self, kind: str, source: str) -> None:
        new = [self._new(source, f"{kind[0]}{number}") for number in range(OUTCOMES)]
        if kind.startswith("lane"):
            new = [NewTask(task.uuid, source, task.body, lane=f"{source}/{nth}") for nth, task in enumerate(new)]
        elif kind in ("unique key", "both"):
            new = [NewTask(task.uuid, source, task.body, unique=task.uuid) for task in new]
        await self.store.add(new)

    def _new(self, source: str, name: str) -> NewTask:
        self._number += 1
        return NewTask(f"{name}-{self._number:09}", source, b'{"args":{"text":"' + b"x" * 83 + b'"}}')

    def _event(self, name: str) -> NewEvent:
        return NewEvent(
            f"e-{name}", "shop.order.events", name, self._number % BUCKETS, "Shop.Order.Placed", payload=b"{}"
        )

    async def _claim(self, source: str) -> LeasedTasks:
        self._settled += 1
        request = ClaimRequest(self._settled, [SlotPool(OUTCOMES, {source: OUTCOMES})])
        claimed = (await self.store.turn("w", [], request)).claim
        assert claimed is not None
        return LeasedTasks(claimed.fence, claimed.tasks)

    async def _end_waiting(self) -> None:
        """End what the measured turn left ready, so that every round begins with an empty queue."""
        for source in ("send", "spawned", "crowded"):
            while (leased := await self._claim(source)).tasks:
                await self.store.turn(
                    "w", [Completed(Lease(record.uuid, leased.fence, "w")) for record in leased.tasks], None
                )


async def _costs(url: str, rounds: int) -> dict[str, float]:
    """The median of each kind, in µs; the kinds are measured in turn."""
    settling = SettleRounds(connect(url, SystemClock(), "bench"))
    await settling.open()
    kinds = [kind for kind in KINDS if kind != "event" or isinstance(settling.store, Outbox)]
    costs: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, some in costs.items():
            some.append(await settling.round(kind))
    await settling.close()
    return {kind: statistics.median(some) for kind, some in costs.items()}


def _figures(url: str, scale: float) -> list[Figure]:
    costs = asyncio.run(_costs(url, max(2, int(20 * scale))))
    plain = costs.pop("plain")
    return [
        Figure(cost, plain, "µs", f"{kind} beside plain", TARGETS[kind], least=False) for kind, cost in costs.items()
    ]


@contextmanager
def _file() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="onthedot-bench-"))
    try:
        yield f"sqlite:///{folder}/settle.db"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def settle_memory(scale: float) -> list[Figure]:
    return _figures("memory://", scale)


def settle_sqlite(scale: float) -> list[Figure]:
    with _file() as url:
        return _figures(url, scale)


def settle_redis(scale: float) -> list[Figure]:
    with valkey.server() as server:
        return _figures(server.url, scale)


def settle_postgres(scale: float) -> list[Figure]:
    with postgres_server() as url:
        return _figures(url, scale)


MEASURES = [settle_memory, settle_sqlite, settle_redis, settle_postgres]
