"""Another program removes the lock files of live workers on one SQLite file, while they work."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import scaled, task_app
from tests.faults.run_log import RunLog
from tests.faults.test_killed_workers import counts, done, sessions
from tests.faults.worker_processes import wait_for, wait_for_progress, worker_processes
from tests.support.app_access import call_store
from tests.support.fault_report import report_faults

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]

TASKS = scaled(300, 5_000)
REMOVALS = scaled(1, 10)


def remove_lock_files(folder: Path) -> None:
    for path in folder.glob("*.lock"):
        path.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Workers may write files into it meanwhile."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


def names() -> set[str]:
    return set(call_store(task_app.app, lambda store: store.sessions()))


@pytest.mark.parametrize("remove", [remove_lock_files, remove_folder])
def test_removed_lock_files_replace_at_most_one_session(
    store: str, run_log: RunLog, run_log_path: Path, tmp_path: Path, remove: Callable[[Path], object]
) -> None:
    with worker_processes(store, run_log_path, 2):
        wait_for(lambda: sessions() == 2, 60)
        before = names()
        uuids = {handle.uuid for handle in task_app.work.delay_many([{"number": n} for n in range(TASKS)])}
        for number in range(1, REMOVALS + 1):
            wait_for(lambda number=number: done() >= number * TASKS // (2 * REMOVALS), 60)
            remove(tmp_path / "shop.db-sessions")
        wait_for_progress(done, TASKS)
        replaced = before - names()
    print(f"\n{len(replaced)} of {len(before)} sessions replaced")
    assert counts() == {"succeeded": TASKS}
    assert len(replaced) <= 1
    report = report_faults(f"removed lock files, {remove.__name__}", task_app.app, uuids, run_log.entries(), [])
    report.check(most_extra_runs=task_app.SLOTS)
