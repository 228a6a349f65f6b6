"""Workers and clients of flows are killed: what follows a group runs once, with all results."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import flow_app, scaled
from tests.faults.server_stores import PROCESS_STORES
from tests.faults.worker_processes import ROOT, environment, forked_workers, kill_a_forked_worker, wait_for
from tests.support.app_access import call_store, worker_pids
from tests.support.process_guard import start_guarded

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]

PROGRAM = "tests.faults.flow_app"
LEASE = 1  # seconds; SQLite has none
WORKERS = 4
SIZE = scaled(2_500, 10_000)
KILLS = scaled(20, 1_000)  # a busy machine needs an end of them: with 4 workers each lives for 0.8 s
PART = 1_000  # tasks per add
ENQUEUE = f"""
import os, signal, sys
from onthedot.flows import links, tasks
from tests.faults import flow_app

tasks.MAX_WHOLE_BYTES = 0  # several adds store it
point, links.START_TIMEOUT = sys.argv[1], int(sys.argv[2])
store = flow_app.app.runtime.store
add, adds = store.add, 0

async def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

async def count(*args):
    global adds
    adds += 1
    return await (die if adds == 2 else add)(*args)

if point == "second add":
    store.add = count
else:
    store.signal = die
flow_app.chord({SIZE}).delay(uuid="killed")
"""
STORED = {"second add": PART, "start signal": SIZE + 1}
HOUR = 3_600_000


@pytest.fixture(params=PROCESS_STORES)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The stores that several processes share."""
    with PROCESS_STORES[request.param]() as server_store:
        url = server_store.url(LEASE)
        with flow_app.app.override(store=url):
            yield url


def tally() -> dict[str, int]:
    found: dict[str, int] = {}
    for (_, state), number in call_store(flow_app.app, lambda store: store.tally()).items():
        if number:
            found[state] = found.get(state, 0) + number
    return found


def test_chord_runs_its_last_task_once_while_workers_are_killed(url: str, run_log_path: Path) -> None:
    rng = random.Random(11)
    killed = 0
    with forked_workers(url, run_log_path, WORKERS, PROGRAM) as parent:
        wait_for(lambda: len(worker_pids(flow_app.app)) == WORKERS, 60)
        handle = flow_app.chord(SIZE).delay()
        began = time.monotonic()
        while not handle.done():
            assert time.monotonic() - began < 500, handle.progress()
            time.sleep(0.2)
            if killed < KILLS and not handle.done():
                kill_a_forked_worker(parent, rng)
                killed += 1
        lasted = time.monotonic() - began
        assert handle.result(timeout=60) == SIZE
        progress = handle.progress()
        attempts = handle.info().attempt
    print(f"\n{url.partition(':')[0]}: {SIZE} members, {killed} workers killed, {lasted:.1f} s")
    assert (progress.done, progress.failed, progress.total) == (SIZE + 1, 0, SIZE + 1)
    assert killed > 0
    lines = run_log_path.read_text().splitlines()
    assert 1 <= len(lines) <= attempts, "the last task ran again although its worker was not killed"
    assert {line.split()[1] for line in lines} == {str(SIZE)}


def enqueue_and_die(url: str, run_log_path: Path, point: str, start_timeout: int = HOUR) -> None:
    client = start_guarded(
        [sys.executable, "-c", ENQUEUE, point, str(start_timeout)], env=environment(url, run_log_path), cwd=ROOT
    )
    assert client.wait(60) != 0


@pytest.mark.parametrize("point", STORED)
def test_killed_enqueue_starts_nothing_and_is_completed_by_the_same_uuid(
    url: str, run_log_path: Path, point: str
) -> None:
    enqueue_and_die(url, run_log_path, point)
    assert tally() == {"waiting": STORED[point]}
    with forked_workers(url, run_log_path, 1, PROGRAM):
        wait_for(lambda: len(worker_pids(flow_app.app)) == 1, 60)
        assert flow_app.same.delay(1).result(timeout=60) == 1, "the worker has made turns"
        assert tally() == {"waiting": STORED[point], "succeeded": 1}
        handle = flow_app.chord(SIZE).delay(uuid="killed")
        assert handle.result(timeout=120) == SIZE
    assert len(run_log_path.read_text().splitlines()) == 1


@pytest.mark.parametrize("point", STORED)
def test_tasks_of_a_killed_enqueue_end_after_the_start_timeout(url: str, run_log_path: Path, point: str) -> None:
    """The timeout is an hour; two seconds here, because the clock of a server cannot be driven."""
    enqueue_and_die(url, run_log_path, point, 2_000)
    with forked_workers(url, run_log_path, 1, PROGRAM):
        wait_for(lambda: tally() == {"cancelled": STORED[point]}, 60)
        reasons = [info.reason or "" for info in flow_app.app.sync.find(state="cancelled", limit=SIZE + 1)]
    assert [reason for reason in reasons if not reason.endswith("its flow was never completely added")] == []
    assert not run_log_path.exists(), "the last task ran"


def test_flow_that_a_killed_task_spawns_is_added_once(url: str, run_log_path: Path) -> None:
    size = scaled(100, 900)
    with forked_workers(url, run_log_path, 2, PROGRAM):
        handle = flow_app.fan_out.delay(size)
        assert handle.result(timeout=60) == size
        assert handle.info().attempt == 2, "its worker was killed once"
        wait_for(lambda: set(tally()) == {"succeeded"}, 60)
    assert tally() == {"succeeded": 1 + size + 1}
    assert [line.split()[1] for line in run_log_path.read_text().splitlines()] == [str(size)]


def test_stop_of_a_flow_goes_on_in_another_worker(url: str, run_log_path: Path) -> None:
    """Its worker is killed before anything is cancelled, and the next one after everything is."""
    size = scaled(100, 900)
    with forked_workers(url, run_log_path, 2, PROGRAM):
        handle = flow_app.stopped(size).delay()
        wait_for(lambda: tally() == {"failed": 1, "cancelled": size + 1, "succeeded": 1}, 60)
        (stop,) = flow_app.app.sync.find(source="onthedot.stop")
        reasons = {info.reason for info in handle.tasks() if info.source == "same"}
    assert (stop.state, stop.attempt, stop.crashes) == ("succeeded", 3, 2)
    assert len(reasons) == 1
    assert reasons.pop().startswith("stopped: ")
    assert not run_log_path.exists(), "the last task ran"
