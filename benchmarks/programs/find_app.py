"""Fills a store with a million tasks and measures lists of `find`. Writes the milliseconds of each as JSON.

It runs from the tree of this benchmark, or from an older one. With the argument ``fill`` it measures nothing, and
writes a uuid of the middle.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping

from onthedot.clock.system import SystemClock
from onthedot.model.uuid7 import new_uuid
from onthedot.stores import connect
from onthedot.stores.contract import (
    ClaimRequest,
    Completed,
    Ended,
    Lease,
    Links,
    NewTask,
    Outcome,
    SlotPool,
    Store,
    Wait,
)

COUNT = int(os.environ["BENCH_COUNT"])
_BATCH = 1000
_KEEP = 10**10
_PENDING = 0.05  # share of the tasks that have not ended
_FAILED = {"common": 500, "rare": 5}  # the oldest ends
_SOURCES = ("common", "other", "third")
_ROUNDS = 15
_MOST_S = 30.0  # for one list


class Filler:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._number = 0
        self.uuids: list[str] = []

    def _new(self, source: str, number: int, links: Links | None = None) -> list[NewTask]:
        tasks = [NewTask(new_uuid(), source, b'{"number":17,"customer":"acme"}', links=links) for _ in range(number)]
        self.uuids += [task.uuid for task in tasks]
        return tasks

    async def fill(self) -> None:
        await self._store.heartbeat("w", b"", 10**12)
        for source, number in _FAILED.items():
            await self._end(self._new(source, number), failed=True)
        ended = int(COUNT * (1 - _PENDING))
        while len(self.uuids) < ended:
            parts = [self._new(source, size) for source, size in zip(_SOURCES, (800, 150, 50), strict=True)]
            await self._end([task for part in parts for task in part])
        waits = Links(None, (), Wait((("never", 1),)))
        await self._store.add(self._new("common", _BATCH, waits))
        while len(self.uuids) < COUNT:
            await self._store.add(self._new("common", _BATCH))

    async def _end(self, tasks: list[NewTask], *, failed: bool = False) -> None:
        await self._store.add(tasks)
        self._number += 1
        room = dict.fromkeys({task.source for task in tasks}, _BATCH)
        turn = await self._store.turn("w", [], ClaimRequest(self._number, [SlotPool(_BATCH, room)]))
        assert turn.claim is not None
        leases = [Lease(record.uuid, turn.claim.fence, "w") for record in turn.claim.tasks]
        outcomes: list[Outcome] = [Completed(lease, b"1", keep=_KEEP) for lease in leases]
        if failed:
            outcomes = [Ended(lease, "failed", b"{}", keep=_KEEP) for lease in leases]
        await self._store.turn("w", outcomes, None)
        if self._number % 50 == 0:
            print(f"{len(self.uuids):,} ", end="", file=sys.stderr, flush=True)


async def _list(store: Store, where: Mapping[str, str], wanted: int) -> None:
    """Read pages until there are enough."""
    found = 0
    after: str | None = None
    while found < wanted:
        page = await store.find(where, after, 50)
        found += len(page.rows)
        after = page.after
        if after is None:
            break
    assert found >= wanted, f"{found} of {wanted} found: {where}"


async def _measure(store: Store, where: Mapping[str, str], wanted: int) -> float:
    times: list[float] = []
    ends = time.perf_counter() + _MOST_S
    while len(times) < _ROUNDS and time.perf_counter() < ends:
        began = time.perf_counter()
        try:
            await asyncio.wait_for(_list(store, where, wanted), _MOST_S)
        except TimeoutError:
            return _MOST_S * 1000
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


async def main() -> None:
    store = connect(os.environ["BENCH_STORE"], SystemClock(), "bench")
    await store.open()
    filler = Filler(store)
    began = time.perf_counter()
    await filler.fill()
    filled = time.perf_counter() - began
    middle = filler.uuids[len(filler.uuids) // 2]
    if sys.argv[1:] == ["fill"]:
        await store.close_session("w")
        await store.close()
        print(json.dumps({"filled": filled, "middle": middle, "failed": filler.uuids[0]}))
        return
    lists: dict[str, tuple[Mapping[str, str], int]] = {
        "newest 50": ({}, 50),
        "failed": ({"state": "failed"}, 50),
        "failed of a rare source": ({"state": "failed", "source": "rare"}, 5),
        "succeeded of a source": ({"state": "succeeded", "source": "third"}, 50),
        "beginning of a uuid": ({"uuid": middle[:-3]}, 1),
        "ready": ({"state": "ready"}, 50),
        "waiting": ({"state": "waiting"}, 50),
    }
    found = {name: await _measure(store, where, wanted) for name, (where, wanted) in lists.items()}
    await store.close_session("w")
    await store.close()
    print(json.dumps({"filled": filled, "lists": found}))


if __name__ == "__main__":
    asyncio.run(main())
