"""A task that blocks the event loop of its worker: heartbeats come from a thread, so the worker keeps its session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import task_app
from tests.faults.run_log import RunLog
from tests.faults.server_stores import ServerStore
from tests.faults.test_killed_workers import sessions
from tests.faults.worker_processes import wait_for, worker_processes

pytestmark = pytest.mark.fault
LEASE = 2.0  # seconds


@pytest.mark.parametrize("server_store", ["redis", "postgres"], indirect=True)
def test_task_that_blocks_the_loop_for_three_leases_runs_once(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path
) -> None:
    """The other process would take it over. The workers have no supervisor, which would send heartbeats as well."""
    url = server_store.url(LEASE)
    with task_app.app.override(store=url), worker_processes(url, run_log_path, 2):
        wait_for(lambda: sessions() == 2, 30)
        handle = task_app.block_loop.delay(3 * LEASE)
        assert handle.result(timeout=30) == "unblocked"
        assert sessions() == 2
        crashes = handle.info().crashes
    assert [entry.event for entry in run_log.entries()] == ["begin", "end"]
    assert crashes == 0
