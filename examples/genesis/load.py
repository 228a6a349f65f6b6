"""Twenty batches at once: prints how long users wait beside the goals, and exits with 1 if one is missed.

python -m examples.genesis.load [--batches 20] [--count 50] [--store URL] [--bus URL]

The first round is without errors, for the times. In the second one 5 % of the calls are answered by 429, 1 % time out,
and 0.5 % of the requests are poison, which no retry helps.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onthedot import TaskContext

TYPES = ("character_name", "location_name", "item")
PART = "genesis.detail_batch"
PATIENCE = 60  # seconds for a batch; far more than the goals


@dataclass
class Round:
    """The figures of one round; times in seconds."""

    first: list[float] = field(default_factory=list[float])
    all: list[float] = field(default_factory=list[float])
    queued: list[float] = field(default_factory=list[float])
    dispatched: list[float] = field(default_factory=list[float])
    asked: int = 0
    made: int = 0
    retried: int = 0
    recovered: int = 0
    dead_letters: int = 0
    poisoned: int = 0

    @property
    def success(self) -> float:
        return self.made / self.asked

    @property
    def retry_success(self) -> float:
        return self.recovered / self.retried if self.retried else 1.0


def p95(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[int(len(ordered) * 0.95)] if ordered else float("nan")


class Load:
    """Runs rounds on the app of the example. `figures`: of the round that runs now."""

    def __init__(self, batches: int, count: int) -> None:
        from examples.genesis.app import app, generator

        self.app = app
        self.generator = generator
        self.batches = batches
        self.count = count
        self.figures = Round()
        self._begun: dict[str, float] = {}  # parts, until an agent begins with their request
        app.around(self._note)

    async def _note(self, task: TaskContext, call: Callable[[], Awaitable[object]]) -> object:
        """How long a part is queued, and how long its request takes from there through outbox and bus to an agent."""
        now = time.time()
        if task.source == PART and task.uuid not in self._begun:
            self._begun[task.uuid] = now
            self.figures.queued.append(max(0.0, now - task.scheduled_for.timestamp()))
        elif task.source.startswith("agent.") and task.attempt == 1:
            (event,) = task.args.values()
            asked = self._begun.get(str(event.key))
            if asked:
                self.figures.dispatched.append(now - asked)
                self._begun[str(event.key)] = 0.0  # its first try only
        return await call()

    async def run(self, **fake: float) -> Round:
        """fake: settings of the generator in this round."""
        for name, value in fake.items():
            setattr(self.generator, name, value)
        self.figures = Round()
        began = time.time()
        await asyncio.gather(*(self._batch(number) for number in range(self.batches)))
        await self._inspect(began)
        return self.figures

    async def _batch(self, number: int) -> None:
        from examples.genesis.app import detail_part

        began = time.monotonic()
        batch = await self.app.batch(
            detail_part,
            count=self.count,
            type=TYPES[number % len(TYPES)],
            args={"session_id": f"s-{number}", "style": {"tone": f"tone{number}"}},
            metadata={"command_id": f"load-{number}-{time.time_ns()}"},
        )
        await batch.first(timeout=PATIENCE)
        self.figures.first.append(time.monotonic() - began)
        result = await batch.all(timeout=PATIENCE)
        self.figures.all.append(time.monotonic() - began)
        self.figures.asked += self.count
        self.figures.made += len(result.items)

    async def _inspect(self, since: float) -> None:
        """What agents have retried in this round, and what has failed for good."""
        figures = self.figures
        for agent in self.app.agents.ids:
            cursor: str | None = None
            while True:
                page = await self.app.find(source=f"agent.{agent}", limit=500, cursor=cursor)
                for task in page:
                    if task.added_at.timestamp() < since:
                        continue
                    figures.retried += task.attempt > 1
                    figures.recovered += task.attempt > 1 and task.state == "succeeded"
                    figures.dead_letters += task.state == "failed"
                    figures.poisoned += task.error is not None and task.error.type.endswith("Poison")
                cursor = page.cursor
                if cursor is None:
                    break


def table(calm: Round, rough: Round) -> tuple[str, bool]:
    """The goals beside the figures; False: one is missed."""
    rows = [
        ("first items, p95", f"{p95(calm.first):.2f} s", "≤ 2 s", p95(calm.first) <= 2),
        ("all items, p95", f"{p95(calm.all):.2f} s", "≤ 5 s", p95(calm.all) <= 5),
        ("queue latency, p95", f"{p95(calm.queued) * 1000:.0f} ms", "< 500 ms", p95(calm.queued) < 0.5),
        ("part → agent, p95", f"{p95(calm.dispatched) * 1000:.0f} ms", "< 100 ms", p95(calm.dispatched) < 0.1),
        ("items made", f"{calm.success:.1%}", "> 99 %", calm.success > 0.99),
        (
            "retries that succeeded",
            f"{rough.retry_success:.1%} of {rough.retried}",
            "> 95 %",
            rough.retry_success > 0.95,
        ),
        ("dead letters", f"{rough.dead_letters}", f"= {rough.poisoned}", rough.dead_letters == rough.poisoned),
    ]
    lines = [f"{'goal':<24} {'measured':>16}  target"]
    for name, value, target, met in rows:
        lines.append(f"{name:<24} {value:>16}  {target:<10} {'met' if met else 'MISSED'}")
    return "\n".join(lines), all(row[-1] for row in rows)


async def measure(batches: int, count: int) -> bool:
    load = Load(batches, count)
    async with load.app.running():
        calm = await load.run(seconds=(0.1, 0.1), limited=0, slow=0, poisoned=0)
        rough = await load.run(limited=0.05, slow=0.01, poisoned=0.005)
    text, met = table(calm, rough)
    print(f"{batches} batches of {count} at once, {len(calm.queued)} parts\n{text}")
    return met


def main() -> int:
    parser = ArgumentParser(prog="python -m examples.genesis.load", description=__doc__)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--store", help="URL; by default a new SQLite file")
    parser.add_argument("--bus", help="URL of the bus; by default the store")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        os.environ["ONTHEDOT_STORE"] = options.store or f"sqlite:///{folder}/genesis.db"
        if options.bus:
            os.environ["ONTHEDOT_BUS"] = options.bus
        return 0 if asyncio.run(measure(options.batches, options.count)) else 1


if __name__ == "__main__":
    sys.exit(main())
