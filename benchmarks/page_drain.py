"""The drain of plain tasks beside a page with 0, 1 and 20 open tabs, and what the tabs cost the Redis server."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.flow_stores import STORES, NewStore
from benchmarks.report import Figure
from onthedot.clock.system import SystemClock
from onthedot.operations.change_feed import RESOLVED
from onthedot.stores import connect
from tests.page.conftest import TOKEN, VIEWER_TOKEN, Shop

_ROOT = Path(__file__).parents[1]
_APP = [sys.executable, "-m", "benchmarks.programs.onthedot_app"]
_COUNT = 40_000
_ROUNDS = 5
TABS = (0, 1, 20)
_LEAST = 0.98
_PER_TRANSITION = 0.05  # µs of the Redis server
_TRANSITIONS = 3  # of a task
_SENT = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_xrange", "cmdstat_hgetall")  # others run inside scripts
_READ = "cmdstat_xrange"  # one per read of the change feed, and nothing else
_ENTRIES = 10_000
_PATIENCE = 120.0  # seconds


class ServerTime(NamedTuple):
    """The work of a Redis server. used: µs of the commands that clients sent; reads: of the change feed."""

    used: float
    reads: int


class Drained(NamedTuple):
    rate: float  # tasks per second
    server: ServerTime


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
        if store.startswith("memory:"):
            _drain_memory(environment, tabs)
            return Drained(float(result.read_text()), ServerTime(0, 0))
        subprocess.run(_APP, cwd=_ROOT, env=environment, check=True, timeout=_PATIENCE)
        shop = Shop(Path(folder), name="bench", store=store)
        with shop.page(), _tabs(shop.port, tabs):
            before = _server_time(store)
            subprocess.run([*_APP, "running"], cwd=_ROOT, env=environment, check=True, timeout=_PATIENCE)
            after = _server_time(store)
        return Drained(float(result.read_text()), ServerTime(after.used - before.used, after.reads - before.reads))


def _drain_memory(environment: Mapping[str, str], tabs: int) -> None:
    tokens = {"ONTHEDOT_WEB_TOKEN": TOKEN, "ONTHEDOT_WEB_VIEWER_TOKEN": VIEWER_TOKEN}
    command = [sys.executable, "-m", "benchmarks.programs.memory_page"]
    with subprocess.Popen(
        command, cwd=_ROOT, env={**environment, **tokens}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        with _tabs(int(process.stdout.readline()), tabs):
            process.communicate("\n", timeout=_PATIENCE)
    assert process.returncode == 0


def _server_time(store: str) -> ServerTime:
    """So far. The time of a script has that of the commands in it. Zero: another store."""
    if not store.startswith("redis:"):
        return ServerTime(0, 0)
    import redis

    with redis.Redis.from_url(store) as client:
        found = client.info("commandstats")
    sent = [found[name] for name in _SENT if name in found]
    reads = found.get(_READ, {"calls": 0})["calls"]
    return ServerTime(sum(float(each["usec"]) for each in sent), int(reads))


async def _cost_of_resolving(url: str) -> float:
    """µs of the server for each transition whose uuid is looked up, after a drain."""
    store = connect(url, SystemClock(), "bench")
    await store.open()
    try:
        before = _server_time(url)
        counted = await store.changes("0", _ENTRIES)
        between = _server_time(url)
        resolved = await store.changes("0", _ENTRIES, _COUNT * _TRANSITIONS)
        after = _server_time(url)
    finally:
        await store.close()
    assert len(counted.entries) == len(resolved.entries)
    number = sum(len(entry.transitions) for entry in resolved.entries)
    return max(0.0, (after.used - between.used) - (between.used - before.used)) / number


def server_figure(found: Mapping[int, Sequence[Drained]], count: int, resolving: float) -> Figure:
    """The cost of 20 tabs per transition, beside the bound: counts of each, and 100 uuids per read. resolving: µs."""
    transitions = count * _TRANSITIONS
    used = {tabs: statistics.median(each.server.used for each in found[tabs]) for tabs in TABS}
    reads = statistics.median(each.server.reads for each in found[TABS[-1]])
    allowed = _PER_TRANSITION + reads * RESOLVED * resolving / transitions
    cost = max(0.0, used[TABS[-1]] - used[0]) / transitions
    name = f"Redis: server time of {TABS[-1]} open tabs per transition"
    return Figure(cost, round(allowed, 3), "µs", name, 1, least=False)


def _rounds(new_store: NewStore, count: int, rounds: int) -> dict[int, list[Drained]]:
    found: dict[int, list[Drained]] = {tabs: [] for tabs in TABS}
    for _ in range(rounds):
        for tabs in random.sample(TABS, len(TABS)):
            found[tabs].append(_drain(new_store(), tabs, count))
    return found


def _drain_figures(kind: str, scale: float) -> list[Figure]:
    """Medians of interleaved rounds: the order changes in each."""
    count = int(_COUNT * scale)
    with STORES[kind]() as new_store:
        found = _rounds(new_store, count, _ROUNDS if scale == 1 else 1)
        resolving = 0.0
        if kind == "Redis":
            url = new_store()
            _drain(url, 0, count)
            resolving = asyncio.run(_cost_of_resolving(url))
    rates = {tabs: statistics.median(each.rate for each in found[tabs]) for tabs in TABS}
    figures = [
        Figure(rates[tabs], rates[0], "tasks/s", f"{kind}: drain beside {tabs} open tabs; without", _LEAST, least=True)
        for tabs in TABS[1:]
    ]
    return [*figures, server_figure(found, count, resolving)] if kind == "Redis" else figures


def drain_memory(scale: float) -> list[Figure]:
    return _drain_figures("memory", scale)


def drain_sqlite(scale: float) -> list[Figure]:
    return _drain_figures("SQLite", scale)


def drain_redis(scale: float) -> list[Figure]:
    return _drain_figures("Redis", scale)


def drain_postgres(scale: float) -> list[Figure]:
    return _drain_figures("Postgres", scale)
