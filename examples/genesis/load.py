"""Twenty batches at once: prints how long users wait beside the goals, and exits with 1 if one is missed.

python -m examples.genesis.load [--batches 20] [--count 50] [--kafka --postgres]

The first round is without errors, for the times. In the second one 5 % of the calls are answered by 429, 1 % time out,
and 2 % of the requests are poison, which no retry helps.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.genesis.servers import add_options, servers

if TYPE_CHECKING:
    from onthedot import TaskContext
    from onthedot.operations.outbox import EventInfo

TYPES = ("character_name", "location_name", "item")
PART = "genesis.detail_batch"
REQUESTS = "genesis.requests"  # the topic
PATIENCE = 60  # seconds for a batch; far more than the goals
CALLS = 200  # of the store, per page of the change feed
ALL = 100_000  # more transitions than these calls have
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "genesis.md"


@dataclass
class Round:
    """The figures of one round; times in seconds."""

    first: list[float] = field(default_factory=list[float])
    all: list[float] = field(default_factory=list[float])
    queued: dict[str, float] = field(
        default_factory=dict[str, float]
    )  # by part: in its own queue, and in that of the agent
    started: dict[str, float] = field(default_factory=dict[str, float])  # by part
    stored: dict[str, float] = field(default_factory=dict[str, float])  # by part: from its start to its outbox row
    sent: list[float] = field(default_factory=list[float])  # from the start of a part until the bus has its request
    calls: Counter[str] = field(default_factory=Counter[str])  # of the model, by part
    answered: set[str] = field(default_factory=set[str])  # parts
    poisoned: set[str] = field(default_factory=set[str])  # parts
    asked: int = 0
    made: int = 0
    dead_letters: int = 0
    took: float = 0.0
    cpu: float = 0.0  # of this process

    @property
    def success(self) -> float:
        return self.made / self.asked

    @property
    def retried(self) -> list[str]:
        """Parts that were called again, except poison."""
        return [part for part, calls in self.calls.items() if calls > 1 and part not in self.poisoned]

    @property
    def retry_success(self) -> float:
        retried = self.retried
        return len(self.answered.intersection(retried)) / len(retried) if retried else 1.0


def p95(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[int(len(ordered) * 0.95)] if ordered else float("nan")


class Load:
    """Runs rounds on the app of the example. `figures`: of the round that runs now."""

    def __init__(self, batches: int, count: int) -> None:
        from examples.genesis.app import app, model

        self.app = app
        self.model: Any = model
        self.batches = batches
        self.count = count
        self.figures = Round()
        app.around(self._note)

    async def _note(self, task: TaskContext, call: Callable[[], Awaitable[object]]) -> object:
        """How long a part is queued: before it asks, and its request before an agent begins with it."""
        figures = self.figures
        late = max(0.0, time.time() - task.scheduled_for.timestamp())
        if task.source == PART:
            if task.uuid not in figures.queued:  # its answer is a second start
                figures.queued[task.uuid] = late
                figures.started[task.uuid] = time.time()
            return await call()
        if not task.source.startswith("agent."):
            return await call()
        (event,) = task.args.values()
        part = str(event.key)
        figures.calls[part] += 1
        if figures.calls[part] == 1:
            figures.queued[part] = figures.queued.get(part, 0.0) + late
        result = await call()
        figures.answered.add(part)
        return result

    async def warm_up(self) -> None:
        """One batch of each type: topics are created, and each group reads its partitions."""
        await asyncio.gather(*(self._batch(number) for number in range(len(TYPES))))

    async def run(self, **fake: object) -> Round:
        """fake: settings of the generator in this round."""
        for name, value in fake.items():
            setattr(self.model, name, value)
        self.figures = Round()
        cursor = (await self.app.runtime.store.changes("", 1)).cursor
        since = time.time()
        began = time.monotonic()
        cpu = time.process_time()
        await asyncio.gather(*(self._batch(number) for number in range(self.batches)))
        self.figures.took = time.monotonic() - began
        self.figures.cpu = time.process_time() - cpu
        await self._read_changes(cursor)
        await self._inspect(since)
        return self.figures

    async def _read_changes(self, cursor: str) -> None:
        """The step that stores a request is the one that lets its part wait."""
        figures = self.figures
        while (page := await self.app.runtime.store.changes(cursor, CALLS, resolve=ALL)).entries:
            cursor = page.cursor
            for each in (each for entry in page.entries for each in entry.transitions):
                if each.state == "waiting" and each.uuid in figures.started:
                    figures.stored.setdefault(each.uuid, max(0.0, each.at / 1000 - figures.started[each.uuid]))

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
        """The requests and the dead letters of this round."""
        requests = await self._events(REQUESTS, since)
        self.figures.sent = [
            (each.sent_at - each.occurred_at).total_seconds() for each in requests if each.sent_at is not None
        ]
        self.figures.poisoned = {each.key for each in requests if self.model.refuses(each.key)}
        self.figures.dead_letters = len(await self._events(f"{REQUESTS}.DLT", since))

    async def _events(self, topic: str, since: float) -> list[EventInfo]:
        found: list[EventInfo] = []
        last = 0
        while page := await self.app.operations.outbox.events(topic=topic, after=last, limit=1000):
            found += [each for each in page if each.occurred_at.timestamp() >= since]
            last = page[-1].number
        return found


def table(calm: Round, rough: Round) -> tuple[str, bool]:
    """The goals beside the figures; False: one is missed."""
    queued = p95(list(calm.queued.values()))
    stored = p95(list(calm.stored.values()))
    retried = len(rough.retried)
    rows = [
        ("first items, p95", f"{p95(calm.first):.2f} s", "≤ 2 s", p95(calm.first) <= 2),
        ("all items, p95", f"{p95(calm.all):.2f} s", "≤ 5 s", p95(calm.all) <= 5),
        ("queue latency, p95", f"{queued * 1000:.0f} ms", "< 500 ms", queued < 0.5),
        ("dequeue → outbox, p95", f"{stored * 1000:.0f} ms", "< 100 ms", stored < 0.1),
        ("items made", f"{calm.success:.1%}", "> 99 %", calm.success > 0.99),
        ("dead letters", f"{calm.dead_letters}", "< 0.1 %", calm.dead_letters < 0.001 * len(calm.queued)),
        ("with errors: retry success", f"{rough.retry_success:.1%} of {retried}", "> 95 %", rough.retry_success > 0.95),
        (
            "with errors: dead letters",
            f"{rough.dead_letters}",
            f"= {len(rough.poisoned)} poisoned",
            rough.dead_letters == len(rough.poisoned),
        ),
    ]
    lines = [f"{'goal':<28} {'measured':>14}  target"]
    for name, value, target, met in rows:
        lines.append(f"{name:<28} {value:>14}  {target:<13} {'met' if met else 'MISSED'}")
    return "\n".join(lines), all(row[-1] for row in rows)


async def measure(batches: int, count: int) -> tuple[str, bool]:
    load = Load(batches, count)
    async with load.app.running():
        await load.warm_up()
        calm = await load.run(seconds=(0.1, 0.1), limited=0, slow=0, poisoned=0)
        rough = await load.run(limited=0.05, slow=0.01, poisoned=0.02)
    text, met = table(calm, rough)
    text += f"\ndequeue → acknowledged by the bus: p95 {p95(calm.sent) * 1000:.0f} ms"
    title = (
        f"{batches} batches of {count} at once: {len(calm.queued)} parts in {calm.took:.1f} s, "
        f"{calm.cpu:.1f} s of CPU; load average {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
    )
    return f"{title}\n{text}", met


def write_page(name: str, text: str) -> None:
    """Replaces the block of this name in the documentation."""
    begin = f"<!-- begin: written by python -m examples.genesis.load --docs {name} -->\n"
    end = "<!-- end -->\n"
    page = PAGE.read_text("utf-8")
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{PAGE} has no marks for {name}")
    block = f"<!-- not run: figures of one machine -->\n```text\n{text}\n```\n"
    PAGE.write_text(f"{before}{begin}{block}{end}{after}", "utf-8")


def main() -> int:
    parser = ArgumentParser(prog="python -m examples.genesis.load", description=__doc__)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--docs", metavar="NAME", help="write the table into the documentation, at this mark")
    add_options(parser)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="genesis-") as folder,
        servers(options, default_store=f"sqlite:///{folder}/genesis.db"),
    ):
        text, met = asyncio.run(measure(options.batches, options.count))
    print(text)
    if options.docs:
        write_page(options.docs, text)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
