"""A foreign program locks the file: workers wait, adds raise StoreBusy in time, and nothing is lost."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onthedot import StoreBusy
from tests.faults import task_app
from tests.faults.run_log import RunLog
from tests.faults.test_killed_workers import sessions
from tests.faults.worker_processes import wait_for, worker_processes

pytestmark = [pytest.mark.fault, pytest.mark.timeout(120)]

HELD = 8.0


@contextmanager
def exclusively(path: Path, seconds: float) -> Iterator[None]:
    """A foreign program that locks the whole file for some seconds."""
    taken = threading.Event()
    released = threading.Event()

    def hold() -> None:
        connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        connection.execute("PRAGMA locking_mode = NORMAL")
        connection.execute("BEGIN EXCLUSIVE")
        taken.set()
        time.sleep(seconds)
        connection.execute("COMMIT")
        connection.close()
        released.set()

    threading.Thread(target=hold, daemon=True).start()
    assert taken.wait(20)
    yield
    assert released.wait(seconds + 20)


@pytest.mark.timed
def test_file_locked_for_eight_seconds_delays_work_and_refuses_adds(
    store: str, run_log: RunLog, run_log_path: Path, tmp_path: Path
) -> None:
    with worker_processes(store, run_log_path, 2) as workers:
        wait_for(lambda: sessions() == 2, 20)
        before = task_app.slow.delay(2.0)  # runs, and ends while the file is locked
        wait_for(lambda: len(run_log.entries()) == 1, 20)
        lines = len(workers.log.read_text().splitlines())
        began = time.monotonic()
        with exclusively(tmp_path / "shop.db", HELD):
            with pytest.raises(StoreBusy) as busy:
                task_app.work.delay(1)
            assert time.monotonic() - began < 5.5
            assert "shop.db" in str(busy.value)
            wait_for(lambda: time.monotonic() - began >= HELD, HELD + 1)
        assert before.result(timeout=1) == "slow"
        assert task_app.work.delay(2).result(timeout=1) == 2
        logged = workers.log.read_text().splitlines()[lines:]
    assert [entry.event for entry in run_log.entries() if entry.uuid == before.uuid] == ["begin", "end"], (
        "the lease was lost"
    )
    assert len(logged) <= 8, logged
    assert not [entry for entry in run_log.entries() if entry.uuid != before.uuid][2:], "the refused task ran"
