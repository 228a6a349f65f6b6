"""Somebody else holds the file: work waits, adds say so in time, and nothing is lost."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onthedot import StoreBusy
from tests.faults import shop
from tests.faults.fleet import fleet, wait_for
from tests.faults.ledger import Ledger
from tests.faults.test_kill import sessions

pytestmark = [pytest.mark.fault, pytest.mark.timeout(120)]

HELD = 8.0


@contextmanager
def exclusively(path: Path, seconds: float) -> Iterator[None]:
    """A foreign program that takes the whole file and keeps it for a while."""
    taken, released = threading.Event(), threading.Event()

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


def test_a_file_locked_for_eight_seconds(store: str, ledger: Ledger, ledger_path: Path, tmp_path: Path) -> None:
    with fleet(store, ledger_path, 2) as workers:
        wait_for(lambda: sessions() == 2, 20)
        before = shop.slow.delay(2.0)  # runs, and ends while the file is locked
        wait_for(lambda: len(ledger.entries()) == 1, 20)
        lines = len(workers.log.read_text().splitlines())
        began = time.monotonic()
        with exclusively(tmp_path / "shop.db", HELD):
            with pytest.raises(StoreBusy) as busy:
                shop.work.delay(1)
            assert time.monotonic() - began < 5.5
            assert "shop.db" in str(busy.value)
            wait_for(lambda: time.monotonic() - began >= HELD, HELD + 1)
        assert before.result(timeout=1) == "slow"
        assert shop.work.delay(2).result(timeout=1) == 2
        said = workers.log.read_text().splitlines()[lines:]
    assert [entry.what for entry in ledger.entries() if entry.uuid == before.uuid] == ["begin", "end"], "no lost lease"
    assert len(said) <= 8, said
    assert not [entry for entry in ledger.entries() if entry.uuid != before.uuid][2:], "the refused one never ran"
