"""Precision of the estimates of `explain`: a steady run with a manual clock, each compared with the start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any

import msgspec
import pytest

from onthedot.clock.epoch import to_ms
from onthedot.clock.manual import ManualClock
from onthedot.operations import Operations
from onthedot.stores.contract import NewTask
from onthedot.stores.memory import MemoryStore
from tests.contract.steps import LEASE, Worker, limit
from tests.faults import LONG

TASKS = 1000  # whose estimates are compared with their starts


@dataclass
class Run:
    """Slots that are always busy and a queue of constant length: each end frees a slot and adds a task."""

    slots: int
    backlog: int
    duration: Callable[[Random], float]
    limits: dict[str, dict[str, Any]] = field(default_factory=dict)
    keys: int = 0
    tasks: int = TASKS if LONG else 200
    random: Random = field(default_factory=lambda: Random(7))
    guesses: dict[str, tuple[float, float]] = field(default_factory=dict)  # time of the estimate, estimated start
    starts: dict[str, float] = field(default_factory=dict)

    async def play(self) -> float:
        """Return the share of estimates that were right within a factor of two."""
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.operations = Operations(self.store, "client", self.clock)
        self.worker = Worker(self.store, "w1")
        await self.store.heartbeat("w1", msgspec.json.encode({"sources": ["a"]}), LEASE)
        for name, fields in self.limits.items():
            await limit(self.store, name, **fields)
        self.number = 0
        self.waiting = list[str]()
        self.ends = list[tuple[float, str]]()
        for _ in range(self.backlog):
            await self.add()
        while len(self.guesses) < self.tasks or not self.guesses.keys() <= self.starts.keys():
            await self.step()
        return sum(self.right(uuid) for uuid in self.guesses) / len(self.guesses)

    async def add(self) -> None:
        self.number += 1
        uuid = f"t{self.number}"
        lane = f"a/{self.random.randrange(self.keys)}" if self.keys else None
        await self.store.add([NewTask(uuid, "a", b"", lane=lane)])
        self.waiting.append(uuid)

    async def step(self) -> None:
        """Start tasks, estimate one start, and advance the clock to the next event."""
        claimed = await self.worker.claim(total=self.slots - len(self.ends))
        for record in claimed.tasks:
            self.starts[record.uuid] = self.clock.now()
            self.waiting.remove(record.uuid)
            heappush(self.ends, (self.clock.now() + self.duration(self.random), record.uuid))
        if self.number > 3 * self.backlog and len(self.guesses) < self.tasks:  # once the run is steady
            await self.guess()
        moments = [self.ends[0][0]] if self.ends else []
        moments += [self.clock.now() + claimed.next_in] if claimed.next_in is not None else []
        self.clock.advance(max(0.0, min(moments) - self.clock.now()))
        while self.ends and self.ends[0][0] <= self.clock.now():
            await self.worker.settle(self.worker.done(heappop(self.ends)[1]))
            await self.add()

    async def guess(self) -> None:
        uuid = self.random.choice(self.waiting)
        explanation = await self.operations.explain(uuid)
        if uuid not in self.guesses and explanation.estimated_start is not None:
            self.guesses[uuid] = (self.clock.now(), to_ms(explanation.estimated_start))

    def right(self, uuid: str) -> bool:
        requests, guess = self.guesses[uuid]
        came = self.starts[uuid] - requests
        return came / 2 <= guess - requests <= came * 2


def uniform(random: Random) -> float:
    return 1000 + random.random()


def varied(random: Random) -> float:
    return random.lognormvariate(6.5, 0.8)


RUNS = {
    "slots": Run(10, 100, varied, tasks=TASKS),
    "alike": Run(10, 100, uniform),
    "one slot": Run(1, 40, varied),
    "source limit": Run(50, 60, varied, limits={"a": {"cap": 5}}),
    "rate": Run(50, 60, varied, limits={"a": {"rate": 4.0, "burst": 4}}),
    "key limit": Run(50, 120, varied, limits={"a/*": {"cap": 1}}, keys=6),
}


@pytest.mark.long
@pytest.mark.parametrize("name", RUNS)
async def test_estimated_start_is_right_within_a_factor_of_two(name: str) -> None:
    run = RUNS[name]
    share = await run.play()
    print(f"{name}: {share:.1%} of {run.tasks} within a factor of 2")
    assert share >= 0.8
