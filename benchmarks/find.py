"""Lists of `find` at a million tasks, and the drain of plain tasks: ``./dev bench find --before DIR``.

DIR is a checkout of an older tree. Without it the lists are compared with 50 ms each.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from functools import cache
from pathlib import Path

from benchmarks.flow_costs import Contender, tree_before
from benchmarks.flow_stores import STORES
from benchmarks.report import Figure

_ROOT = Path(__file__).parents[1]
_PROGRAM = Path(__file__).parent / "programs" / "find_app.py"
_COUNT = 1_000_000
_BOUND = 50.0  # ms of a list, or the time of the older tree
_DRAINED = 20_000


@cache  # filling takes a minute: once for all rounds
def _lists(kind: str, count: int) -> list[Figure]:
    before = tree_before()
    ours = _run(kind, count, _ROOT)
    other = dict.fromkeys(ours, _BOUND) if before is None else _run(kind, count, before)
    return [
        Figure(ms, other[name], "ms", f"{kind}: {name}", max(1.0, _BOUND / other[name]), least=False)
        for name, ms in ours.items()
    ]


def _run(kind: str, count: int, tree: Path) -> dict[str, float]:
    with STORES[kind]() as new_store:
        settings = {"BENCH_STORE": new_store(), "BENCH_COUNT": str(count), "PYTHONPATH": str(tree / "src")}
        done = subprocess.run(
            [sys.executable, str(_PROGRAM)],
            env={**os.environ, **settings},
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            check=True,
        )
    lists: dict[str, float] = json.loads(done.stdout)["lists"]
    return lists


def lists_sqlite(scale: float) -> list[Figure]:
    return _lists("SQLite", int(_COUNT * scale))


def lists_redis(scale: float) -> list[Figure]:
    return _lists("Redis", int(_COUNT * scale))


def lists_postgres(scale: float) -> list[Figure]:
    return _lists("Postgres", int(_COUNT * scale))


def drain_beside_before(scale: float) -> list[Figure]:
    """CPU time of client and server, which does not depend on the neighbours of this machine as much as the speed."""
    before = tree_before()
    if before is None:
        return []
    figures: list[Figure] = []
    for kind, stores in STORES.items():
        costs: dict[Path, float] = {}
        order = [_ROOT, before]
        random.shuffle(order)
        with stores() as new_store:
            for tree in order:
                costs[tree] = Contender("plain", new_store(), max(1100, int(_DRAINED * scale)), tree).cost().drain
        target = 1.05 if kind == "memory" else 1.02
        figures.append(
            Figure(costs[_ROOT], costs[before], "µs CPU", f"{kind}: drain beside before", target, least=False)
        )
    return figures


MEASURES = [lists_sqlite, lists_redis, lists_postgres, drain_beside_before]
