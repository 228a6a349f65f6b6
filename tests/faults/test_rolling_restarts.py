"""Workers are replaced one machine after the other, under load: no task is lost, and no run counts as a crash."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from onthedot import TaskHandle
from tests.faults import LONG, scaled, task_app
from tests.faults.machines import Machine, machines
from tests.faults.run_log import RunLog
from tests.faults.server_stores import ServerStore
from tests.faults.test_killed_workers import counts, sessions
from tests.faults.worker_processes import wait_for
from tests.support.app_access import call_operations, worker_pids
from tests.support.fault_report import read_records, report_faults
from tests.support.waits import SOON

pytestmark = [pytest.mark.fault, pytest.mark.timeout(28_800 if LONG else 180)]

LEASE = 30  # seconds; longer than a restart, so that no task is taken over because of its lease
RESTARTS = scaled(2, 1000)
WAITING = 2 * task_app.SLOTS  # tasks that are ready at every moment
SECONDS = 0.3  # of a task: longer than the stop timeout


class Supply:
    """Adds tasks, so that every worker is busy when it is stopped."""

    def __init__(self) -> None:
        self.short: set[str] = set()
        self.long: set[str] = set()

    def top_up(self) -> None:
        if counts().get("ready", 0) < WAITING:
            handles = task_app.slow.delay_many([{"seconds": SECONDS}] * WAITING)
            self.short |= {handle.uuid for handle in handles}


def sessions_of(pids: set[int]) -> set[str]:
    workers = call_operations(task_app.app, lambda operations: operations.workers())
    return {worker.id for worker in workers if worker.pid in pids}


class LongRun:
    """A run on one machine that does not end by itself, so that the restart of the machine must cancel it."""

    def __init__(self, machine: Machine) -> None:
        self._sessions = sessions_of(set(machine.children()))
        self._handles: list[TaskHandle[str]] = []

    def begin(self, supply: Supply) -> None:
        wait_for(self._is_running_there, SOON, lambda: self._add(supply))

    def _add(self, supply: Supply) -> None:
        """Another machine may take it. It has a slot left then, and the next one is added when this one runs."""
        if all(handle.info().worker for handle in self._handles):
            self._handles.append(task_app.slow.delay(600))
            supply.long.add(self._handles[-1].uuid)

    def _is_running_there(self) -> bool:
        return any(handle.info().worker in self._sessions for handle in self._handles)

    def has_moved(self) -> bool:
        return all(handle.info().worker not in {None, *self._sessions} for handle in self._handles)

    def cancel(self) -> None:
        for handle in self._handles:
            assert handle.cancel()


def is_replaced(machine: Machine, old: set[int]) -> bool:
    """It has one process, which is new and has a session, and the old one has ended its session."""
    children = set(machine.children())
    pids = worker_pids(task_app.app)
    return len(children) == 1 and not children & old and children <= pids and not old & pids


@pytest.mark.parametrize("server_store", ["redis", "postgres"], indirect=True)
def test_rolling_restarts_under_load_lose_no_task(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path
) -> None:
    """Runs that last longer than the stop timeout are cancelled, and the tasks run again elsewhere."""
    store = server_store.url(LEASE)
    supply = Supply()
    with task_app.app.override(store=store):
        with machines(2, store, run_log_path, "--stop-timeout", "0.1") as hosts:
            wait_for(lambda: sessions() == 2, SOON)
            for number in range(RESTARTS):
                machine = hosts[number % 2]
                old = set(machine.children())
                supply.top_up()
                long = LongRun(machine)
                long.begin(supply)
                machine.send_signal(signal.SIGHUP)
                wait_for(lambda machine=machine, old=old: is_replaced(machine, old), SOON, supply.top_up)
                wait_for(long.has_moved, SOON, supply.top_up)
                long.cancel()
            wait_for(lambda: not counts().keys() - {"succeeded", "cancelled"}, SOON)
        acknowledged = supply.short | supply.long
        run = f"{server_store.name}, {RESTARTS} rolling restarts"
        report = report_faults(run, task_app.app, acknowledged, run_log.entries(), [])
        report.check(most_extra_runs=RESTARTS * task_app.SLOTS)
        assert report.extra_runs >= RESTARTS, "each restart cancels a run, and the task runs again"
        records = read_records(task_app.app, acknowledged)
        assert {record.history.crashes for record in records.values() if record is not None} == {0}
        assert counts() == {"succeeded": len(supply.short), "cancelled": len(supply.long)}
