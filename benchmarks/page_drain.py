"""The drain of plain tasks beside a page with 0, 1 and 20 open tabs, and what the tabs cost the Redis server."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.flow_stores import STORES, NewStore
from benchmarks.report import Figure
from tests.page.conftest import TOKEN, VIEWER_TOKEN, Shop

_ROOT = Path(__file__).parents[1]
_APP = [sys.executable, "-m", "benchmarks.programs.onthedot_app"]
_COUNT = 40_000
_ROUNDS = 5
_TABS = (0, 1, 20)
_LEAST = 0.98
_PER_TRANSITION = 0.05  # µs of the Redis server
_TRANSITIONS = 3  # of a task
_PATIENCE = 120.0  # seconds


class Drained(NamedTuple):
    rate: float  # tasks per second
    server: float  # µs of the Redis server in all


@contextmanager
def _tabs(port: int, number: int) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.programs.tabs", str(port), str(number)]
    command += [TOKEN, VIEWER_TOKEN]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield
        read, _ = process.communicate()
    assert process.returncode == 0
    assert (int(read) > 0) == (number > 0), "the tabs have got nothing"


def _drain(store: str, tabs: int, count: int) -> Drained:
    with tempfile.TemporaryDirectory(prefix="onthedot-bench-") as folder:
        result = Path(folder, "result")
        settings = {"BENCH_STORE": store, "BENCH_COUNT": str(count), "BENCH_RESULT": str(result)}
        environment = {**os.environ, **settings}
        subprocess.run(_APP, cwd=_ROOT, env=environment, check=True, timeout=_PATIENCE)
        shop = Shop(Path(folder), name="bench", store=store)
        with shop.page(), _tabs(shop.port, tabs):
            before = _redis_time(store)
            subprocess.run([*_APP, "running"], cwd=_ROOT, env=environment, check=True, timeout=_PATIENCE)
            server = _redis_time(store) - before
        return Drained(float(result.read_text()), server)


def _redis_time(store: str) -> float:
    """µs of all commands so far. 0: another store."""
    if not store.startswith("redis:"):
        return 0.0
    import redis

    with redis.Redis.from_url(store) as client:
        return sum(float(each["usec"]) for each in client.info("commandstats").values())


def _rounds(new_store: NewStore, count: int, rounds: int) -> dict[int, list[Drained]]:
    found: dict[int, list[Drained]] = {tabs: [] for tabs in _TABS}
    for _ in range(rounds):
        for tabs in random.sample(_TABS, len(_TABS)):
            found[tabs].append(_drain(new_store(), tabs, count))
    return found


def page_drain(scale: float) -> list[Figure]:
    """Medians of interleaved rounds: the order changes in each."""
    figures: list[Figure] = []
    count = int(_COUNT * scale)
    for kind in ("SQLite", "Redis", "Postgres"):
        with STORES[kind]() as new_store:
            found = _rounds(new_store, count, _ROUNDS if scale == 1 else 1)
        rates = {tabs: statistics.median(each.rate for each in found[tabs]) for tabs in _TABS}
        figures += [
            Figure(
                rates[tabs], rates[0], "tasks/s", f"{kind}: drain beside {tabs} open tabs; without", _LEAST, least=True
            )
            for tabs in _TABS[1:]
        ]
        if kind == "Redis":
            server = {tabs: statistics.median(each.server for each in found[tabs]) for tabs in _TABS}
            cost = max(0.0, server[20] - server[0]) / (count * _TRANSITIONS)
            name = "Redis: server time of 20 open tabs per transition"
            figures.append(Figure(cost, _PER_TRANSITION, "µs", name, 1, least=False))
    return figures
