"""CPU time of flows beside plain tasks, and of plain tasks beside an older tree, in client and server together."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cpu_times import children_cpu
from benchmarks.flow_stores import NewStore, memory_stores, postgres_stores, redis_stores, sqlite_stores
from benchmarks.report import Figure

_ROOT = Path(__file__).parents[1]
_PROGRAM = Path(__file__).parent / "programs" / "flow_app.py"
_COUNT = 10_000
_TARGETS = {"chord": 1.5, "fan": 2.0}
_SHAPES = {"chord": "chord of 10,000 beside plain", "fan": "1 → 10,000 → 1 beside plain"}


BEFORE = "ONTHEDOT_BENCH_BEFORE"  # names the checkout of an older tree; ``--before`` sets it


def tree_before() -> Path | None:
    given = os.environ.get(BEFORE)
    return Path(given) if given else None


@dataclass(frozen=True)
class Cost:
    """µs of CPU per task."""

    add: float
    drain: float

    @property
    def both(self) -> float:
        return self.add + self.drain


class Contender:
    """A process that adds and drains tasks of one shape when it is asked to."""

    def __init__(self, shape: str, store: str, number: int, tree: Path) -> None:
        settings = {"BENCH_STORE": store, "BENCH_COUNT": str(number), "PYTHONPATH": str(tree / "src")}
        command = [sys.executable, str(_PROGRAM), shape]
        self._number = number
        self._process = subprocess.Popen(
            command, env={**os.environ, **settings}, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def cost(self) -> Cost:
        with self._process:
            ready, added, drained = (self._reach(stage) for stage in ("ready", "added", "drained"))
        return Cost((added - ready) / self._number * 1e6, (drained - added) / self._number * 1e6)

    def _reach(self, stage: str) -> float:
        """CPU seconds of client and server up to the end of a stage."""
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        name, _, client = self._process.stdout.readline().partition(" ")
        assert name == stage, f"{self._process.args} ended before it was {stage}"
        server = children_cpu(besides=self._process.pid)
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(client) + server


def _compare(new_store: NewStore, scale: float) -> list[Figure]:
    """new_store: returns the URL of an empty one. The order changes, since the first finds other caches."""
    number = max(1100, int(_COUNT * scale))
    trees = {"plain": _ROOT, "chord": _ROOT, "fan": _ROOT}
    before = tree_before()
    if before is not None:
        trees["before"] = before
    order = list(trees)
    random.shuffle(order)
    costs: dict[str, Cost] = {}
    for each in order:
        shape = "plain" if each == "before" else each
        costs[each] = Contender(shape, new_store(), number, trees[each]).cost()
    plain = costs["plain"]
    figures = [
        Figure(costs[shape].both, plain.both, "µs CPU", shown, _TARGETS[shape], least=False)
        for shape, shown in _SHAPES.items()
    ]
    if before is not None:
        old = costs["before"]
        figures += [
            Figure(plain.add, old.add, "µs CPU", "plain: add, beside before", 1.03, least=False),
            Figure(plain.drain, old.drain, "µs CPU", "plain: drain, beside before", 1.03, least=False),
        ]
    return figures


def flows_memory(scale: float) -> list[Figure]:
    with memory_stores() as new_store:
        return _compare(new_store, scale)


def flows_sqlite(scale: float) -> list[Figure]:
    with sqlite_stores() as new_store:
        return _compare(new_store, scale)


def flows_redis(scale: float) -> list[Figure]:
    with redis_stores() as new_store:
        return _compare(new_store, scale)


def flows_postgres(scale: float) -> list[Figure]:
    with postgres_stores() as new_store:
        return _compare(new_store, scale)


MEASURES = [flows_memory, flows_sqlite, flows_redis, flows_postgres]
