"""100,000 failed tasks in seven groups: the first answer, the time until all are counted, and the drain meanwhile."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cpu_times import cpu_of
from benchmarks.flow_stores import STORES
from benchmarks.report import Figure
from onthedot.clock.system import SystemClock
from onthedot.stores import connect
from tests.page.conftest import TOKEN, Shop
from tests.support.waits import SOON
from tests.unit.operations.error_corpus import errors
from tests.unit.web.test_failures import fail

_ROOT = Path(__file__).parents[1]
_APP = [sys.executable, "-m", "benchmarks.programs.onthedot_app"]
_FAILED = 100_000
_DRAINED = 20_000
_ROUNDS = 5
_ANSWER = 200.0  # ms
_EXACT = 30.0  # seconds
_LEAST = 0.98
_BETWEEN_ANSWERS = 0.5  # seconds; the page is notified of changes, so this costs more than a tab
_PATIENCE = 300.0
_SEED = 20261119
_LIBRARY_FRAMES = "".join(
    f'  File "/srv/venv/lib/python3.11/site-packages/driver/part{number}.py", line {17 * number}, in call_{number}\n'
    f"    return await self._next.call_{number}(request, timeout=timeout)\n"
    for number in range(10)
)
_TRACEBACK = f"""Traceback (most recent call last):
  File "/srv/shop/orders.py", line 41, in load
    rows = await fetch(order)
{_LIBRARY_FRAMES}"""


class Drained(NamedTuple):
    """rate: tasks per second; worker, page: µs of CPU time per task."""

    rate: float
    worker: float
    page: float


async def _fill(url: str, count: int) -> Counter[str]:
    """Return the number of failed tasks of each cause."""
    found = errors(count, _SEED)
    store = connect(url, SystemClock(), "bench")
    await store.open()
    try:
        await fail(
            store,
            [replace(error, traceback=f"{_TRACEBACK}{error.type}: {error.message}") for _, error in found],
        )
    finally:
        await store.close()
    return Counter(cause for cause, _ in found)


def _ask(shop: Shop) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", shop.port, timeout=SOON)
    connection.request("GET", "/api/v1/failures", headers={"Authorization": f"Bearer {TOKEN}"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def _is_exact(answer: Mapping[str, Any], causes: Counter[str]) -> bool:
    counts = sorted(row["count"] for row in answer["items"])
    return answer["counted_to"] is None and counts == sorted(causes.values())


def _count(shop: Shop, causes: Counter[str]) -> tuple[float, float, float]:
    """The first answer in ms; seconds until the counts are exact; CPU time of the web process until then, in s."""
    with shop.page() as pid:
        cpu = cpu_of(pid)
        began = time.perf_counter()
        answer = _ask(shop)
        first = (time.perf_counter() - began) * 1000
        while not _is_exact(answer, causes):
            assert time.perf_counter() - began < _PATIENCE, answer
            time.sleep(_BETWEEN_ANSWERS)
            answer = _ask(shop)
        return first, time.perf_counter() - began, cpu_of(pid) - cpu


def _drain(shop: Shop, folder: Path, count: int, *, is_counting: bool) -> Drained:
    """By a worker that starts while the web process counts, or while it is idle."""
    result = folder / "result"
    result.unlink(missing_ok=True)
    settings = {"BENCH_STORE": shop.store, "BENCH_COUNT": str(count), "BENCH_RESULT": str(result)}
    environment = {**os.environ, **settings}
    subprocess.run(_APP, cwd=_ROOT, env=environment, check=True, timeout=_PATIENCE)
    with shop.page() as pid:
        if is_counting:
            _ask(shop)
        page = cpu_of(pid)
        worker = _cpu_of_run([*_APP, "running"], environment)
        page = cpu_of(pid) - page
        if is_counting and count == _DRAINED:
            assert _ask(shop)["counted_to"] is not None, "the count has ended before the drain"
    return Drained(float(result.read_text()), worker / count * 1e6, page / count * 1e6)


def _cpu_of_run(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Seconds of CPU time of a process and of all that it waited for."""
    process = subprocess.Popen(command, cwd=_ROOT, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


def _drains(shop: Shop, folder: Path, count: int, rounds: int) -> dict[bool, list[Drained]]:
    """Interleaved rounds: the order changes in each."""
    found: dict[bool, list[Drained]] = {False: [], True: []}
    for _ in range(rounds):
        for is_counting in random.sample((False, True), 2):
            found[is_counting].append(_drain(shop, folder, count, is_counting=is_counting))
    return found


def _failures(kind: str, scale: float) -> list[Figure]:
    with STORES[kind]() as new_store, tempfile.TemporaryDirectory(prefix="onthedot-bench-") as name:
        store = new_store()
        causes = asyncio.run(_fill(store, int(_FAILED * scale)))
        shop = Shop(Path(name), name="bench", store=store)
        first, exact, cpu = _count(shop, causes)
        found = _drains(shop, Path(name), int(_DRAINED * scale), _ROUNDS if scale == 1 else 1)
    for is_counting, drains in found.items():
        rates = " ".join(f"{each.rate:,.0f} ({each.worker:.0f}+{each.page:.0f} µs)" for each in drains)
        print(f"{kind}, {'counting' if is_counting else 'idle'}: {rates}", file=sys.stderr)
    rates = {each: statistics.median(drain.rate for drain in found[each]) for each in found}
    worker = {each: statistics.median(drain.worker for drain in found[each]) for each in found}
    title = f"{kind}, {_FAILED:,} failed tasks"
    return [
        Figure(first, _ANSWER, "ms", f"{title}: first answer of `GET /failures`", 1, least=False),
        Figure(exact, _EXACT, "s", f"{title}: until all groups and counts are right", 1, least=False),
        Figure(cpu, 1, "s", f"{title}: CPU time of the web process until then", None, least=False),
        Figure(
            rates[True], rates[False], "tasks/s", f"{title}: drain while they are counted; idle", _LEAST, least=True
        ),
        Figure(
            worker[True],
            worker[False],
            "µs per task",
            f"{title}: CPU time of the worker meanwhile; idle",
            None,
            least=False,
        ),
    ]


def failures_sqlite(scale: float) -> list[Figure]:
    return _failures("SQLite", scale)


def failures_redis(scale: float) -> list[Figure]:
    return _failures("Redis", scale)


def failures_postgres(scale: float) -> list[Figure]:
    return _failures("Postgres", scale)
