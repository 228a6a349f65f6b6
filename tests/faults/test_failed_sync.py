"""The kernel reports an error of the nth sync of an SQLite store, injected by strace: no acknowledged add is lost."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults import scaled
from tests.faults.worker_processes import ROOT, environment
from tests.support.services.programs import give_up

pytestmark = [pytest.mark.fault, pytest.mark.timeout(120)]

ADDER = """
import os
from onthedot import App, StoreError

app = App("shop", store=os.environ["STORE"])
work = app.named("work")
for number in range(20):
    try:
        print("added", work.delay(number=number).uuid, flush=True)
    except StoreError as error:
        print("refused", type(error).__name__, flush=True)
app.shutdown()
"""


@pytest.mark.parametrize("nth", range(2, 2 + scaled(3, 40)))
def test_failed_sync_refuses_the_add_that_waits_for_it(tmp_path: Path, nth: int) -> None:
    """The first sync is one of the schema. After a failed one, the store is safe again by a checkpoint."""
    if shutil.which("strace") is None:
        give_up("strace is missing")
    url = f"sqlite:///{tmp_path}/shop.db"
    inject = f"inject=fsync,fdatasync:error=EIO:when={nth}"
    command = ["strace", "-f", "-o", str(tmp_path / "trace"), "-e", "trace=fsync,fdatasync", "-e", inject]
    done = subprocess.run(
        [*command, sys.executable, "-c", ADDER],
        env=environment(url, tmp_path / "run_log"), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if "PTRACE" in done.stderr or "Operation not permitted" in done.stderr:
        give_up(f"strace may not trace here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    added = {text for what, text in lines if what == "added"}
    refused = [text for what, text in lines if what == "refused"]
    injected = [line for line in (tmp_path / "trace").read_text().splitlines() if "INJECTED" in line]
    print(f"\nsync {nth} failed: {len(added)} added, refused {refused}; {injected}")
    assert injected, "no sync failed"  # strace counts per thread, so there may be several
    assert len(added) + len(refused) == 20
    assert len(refused) <= 2 * len(injected), "the store does not recover"
    assert set(refused) <= {"StoreUnavailable"}
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert added <= {uuid for (uuid,) in db.execute("SELECT uuid FROM onthedot_task")}
