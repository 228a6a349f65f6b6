"""Many processes on one file add, run and cancel tasks and checkpoint at the same time."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults import scaled, task_app
from tests.faults.run_log import RunLog, max_concurrent
from tests.faults.test_killed_workers import counts
from tests.faults.worker_processes import ROOT, wait_for, worker_processes
from tests.support.process_guard import start_guarded

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]

CLIENT = """
import random, sys, time
from tests.faults import task_app
rng, until = random.Random(int(sys.argv[1])), time.monotonic() + float(sys.argv[2])
added = 0
while time.monotonic() < until:
    made = task_app.work.delay_many([{"number": n} for n in range(rng.randrange(1, 20))])
    made += [task_app.limited.delay(n) for n in range(3)]
    made += [task_app.work.options(after=rng.random()).delay(n) for n in range(3)]
    added += len(made)
    for handle in rng.sample(made, 2):
        handle.cancel()
    time.sleep(rng.random() / 10)
print(added)
"""


def test_eight_processes_on_one_file_lose_no_task_and_keep_the_wal_small(
    store: str, run_log: RunLog, run_log_path: Path, tmp_path: Path
) -> None:
    seconds = scaled(8, 120)
    file = tmp_path / "shop.db"
    wal = tmp_path / "shop.db-wal"
    largest = 0
    with worker_processes(store, run_log_path, 4) as workers:
        environment = workers.environment
        clients = [
            start_guarded(
                [sys.executable, "-c", CLIENT, str(seed), str(seconds)],
                env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True,
            )
            for seed in range(4)
        ]  # fmt: skip
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            largest = max(largest, wal.stat().st_size if wal.exists() else 0)
            time.sleep(0.1)
        added = sum(int(client.communicate(timeout=60)[0]) for client in clients)
        assert [client.returncode for client in clients] == [0, 0, 0, 0]
        work = added * task_app.LONGEST / 2 / (4 * task_app.SLOTS)  # seconds
        wait_for(lambda: set(counts()) <= {"succeeded", "cancelled"}, 120 + work)
        ended = counts()
    print(f"\n{added} added in {seconds} s, {ended}; the WAL was at most {largest / 1e6:.1f} MB")
    assert sum(ended.values()) == added
    assert largest < 16_000_000
    entries = run_log.entries()
    limited = {info.uuid for info in _all("limited")}
    completed = _ended(entries)
    assert max_concurrent([e for e in entries if (e.uuid, e.fence) in completed], limited) <= 12
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def _ended(entries: list) -> set[tuple[str, int]]:  # type: ignore[type-arg]
    """Runs with an end: a cancelled run logs none."""
    return {(entry.uuid, entry.fence) for entry in entries if entry.event == "end"}


def _all(source: str) -> list:  # type: ignore[type-arg]
    found = []
    cursor = None
    while True:
        page = task_app.app.sync.find(source=source, limit=1000, cursor=cursor)
        found += page
        cursor = page.cursor
        if cursor is None:
            return found
