"""Workers are killed at random moments: no task is lost, each is settled once and taken over in time."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.faults import LONG, scaled, task_app
from tests.faults.run_log import RunEntry, RunLog, max_concurrent, takeover_times, takeovers
from tests.faults.server_stores import ServerStore
from tests.faults.worker_processes import WorkerProcesses, forked_workers, wait_for, wait_for_progress, worker_processes
from tests.support.app_access import call_operations, call_store, session_count
from tests.support.fault_report import report_faults

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]

WORKERS = 4
LEASE = 3  # seconds
PER_KILL = 80  # tasks; enough to keep all slots in use


def done() -> int:
    return counts().get("succeeded", 0)


def counts() -> dict[str, int]:
    found: dict[str, int] = {}
    for (_, state), number in call_store(task_app.app, lambda store: store.tally()).items():
        found[state] = found.get(state, 0) + number
    return found


def sessions() -> int:
    return session_count(task_app.app)


@pytest.mark.timeout(7200 if LONG else 300)
@pytest.mark.parametrize("server_store", ["sqlite", "redis", "postgres"], indirect=True)
def test_killed_workers_lose_no_task(server_store: ServerStore, run_log: RunLog, run_log_path: Path) -> None:
    """Workers have no supervisor: on a server, the tasks of a dead one are taken over after its lease."""
    kills = scaled({"sqlite": 15}.get(server_store.name, 5), 1000)
    rng = random.Random(7)
    url = server_store.url(LEASE)
    acknowledged: set[str] = set()
    deaths: dict[str, tuple[int, float]] = {}  # by session, since a pid may be given to a later process
    with task_app.app.override(store=url):
        with forked_workers(url, run_log_path, WORKERS):
            for _ in range(kills):
                wait_for(lambda: len(alive(deaths)) == WORKERS, 60)
                for task in (task_app.work, task_app.limited):
                    added = task.delay_many([{"number": number} for number in range(PER_KILL // 2)])
                    acknowledged |= {handle.uuid for handle in added}
                wait_for(lambda: counts().get("running", 0) > 0, 60)
                time.sleep(rng.uniform(0.0, 0.1))  # the random moment
                session, pid = rng.choice(sorted(alive(deaths).items()))
                deaths[session] = (pid, time.monotonic())
                os.kill(pid, signal.SIGKILL)  # its parent starts another one
            wait_for_progress(done, len(acknowledged))
            extra = task_app.fill_limit()
            wait_for_progress(done, len(acknowledged) + len(extra))
        entries = run_log.entries()
        took = [taken for taken in takeovers(entries, list(deaths.values())).values() if taken]
        report = report_faults(
            f"kill -9 loop, {server_store.name}, {kills} kills",
            task_app.app, acknowledged | extra, entries, [seconds for taken in took for seconds in taken],
        )  # fmt: skip
        print(f"of each death the first task was taken over within {max(map(min, took)):.3f} s")
        report.check(kills * task_app.SLOTS)
        assert counts() == {"succeeded": len(acknowledged) + len(extra)}
    assert {entry.uuid for entry in entries if entry.event == "end"} == acknowledged | extra
    assert max_concurrent(entries, extra) == 12, "the limit is fully used after the kills, and never exceeded"


def alive(dead: Collection[str]) -> dict[str, int]:
    """The processes of the workers, by session. A dead one has its session until the lease is over."""
    workers = call_operations(task_app.app, lambda operations: operations.workers())
    return {worker.id: worker.pid for worker in workers if worker.id not in dead}


@pytest.mark.timed
def test_another_process_takes_over_within_100_ms(store: str, run_log: RunLog, run_log_path: Path) -> None:
    with worker_processes(store, run_log_path, 2) as workers:
        wait_for(lambda: sessions() == 2, 20)
        took = [_kill_the_holder(workers, run_log) for _ in range(scaled(5, 20))]
    print(f"\ntaken over after {', '.join(f'{s * 1000:.0f}' for s in took)} ms")
    assert max(took) <= 0.1


def _kill_the_holder(workers: WorkerProcesses, run_log: RunLog) -> float:
    handle = task_app.slow.delay(0.3)

    def begun() -> list[RunEntry]:
        return [entry for entry in run_log.entries() if entry.uuid == handle.uuid and entry.event == "begin"]

    wait_for(lambda: len(begun()) == 1, 20)
    owner = next(index for index, worker in enumerate(workers.workers) if worker.pid == begun()[0].pid)
    pid, died = workers.kill(owner)
    wait_for(lambda: len(begun()) == 2, 20)
    assert handle.result(timeout=10) == "slow"
    workers.replace(owner)
    wait_for(lambda: sessions() == 2, 20)
    (took,) = takeover_times(run_log.entries(), pid, died)
    return took
