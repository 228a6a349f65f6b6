"""Workers and clients of flows are killed: what follows a group runs once, with all results."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests.faults import flow_app, scaled
from tests.faults.worker_processes import ROOT, environment, forked_workers, wait_for
from tests.support.app_access import call_store
from tests.support.process_guard import start_guarded

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]

FLOW_STORES = ["sqlite"]  # those that several processes share, and that keep counters
WORKERS = 4
SIZE = scaled(2_500, 10_000)
ENQUEUE = f"""
from tests.faults import flow_app
flow_app.chord({SIZE}).delay(uuid="killed")
"""


@pytest.fixture(params=FLOW_STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    assert request.param == "sqlite"
    return f"sqlite:///{tmp_path}/flows.db"


def tally() -> dict[str, int]:
    found: dict[str, int] = {}
    for (_, state), number in call_store(flow_app.app, lambda store: store.tally()).items():
        found[state] = found.get(state, 0) + number
    return found


def pids() -> list[int]:
    sessions = call_store(flow_app.app, lambda store: store.sessions())
    return [msgspec.json.decode(info)["pid"] for info in sessions.values()]


def test_chord_runs_its_last_task_once_while_workers_are_killed(url: str, run_log_path: Path) -> None:
    rng = random.Random(11)
    killed = 0
    with flow_app.app.override(store=url), forked_workers(url, run_log_path, WORKERS, "tests.faults.flow_app"):
        wait_for(lambda: len(pids()) == WORKERS, 60)
        handle = flow_app.chord(SIZE).delay()
        while not handle.done():
            time.sleep(0.2)
            alive = pids()
            if alive and not handle.done():
                _kill(rng.choice(alive))
                killed += 1
        assert handle.result(timeout=60) == SIZE
        progress = handle.progress()
        attempts = handle.info().attempt
    assert (progress.done, progress.failed, progress.total) == (SIZE + 1, 0, SIZE + 1)
    assert killed > 0
    lines = run_log_path.read_text().splitlines()
    assert 1 <= len(lines) <= attempts, "the last task ran again although its worker was not killed"
    assert {line.split()[1] for line in lines} == {str(SIZE)}


def _kill(pid: int) -> None:
    subprocess.run(["kill", f"-{signal.SIGKILL.value}", str(pid)], check=False)


def test_killed_enqueue_starts_nothing_and_is_completed_by_the_same_uuid(url: str, run_log_path: Path) -> None:
    with flow_app.app.override(store=url):
        call_store(flow_app.app, lambda store: store.tally())  # makes the file
        client = start_guarded([sys.executable, "-c", ENQUEUE], env=environment(url, run_log_path), cwd=ROOT)
        wait_for(lambda: tally().get("waiting", 0) > 0, 60)
        client.kill()
        client.wait()
        found = tally()
        with forked_workers(url, run_log_path, 1, "tests.faults.flow_app"):
            wait_for(lambda: len(pids()) == 1, 60)
            if found.get("waiting", 0) <= SIZE:  # it was killed before the last add
                assert tally() == found
            handle = flow_app.chord(SIZE).delay(uuid="killed")
            assert handle.result(timeout=120) == SIZE
    assert len(run_log_path.read_text().splitlines()) == 1
