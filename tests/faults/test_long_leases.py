"""Tasks that wait or run for longer than a lease; workers that continue after it, or with the pid of a dead one."""

from __future__ import annotations

import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onthedot.operations.workers import WorkerInfo
from tests.faults import task_app
from tests.faults.run_log import RunEntry, RunLog
from tests.faults.server_stores import ServerStore
from tests.faults.test_killed_workers import counts, sessions
from tests.faults.worker_processes import ROOT, environment, wait_for, worker_processes
from tests.support.app_access import call_operations
from tests.support.fault_report import report_faults
from tests.support.process_guard import start_guarded
from tests.support.services.programs import give_up
from tests.support.waits import SOON

pytestmark = pytest.mark.fault
LEASE = 2  # seconds

on_both_servers = pytest.mark.parametrize("server_store", ["redis", "postgres"], indirect=True)


def begun(run_log: RunLog, uuid: str) -> list[RunEntry]:
    return [entry for entry in run_log.entries() if entry.uuid == uuid and entry.event == "begin"]


@on_both_servers
def test_task_of_five_leases_and_tasks_due_after_three_run_once(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path
) -> None:
    """Each of three workers would take a task that is not protected after its lease. The long one ends last."""
    url = server_store.url(LEASE)
    with task_app.app.override(store=url):
        with worker_processes(url, run_log_path, 3):
            wait_for(lambda: sessions() == 3, SOON)
            long = task_app.slow.delay(5 * LEASE)
            wait_for(lambda: len(begun(run_log, long.uuid)) == 1, SOON)
            due = [task_app.innocent.options(after=3 * LEASE).delay(number) for number in range(20)]
            assert [handle.result(timeout=SOON) for handle in due] == list(range(20))
            assert long.result(timeout=SOON) == "slow"
        infos = [handle.info() for handle in due]
        for info in infos:
            assert info.started_at is not None
            assert (info.started_at - info.added_at).total_seconds() >= 3 * LEASE
        assert {info.crashes for info in [*infos, long.info()]} == {0}
        uuids = {long.uuid, *(handle.uuid for handle in due)}
        report = report_faults(f"{server_store.name}, long tasks", task_app.app, uuids, run_log.entries(), [])
        report.check(most_extra_runs=0)
    assert sorted(entry.uuid for entry in run_log.entries() if entry.event == "begin") == sorted(uuids)


@on_both_servers
def test_outcome_of_an_embedded_worker_that_was_stopped_for_three_leases_is_refused(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path
) -> None:
    """Its run is over when it continues, and another worker still runs the task."""
    url = server_store.url(LEASE)
    with task_app.app.override(store=url):
        with worker_processes(url, run_log_path, 1, program="tests.faults.embedded_app") as embedded:
            wait_for(lambda: sessions() == 1, SOON)
            handle = task_app.slow.delay(3 * LEASE)
            wait_for(lambda: len(begun(run_log, handle.uuid)) == 1, SOON)
            (stopped,) = embedded.workers
            stopped.send_signal(signal.SIGSTOP)
            continues = time.monotonic() + 3 * LEASE
            with worker_processes(url, run_log_path, 1) as others:
                wait_for(lambda: len(begun(run_log, handle.uuid)) == 2, SOON)
                wait_for(lambda: time.monotonic() >= continues, SOON)
                assert not handle.done()
                stopped.send_signal(signal.SIGCONT)
                assert handle.result(timeout=SOON) == "slow"
                wait_for(lambda: sessions() == 2, SOON)  # the embedded worker has a new session
            log = others.log.read_text()
        report = report_faults(
            f"{server_store.name}, embedded worker stopped", task_app.app, {handle.uuid}, run_log.entries(), []
        )
        report.check(most_extra_runs=1)
        assert counts() == {"succeeded": 1}
        assert handle.info().crashes == 1
    assert f"[lost] task {handle.uuid}" in log
    assert [entry.pid for entry in begun(run_log, handle.uuid)] == [stopped.pid, others.workers[0].pid]


@contextmanager
def containers(store: str, run_log: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts workers that all have the host name of this machine and the pid 1, as in a container that is restarted."""
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], check=False).returncode:
        give_up("no pid namespace can be made here")
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        with run_log.with_suffix(".log").open("ab") as log:
            started.append(
                start_guarded(
                    [*command, sys.executable, "-m", "tests.faults.task_app"],
                    env=environment(store, run_log), cwd=ROOT, stdout=log, stderr=log,
                )
            )  # fmt: skip
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.kill()  # --kill-child: the worker dies with it
            process.wait()


@on_both_servers
def test_worker_with_host_and_pid_of_a_dead_one_does_not_keep_its_tasks_running(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path
) -> None:
    url = server_store.url(LEASE)
    with task_app.app.override(store=url), containers(url, run_log_path) as start:
        first = start()
        wait_for(lambda: sessions() == 1, SOON)
        handles = task_app.slow.delay_many([{"seconds": 3 * LEASE}] * 3)
        wait_for(lambda: len(run_log.entries()) == 3, SOON)
        (dead,) = workers()
        first.kill()
        first.wait()
        start()
        wait_for(lambda: dead.id not in {each.id for each in workers()} and len(workers()) == 1, SOON)
        (alive,) = workers()
        assert (alive.host, alive.pid) == (dead.host, dead.pid) == (platform.node(), 1)
        assert [handle.result(timeout=SOON) for handle in handles] == ["slow"] * 3
        assert {handle.info().crashes for handle in handles} == {1}
        report = report_faults(
            f"{server_store.name}, host and pid used again",
            task_app.app, {handle.uuid for handle in handles}, run_log.entries(), [],
        )  # fmt: skip
        report.check(most_extra_runs=3)


def workers() -> list[WorkerInfo]:
    return call_operations(task_app.app, lambda operations: operations.workers())
