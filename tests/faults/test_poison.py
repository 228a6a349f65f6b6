"""A task that kills its worker fails alone: its neighbours are not blamed for it, and run to their end."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults import task_app
from tests.faults.run_log import RunLog
from tests.faults.server_stores import ServerStore
from tests.faults.test_killed_workers import counts, sessions
from tests.faults.worker_processes import wait_for, worker_processes

pytestmark = [pytest.mark.fault, pytest.mark.timeout(120)]
LEASE = 2  # seconds

on_every_store = pytest.mark.parametrize("server_store", ["sqlite", "redis", "postgres"], indirect=True)


@on_every_store
@pytest.mark.parametrize(
    ("how", "status"), [("exit", 9), ("segfault", -signal.SIGSEGV), ("out of memory", -signal.SIGKILL)]
)
def test_task_that_kills_its_worker_fails_alone(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path, how: str, status: int
) -> None:
    url = server_store.url(LEASE)
    ended: list[int | None] = []
    with task_app.app.override(store=url):
        handles = task_app.innocent.delay_many([{"number": n} for n in range(50)])
        bad = task_app.poison.delay(how)
        handles += task_app.innocent.delay_many([{"number": n} for n in range(50, 99)])
        with worker_processes(url, run_log_path, 2) as workers:

            def replace_dead() -> None:
                ended.extend(code for worker in workers.workers if (code := worker.poll()) is not None)
                workers.replace_dead()

            wait_for(lambda: counts().get("succeeded", 0) == 99 and bad.done(), 60, replace_dead)
        assert [handle.result(timeout=1) for handle in handles] == list(range(99))
        assert counts() == {"succeeded": 99, "failed": 1}
        assert "died 3 times" in str(bad.exception(timeout=1))
    begun = [entry.uuid for entry in run_log.entries() if entry.event == "begin"]
    assert begun.count(bad.uuid) == 3
    assert ended[:2] == [status] * 2, "the third end may be noticed after the test"


@on_every_store
def test_crash_is_not_counted_for_neighbours_of_a_suspect(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path
) -> None:
    """The suspect is in its last allowed crash; the others run in the same process when it dies."""
    url = server_store.url(LEASE)
    with task_app.app.override(store=url), worker_processes(url, run_log_path, 1) as workers:
        wait_for(lambda: sessions() == 1, 30)
        neighbours = task_app.slow.delay_many([{"seconds": 2.0}] * 5)
        wait_for(lambda: len(run_log.entries()) == 5, 20)
        suspect = task_app.deadly.delay()
        wait_for(lambda: suspect.done() and counts().get("succeeded") == 5, 30, workers.replace_dead)
        begun = [entry.uuid for entry in run_log.entries() if entry.event == "begin"]
        assert sorted(begun) == sorted([*(handle.uuid for handle in neighbours)] * 2 + [suspect.uuid])
        assert "died 1 times" in str(suspect.exception(timeout=1))
        assert [handle.info().crashes for handle in neighbours] == [0] * 5
