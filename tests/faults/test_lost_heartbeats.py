"""Replies to heartbeats are lost while turns work: the worker must not act for a session that others may reap."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import task_app
from tests.faults.proxy import proxy
from tests.faults.run_log import RunEntry, RunLog
from tests.faults.server_stores import ServerStore
from tests.faults.test_killed_workers import counts, sessions
from tests.faults.worker_processes import wait_for, worker_processes

pytestmark = pytest.mark.fault
LEASE = 2.0  # seconds


@pytest.mark.parametrize("server_store", ["redis", "postgres"], indirect=True)
def test_runs_of_a_worker_without_heartbeats_do_not_overlap_with_those_of_another(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path
) -> None:
    tasks = 6
    with (
        proxy(server_store.port) as link,
        task_app.app.override(store=server_store.url(LEASE)),
        worker_processes(server_store.url(LEASE, link.port), run_log_path, 1),
    ):
        wait_for(lambda: sessions() == 1, 30)
        task_app.tracked.delay_many([{"seconds": 3 * LEASE}] * tasks)
        wait_for(lambda: len(run_log.entries()) == tasks, 30)
        link.drop_replies_to(server_store.heartbeat)
        wait_for(lambda: len(run_log.entries()) >= 2 * tasks, 30)  # it has ended its runs
        with worker_processes(server_store.url(LEASE), run_log_path, 1):
            wait_for(lambda: counts() == {"succeeded": tasks}, 30)
        link.restore()
        wait_for(lambda: sessions() == 1, 20)
    assert link.counts["unanswered"] > 0
    assert overlaps(run_log.entries()) == []
    assert counts_of_begins(run_log.entries()) == {2}


def overlaps(entries: list[RunEntry]) -> list[tuple[RunEntry, RunEntry]]:
    """Pairs of runs of the same task, of which the second began before the first had ended."""
    ends = {(entry.uuid, entry.fence): entry.at for entry in entries if entry.event == "end"}
    begins = sorted((entry for entry in entries if entry.event == "begin"), key=lambda entry: entry.at)
    return [
        (first, second)
        for index, first in enumerate(begins)
        for second in begins[index + 1 :]
        if second.uuid == first.uuid and second.at < ends.get((first.uuid, first.fence), second.at + 1)
    ]


def counts_of_begins(entries: list[RunEntry]) -> set[int]:
    begun = [entry.uuid for entry in entries if entry.event == "begin"]
    return {begun.count(uuid) for uuid in begun}
