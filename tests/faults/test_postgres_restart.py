"""Postgres dies under load, with fsync on as in production: nothing that was acknowledged is lost."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onthedot import StoreError
from tests.faults import LONG, scaled, task_app
from tests.faults.run_log import RunLog, max_concurrent
from tests.faults.server_stores import PostgresServer, on_postgres
from tests.faults.test_killed_workers import counts, done, sessions
from tests.faults.worker_processes import wait_for, wait_for_progress, worker_processes
from tests.support.fault_report import report_faults

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900 if LONG else 180)]

WORKERS = 2
LEASE = 10  # seconds
TASKS = scaled(500, 5_000)
DEATHS = [signal.SIGQUIT, signal.SIGKILL] if not LONG else [signal.SIGQUIT, signal.SIGKILL] * 10


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with on_postgres(fsync="on", synchronous_commit="on") as server:
        yield server


def test_immediate_restarts_lose_nothing_that_was_acknowledged(
    server: PostgresServer, run_log: RunLog, run_log_path: Path
) -> None:
    url = server.url(LEASE)
    acknowledged: set[str] = set()
    refused = 0
    stopping = threading.Event()

    def produce() -> None:
        nonlocal refused
        number = 0
        while not (stopping.is_set() and len(acknowledged) >= TASKS):
            task = task_app.limited if number % 2 else task_app.work
            number += 1
            try:
                acknowledged.add(task.delay(number).uuid)
            except StoreError:
                refused += 1
                time.sleep(0.05)

    with task_app.app.override(store=url), worker_processes(url, run_log_path, WORKERS):
        wait_for(lambda: sessions() == WORKERS, 30)
        producer = threading.Thread(target=produce)
        producer.start()
        rng = random.Random(5)
        back: list[float] = []
        for how in DEATHS:
            time.sleep(rng.uniform(0.5, 1.5))  # the random moment
            server.die(how)
            server.start()
            back.append(wait_for(grows(acknowledged), 60))
        stopping.set()
        producer.join(60)
        wait_for(all_ended, 60)
        before = done()  # an add that was refused may have been stored
        extra = task_app.fill_limit()
        wait_for_progress(done, before + len(extra))
        run = f"postgres, fsync on, {len(DEATHS)} deaths, {refused} adds refused"
        report = report_faults(run, task_app.app, acknowledged | extra, run_log.entries(), back)
        report.check(most_extra_runs=len(DEATHS) * WORKERS * task_app.SLOTS)
    assert max_concurrent(run_log.entries(), extra) == 12, "the limit is kept, and no capacity is lost"


def grows(acknowledged: set[str]) -> Callable[[], bool]:
    """A condition: another add is acknowledged."""
    before = len(acknowledged)
    return lambda: len(acknowledged) > before


def all_ended() -> bool:
    return not counts().keys() - {"succeeded"}
