"""Workers are killed between and inside of steps, during sleeps and waits: nothing saved is repeated, nothing late."""

from __future__ import annotations

import random
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from onthedot import TaskHandle
from tests.faults import durable_app, scaled
from tests.faults.worker_processes import WorkerProcesses, wait_for, worker_processes
from tests.support.app_access import session_count
from tests.support.waits import SOON

pytestmark = [pytest.mark.fault, pytest.mark.once, pytest.mark.timeout(120)]

PROGRAM = "tests.faults.durable_app"
LATE = 3.0  # seconds that the end of a wait may take on a busy machine, once a worker is there


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    url = f"sqlite:///{tmp_path}/shop.db"
    with durable_app.app.override(store=url):
        yield url


def run_to_the_end(workers: WorkerProcesses, handle: TaskHandle[object]) -> int:
    """Replaces each worker that dies; returns how many did."""
    deaths = 0

    def replace_dead() -> None:
        nonlocal deaths
        deaths += workers.replace_dead()

    wait_for(handle.done, 3 * SOON, replace_dead)
    replace_dead()
    return deaths


@pytest.mark.parametrize("task", [durable_app.killed_after_each_step, durable_app.killed_after_each_sync_step])
def test_kill_after_each_step_repeats_none(store: str, run_log_path: Path, task: object) -> None:
    with worker_processes(store, run_log_path, 1, PROGRAM) as workers:
        handle = task.delay()  # type: ignore[attr-defined]
        assert run_to_the_end(workers, handle) == durable_app.STEPS
        assert handle.result(SOON) == "done"
        assert handle.info().attempt == durable_app.STEPS + 1
    assert run_log_path.read_text().splitlines() == [f"step {number}" for number in range(1, 6)]


def test_kill_inside_a_step_repeats_that_step_once(store: str, run_log_path: Path) -> None:
    with worker_processes(store, run_log_path, 1, PROGRAM) as workers:
        handle = durable_app.killed_in_each_step.delay()
        assert run_to_the_end(workers, handle) == durable_app.STEPS
        assert handle.result(SOON) == "done"
    assert Counter(run_log_path.read_text().splitlines()) == {f"step {number}": 2 for number in range(1, 6)}


def test_step_in_a_transaction_has_its_effect_once(store: str, run_log_path: Path) -> None:
    with worker_processes(store, run_log_path, 1, PROGRAM) as workers:
        handle = durable_app.killed_around_each_commit.delay()
        assert run_to_the_end(workers, handle) == 3 * durable_app.STEPS
        assert handle.result(SOON) == "done"
    with closing(sqlite3.connect(store.removeprefix("sqlite:///"))) as db:
        assert [number for (number,) in db.execute("SELECT number FROM sale")] == [1, 2, 3, 4, 5]


def test_sleep_starts_the_count_of_crashes_again(store: str, run_log_path: Path) -> None:
    with worker_processes(store, run_log_path, 1, PROGRAM) as workers:
        handle = durable_app.killed_twice_between_sleeps.delay()
        assert run_to_the_end(workers, handle) == 6
        assert handle.result(SOON) == 7, "attempts are kept"


@pytest.mark.timed
def test_sleep_and_timeout_are_exact_over_a_restart_of_all_workers(store: str, run_log_path: Path) -> None:
    with worker_processes(store, run_log_path, 1, PROGRAM) as workers:
        sleeper = durable_app.sleeper.delay(3)
        waiter = durable_app.waiter.delay(3)

        def suspended() -> bool:
            workers.replace_dead()
            return sleeper.state() == "scheduled" and waiter.state() == "waiting"

        wait_for(suspended, 60)
        assert durable_app.other.delay().result(SOON) == "ran", "one slot, and it is free"
        workers.kill(0)
        workers.replace(0)
        wait_for(lambda: session_count(durable_app.app) == 1, 60)
        ready = time.time()
        began, ended = sleeper.result(SOON)
        assert began + 3 <= ended <= max(began + 3, ready) + LATE
        began, ended, found = waiter.result(SOON)
        assert found == "timeout"
        assert began + 3 <= ended <= max(began + 3, ready) + LATE


def test_every_waiter_gets_its_signals_while_workers_are_killed(store: str, run_log_path: Path) -> None:
    number = scaled(100, 2000)
    rng = random.Random(11)
    with worker_processes(store, run_log_path, 2, PROGRAM) as workers:
        handles = durable_app.numbered_waiter.delay_many([(each,) for each in range(number)])
        order = list(range(number))
        rng.shuffle(order)
        for count, each in enumerate(order, 1):
            durable_app.app.sync.signal(f"go {each}", each, id=f"{each}")
            handles[each].signal("again", -each, id="own")
            if count % (number // 4) == 0:
                workers.kill(count % 2)
                workers.replace_dead()
        results = [handle.result(3 * SOON) for handle in handles]
    assert results == [[each, -each] for each in range(number)]
    lines = Counter(run_log_path.read_text().split())
    assert lines.keys() == {str(each) for each in range(number)}
    assert max(lines.values()) <= 2, "a kill inside of a step repeats it"


def test_signal_without_a_worker_is_taken_by_the_next_one(store: str, run_log_path: Path) -> None:
    with worker_processes(store, run_log_path, 1, PROGRAM) as workers:
        waiter = durable_app.waiter.delay(60)

        def suspended() -> bool:
            workers.replace_dead()
            return waiter.state() == "waiting"

        wait_for(suspended, 60)
        workers.kill(0)
        assert waiter.signal("approved", "yes")
        assert waiter.state() == "waiting"
        workers.replace(0)
        assert waiter.result(SOON)[2] == "yes"
