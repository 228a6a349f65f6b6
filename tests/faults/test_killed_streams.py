"""Workers and readers of streams go away in the middle: no item is lost or doubled, and a new beginning is noticed."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from onthedot import StreamHandle, StreamRestarted
from tests.faults import scaled, stream_app
from tests.faults.server_stores import ServerStore
from tests.faults.worker_processes import ROOT, WorkerProcesses, environment, wait_for, worker_processes
from tests.support.process_guard import start_guarded
from tests.support.waits import SOON

pytestmark = [
    pytest.mark.fault,
    pytest.mark.once,
    pytest.mark.timeout(300),
    pytest.mark.parametrize("server_store", ["sqlite", "redis", "postgres"], indirect=True),
]

PROGRAM = "tests.faults.stream_app"
LEASE = 1.0  # seconds
ITEMS = scaled(2_000, 10_000)
DISCONNECTS = 20
DEATHS = scaled(2, 10)


@pytest.fixture
def store(server_store: ServerStore) -> Iterator[str]:
    url = server_store.url(LEASE)
    with stream_app.app.override(store=url):
        yield url


class Replacement:
    """Starts a new worker for each that dies, while the test reads."""

    def __init__(self, workers: WorkerProcesses) -> None:
        self._workers = workers
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.deaths = 0

    def _run(self) -> None:
        while not self._is_over.wait(0.02):
            self.deaths += self._workers.replace_dead()

    def __enter__(self) -> Replacement:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_over.set()
        self._thread.join()


class Read(NamedTuple):
    items: list[object]
    restarts: int


def read_all(handle: StreamHandle[object]) -> Read:
    """Reads from the start until the task has ended."""
    restarts = 0
    while True:
        items: list[object] = []
        try:
            items.extend(handle)
        except StreamRestarted:
            restarts += 1
            continue
        return Read(items, restarts)


@contextmanager
def reader(store: str, log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    process = start_guarded(
        [sys.executable, "-m", PROGRAM, *command], env=environment(store, log), cwd=ROOT, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def output(process: subprocess.Popen[bytes]) -> bytes:
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    return out


def test_two_processes_that_disconnect_read_every_item_once(store: str, run_log_path: Path) -> None:
    page = str(ITEMS // (2 * DISCONNECTS))
    with worker_processes(store, run_log_path, 1, PROGRAM):
        handle = stream_app.numbers.delay(ITEMS)
        command = ("read", handle.uuid, str(DISCONNECTS), page)
        with reader(store, run_log_path, *command) as first, reader(store, run_log_path, *command) as second:
            for process in (first, second):
                found = json.loads(output(process))
                assert found["items"] == list(range(ITEMS))
                assert found["connections_left"] == -1, "it has disconnected 20 times"
                assert found["kinds"] == ["end", "item"]
        assert handle.result(SOON) == list(range(ITEMS))


@pytest.mark.timed
def test_item_is_read_in_another_process_within_50_ms(store: str, run_log_path: Path) -> None:
    with worker_processes(store, run_log_path, 1, PROGRAM):
        assert stream_app.numbers.delay(1).result(3 * SOON) == [0], "the worker is there"
        handle = stream_app.timestamps.delay(20)
        with reader(store, run_log_path, "measure", handle.uuid) as process:
            delays = json.loads(output(process))
        assert statistics.median(delays) < 0.05
        assert delays[0] < 0.05, "the first item"


def test_reader_of_a_killed_worker_gets_the_whole_stream_again(store: str, run_log_path: Path) -> None:
    with worker_processes(store, run_log_path, 1, PROGRAM) as workers, Replacement(workers) as replacement:
        handle = stream_app.begins_again.delay(100, DEATHS)
        found = read_all(handle)
        assert replacement.deaths == DEATHS
        assert found.items == [f"{DEATHS + 1}: {number}" for number in range(100)]
        assert 1 <= found.restarts <= DEATHS
        assert handle.result(SOON) == found.items


def test_continued_stream_has_no_gap_and_no_item_twice(store: str, run_log_path: Path) -> None:
    with worker_processes(store, run_log_path, 1, PROGRAM) as workers, Replacement(workers) as replacement:
        handle = stream_app.continues.delay(ITEMS, ITEMS // (DEATHS + 1) + 1)
        found = read_all(handle)
        assert found == Read(list(range(ITEMS)), 0)
        assert replacement.deaths == DEATHS
        assert handle.result(SOON) == found.items


@pytest.mark.parametrize("going_on", [True, False])
def test_stop_of_the_worker_releases_the_stream(store: str, run_log_path: Path, going_on: bool) -> None:
    with worker_processes(store, run_log_path, 1, PROGRAM) as workers:
        handle = stream_app.stopped.delay(100, going_on)
        items = iter(handle)
        assert [next(items) for _ in range(51)] == list(range(51))
        assert workers.stop() == [0]
        workers.replace(0)
        if going_on:
            assert list(items) == list(range(51, 100))
        else:
            with pytest.raises(StreamRestarted):
                next(items)
            assert list(handle) == list(range(100))
        assert handle.info().attempt == 1
        wait_for(handle.done, SOON)
