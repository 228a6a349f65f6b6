"""`onthedot worker` as it comes, compared with `app.running()` without a log and with peers by their own commands.

All run in one process each, on the same server or disk. A program counts from its first task to its last.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks import postgres, redis
from benchmarks.report import Figure

_ROOT = Path(__file__).parents[1]
_BIN = Path(sys.executable).parent
_APP = "benchmarks.programs.onthedot_app"
_HUEY = "benchmarks.programs.huey_app"
_COMMANDS: dict[str, list[str]] = {
    "worker": [sys.executable, "-m", "onthedot", "worker", f"{_APP}:app"],
    "worker, uvloop": [sys.executable, "-m", "onthedot", "worker", f"{_APP}:app"],
    "app.running()": [sys.executable, "-m", _APP, "running"],
    "Huey": [str(_BIN / "huey_consumer"), f"{_HUEY}.huey"],
    "taskiq": [str(_BIN / "taskiq"), "worker", "benchmarks.programs.taskiq_app:broker", "--workers", "1"],
    "PgQueuer": [str(_BIN / "pgq"), "run", "benchmarks.programs.pgqueuer_app:main", "--batch-size", "100"],
}
_PROGRAMS = {"Huey": _HUEY, "taskiq": "benchmarks.programs.taskiq_app", "PgQueuer": "benchmarks.programs.pgqueuer_app"}
_PATIENCE = 300  # seconds


def _rate(contender: str, store: str, count: int) -> float:
    """Tasks per second: all are added first, then run by the contender's command."""
    with tempfile.TemporaryDirectory(prefix="onthedot-bench-") as name:
        folder = Path(name)
        result = folder / "result"
        settings = {"BENCH_STORE": store, "BENCH_COUNT": str(count), "BENCH_RESULT": str(result)}
        environment = {**os.environ, **settings, "PYTHONPATH": str(_ROOT)}
        if contender == "worker":  # the extra `fast` is not what comes by default, but a peer has brought it here
            (folder / "uvloop.py").write_text("raise ImportError('hidden')")
            environment["PYTHONPATH"] += f"{os.pathsep}{folder}"
        program = _PROGRAMS.get(contender, _APP)
        subprocess.run([sys.executable, "-m", program], env=environment, cwd=_ROOT, check=True)
        with (folder / "log").open("wb") as log:
            worker = subprocess.Popen(_COMMANDS[contender], env=environment, cwd=_ROOT, stdout=log, stderr=log)
        try:
            _wait(result, worker, folder / "log")
        finally:
            worker.terminate()
            worker.wait(60)
        return float(result.read_text())


def _wait(result: Path, worker: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not result.exists():
        if time.monotonic() > deadline or (worker.poll() is not None and not result.exists()):
            raise RuntimeError(f"no result: {log.read_text()[-2000:]}")
        time.sleep(0.05)


def _compare(
    stores: Mapping[str, str], counts: Mapping[str, int], scale: float, targets: dict[str, float]
) -> list[Figure]:
    """stores, counts: by contender. The order changes, since the first may find an emptier server."""
    order = list(counts)
    random.shuffle(order)
    rates = {each: _rate(each, stores[each], max(200, int(counts[each] * scale))) for each in order}
    figures = [Figure(rates["worker"], rates[each], "tasks/s", each, targets[each], least=True) for each in targets]
    with_uvloop = rates["worker, uvloop"]
    return [*figures, Figure(with_uvloop, rates["worker"], "tasks/s", "with uvloop beside without", 0.9, least=True)]


def _ours(count: int) -> dict[str, int]:
    return dict.fromkeys(("worker", "worker, uvloop", "app.running()"), count)


def worker_redis(scale: float) -> list[Figure]:
    counts = _ours(60_000) | {"Huey": 4000, "taskiq": 4000}
    with redis.server() as url:
        stores = dict.fromkeys(counts, url)
        return _compare(stores, counts, scale, {"app.running()": 0.85, "Huey": 10, "taskiq": 10})


def worker_sqlite(scale: float) -> list[Figure]:
    counts = _ours(60_000) | {"Huey": 2000}
    with tempfile.TemporaryDirectory(prefix="onthedot-bench-") as folder:
        stores = {each: f"sqlite:///{folder}/{number}.db" for number, each in enumerate(counts)}
        return _compare(stores, counts, scale, {"app.running()": 0.85, "Huey": 14})


def worker_postgres(scale: float) -> list[Figure]:
    counts = _ours(30_000) | {"PgQueuer": 20_000}
    with postgres.server() as url:
        stores = dict.fromkeys(counts, url)
        return _compare(stores, counts, scale, {"app.running()": 0.85, "PgQueuer": 2})


MEASURES = [worker_redis, worker_sqlite, worker_postgres]
