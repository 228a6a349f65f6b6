"""Replies that are lost on their way: the caller repeats its call, and the store gives the same answer again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import task_app
from tests.faults.proxy import proxy
from tests.faults.run_log import RunLog
from tests.faults.server_stores import ServerStore
from tests.faults.test_killed_workers import counts, sessions
from tests.faults.worker_processes import wait_for, worker_processes

pytestmark = pytest.mark.fault
LEASE = 30  # seconds; longer than the test: no task is taken over


@pytest.mark.timed
@pytest.mark.parametrize("until_the_worker_gives_up", [False, True])
@pytest.mark.parametrize("server_store", ["redis", "postgres"], indirect=True)
def test_tasks_of_a_claim_whose_reply_is_lost_run_within_ten_seconds(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path, until_the_worker_gives_up: bool
) -> None:
    """The store repeats the call on another connection; when it has given up, the worker repeats the claim request.

    The worker is busy, so that no task comes as a hand-off.
    """
    tasks = 60
    with (
        proxy(server_store.port) as link,
        task_app.app.override(store=server_store.url(LEASE)),
        worker_processes(server_store.url(LEASE, link.port), run_log_path, 1) as workers,
    ):
        wait_for(lambda: sessions() == 1, 30)
        task_app.bulky.delay_many([{"text": "x" * 5_000}] * tasks)
        wait_for(lambda: bool(run_log.entries()), 30)
        link.swallow_reply(least=5_000, then_block=until_the_worker_gives_up)
        wait_for(lambda: link.counts["swallow"] == 1, 30)
        if until_the_worker_gives_up:
            wait_for(lambda: "trying again" in workers.log.read_text(), 15)
            link.restore()
        wait_for(lambda: counts() == {"succeeded": tasks}, 10)
    begun = [entry.uuid for entry in run_log.entries() if entry.event == "begin"]
    assert len(begun) == len(set(begun)) == tasks


@pytest.mark.parametrize("server_store", ["redis", "postgres"], indirect=True)
def test_outcomes_of_a_turn_that_was_not_delivered_are_settled_later(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path
) -> None:
    """The worker gives the turn up and sends its outcomes with the next one."""
    with (
        proxy(server_store.port) as link,
        task_app.app.override(store=server_store.url(LEASE)),
        worker_processes(server_store.url(LEASE, link.port), run_log_path, 1) as workers,
    ):
        wait_for(lambda: sessions() == 1, 30)
        handles = task_app.slow.delay_many([{"seconds": 1}] * task_app.SLOTS)
        wait_for(lambda: len(run_log.entries()) == task_app.SLOTS, 30)
        link.block("to the server")
        wait_for(lambda: "the loop failed, trying again" in workers.log.read_text(), 20)
        link.restore()
        wait_for(lambda: counts() == {"succeeded": len(handles)}, 30)
    assert len(run_log.entries()) == 2 * len(handles), "each ran once"
