"""Worker processes on Postgres are killed and disconnected: nothing is lost, everything is settled once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import scaled, task_app
from tests.faults.run_log import RunLog, max_concurrent, takeover_times
from tests.faults.test_killed_workers import counts, done
from tests.faults.worker_processes import wait_for, wait_for_progress, worker_processes
from tests.support.fault_report import report_faults
from tests.support.services.postgres import Service

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]

WORKERS = 3
LEASE = 2  # seconds until the tasks of a dead worker are taken over


@pytest.fixture
def store(postgres: Service) -> Iterator[str]:
    """A new database, which the functions of the app add to."""
    name = f"shop_{time.time_ns()}"
    postgres.ask(f"CREATE DATABASE {name}")
    url = f"{postgres.url.rpartition('/')[0]}/{name}?lease={LEASE}"
    try:
        with task_app.app.override(store=url):
            yield url
    finally:
        left = postgres.ask("SELECT query FROM pg_stat_activity WHERE datname = %s", name)
        postgres.ask(f"DROP DATABASE {name} WITH (FORCE)")
    assert left == []


def test_killed_and_disconnected_workers_lose_no_task(
    store: str, run_log: RunLog, run_log_path: Path, postgres: Service
) -> None:
    tasks = scaled(600, 20_000)
    kills = scaled(4, 60)
    rng = random.Random(7)
    added = task_app.work.delay_many([{"number": number} for number in range(tasks // 2)])
    added += task_app.limited.delay_many([{"number": number} for number in range(tasks // 2)])
    acknowledged = {handle.uuid for handle in added}
    deaths: list[tuple[int, float]] = []
    with worker_processes(store, run_log_path, WORKERS) as workers:
        wait_for(lambda: done() > 0, 30)
        for number in range(kills):
            time.sleep(rng.uniform(0.02, 0.3))  # the random moment
            if number % 2:  # every second time the connections are cut as well
                cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
                postgres.ask(cut, store.rpartition("/")[2].partition("?")[0])
            index = rng.randrange(WORKERS)
            deaths.append(workers.kill(index))
            workers.replace(index)
        wait_for_progress(done, tasks)
        extra = task_app.fill_limit()
        wait_for_progress(done, tasks + len(extra))
    entries = run_log.entries()
    took = sorted(seconds for pid, died in deaths for seconds in takeover_times(entries, pid, died))
    report = report_faults(f"Postgres, {kills} kills and cuts", task_app.app, acknowledged | extra, entries, took)
    report.check(kills * WORKERS * task_app.SLOTS)  # cut workers may lose their leases, too
    assert counts() == {"succeeded": tasks + len(extra)}
    assert {entry.uuid for entry in entries if entry.event == "end"} == acknowledged | extra
    assert max_concurrent(entries, extra) == 12, "the limit is fully used after the kills, and never exceeded"
    assert [handle.result(timeout=30) for handle in added[:3]] == [0, 1, 2]
