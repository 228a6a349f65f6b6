"""Many processes on one file that add, work, cancel and checkpoint at once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults import scaled, shop
from tests.faults.fleet import ROOT, fleet, wait_for
from tests.faults.ledger import Ledger, most_at_once
from tests.faults.test_kill import counts

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]

CLIENT = """
import random, sys, time
from tests.faults import shop
chance, until = random.Random(int(sys.argv[1])), time.monotonic() + float(sys.argv[2])
added = 0
while time.monotonic() < until:
    made = shop.work.delay_many([{"number": n} for n in range(chance.randrange(1, 20))])
    made += [shop.limited.delay(n) for n in range(3)]
    made += [shop.work.options(after=chance.random()).delay(n) for n in range(3)]
    added += len(made)
    for handle in chance.sample(made, 2):
        handle.cancel()
    time.sleep(chance.random() / 10)
print(added)
"""


def test_eight_processes_on_one_file(store: str, ledger: Ledger, ledger_path: Path, tmp_path: Path) -> None:
    seconds, file = scaled(8, 120), tmp_path / "shop.db"
    wal = tmp_path / "shop.db-wal"
    largest = 0
    with fleet(store, ledger_path, 4) as workers:
        environment = workers._environment
        clients = [
            subprocess.Popen(
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
        work = added * shop.LONGEST / 2 / (4 * shop.SLOTS)  # seconds; how much was added is up to the machine
        wait_for(lambda: set(counts()) <= {"succeeded", "cancelled"}, 120 + work)
        ended = counts()
    print(f"\n{added} added in {seconds} s, {ended}; the WAL was at most {largest / 1e6:.1f} MB")
    assert sum(ended.values()) == added
    assert largest < 16_000_000
    entries = ledger.entries()
    limited = {info.uuid for info in _all("limited")}
    whole = _ended(entries)
    assert most_at_once([e for e in entries if (e.uuid, e.fence) in whole], limited) <= 12
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def _ended(entries: list) -> set[tuple[str, int]]:  # type: ignore[type-arg]
    """Runs that came to their end: a cancelled one writes no end."""
    return {(entry.uuid, entry.fence) for entry in entries if entry.what == "end"}


def _all(source: str) -> list:  # type: ignore[type-arg]
    found, cursor = [], None
    while True:
        page = shop.app.sync.find(source=source, limit=1000, cursor=cursor)
        found += page
        cursor = page.cursor
        if cursor is None:
            return found
