"""Workers are killed between and inside of steps, during sleeps and waits: nothing saved is repeated, nothing late."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from onthedot import TaskHandle
from tests.faults import LONG, durable_app, scaled
from tests.faults.server_stores import PROCESS_STORES
from tests.faults.worker_processes import forked_workers, kill_a_forked_worker, run_clients, wait_for
from tests.support.app_access import worker_pids
from tests.support.waits import SOON

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900 if LONG else 300)]

PROGRAM = "tests.faults.durable_app"
LEASE = 1  # seconds after which a death is noticed; on SQLite it is noticed at once
LATE = 3.0  # seconds that the end of a wait may take on a busy machine, once a worker is there
SENDERS = 8
STEPS = 5
ON_EACH_STORE = list(PROCESS_STORES)


@pytest.fixture(params=ON_EACH_STORE)
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    """The stores that several processes share."""
    with PROCESS_STORES[request.param]() as server_store:
        url = server_store.url(LEASE)
        with durable_app.app.override(store=url):
            yield url


def crashes_of(handle: TaskHandle[str]) -> int:
    """How many workers died over it, when it has ended."""
    assert handle.result(8 * SOON) == "done"
    return handle.info().attempt - 1


@pytest.mark.parametrize("task", [durable_app.killed_after_each_step, durable_app.killed_after_each_sync_step])
def test_kill_after_each_step_repeats_none(store: str, run_log_path: Path, task: Any) -> None:
    with forked_workers(store, run_log_path, 1, PROGRAM):
        assert crashes_of(task.delay(STEPS)) == STEPS
    assert run_log_path.read_text().splitlines() == [f"step {number}" for number in range(1, STEPS + 1)]


def test_kill_inside_a_step_repeats_that_step_once(store: str, run_log_path: Path) -> None:
    with forked_workers(store, run_log_path, 1, PROGRAM):
        assert crashes_of(durable_app.killed_in_each_step.delay(STEPS)) == STEPS
    assert Counter(run_log_path.read_text().splitlines()) == {f"step {number}": 2 for number in range(1, STEPS + 1)}


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_step_in_a_transaction_has_its_effect_once(store: str, run_log_path: Path) -> None:
    path = store.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE sale (number INTEGER)")
    with forked_workers(store, run_log_path, 1, PROGRAM):
        assert crashes_of(durable_app.killed_around_each_commit.delay(STEPS)) == 3 * STEPS
    with closing(sqlite3.connect(path)) as db:
        assert [number for (number,) in db.execute("SELECT number FROM sale")] == list(range(1, STEPS + 1))


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_step_in_a_transaction_of_a_server_has_its_effect_once(store: str, run_log_path: Path) -> None:
    steps = scaled(2, STEPS)  # each of three kills per step costs a lease
    url = store.partition("?")[0]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA worker")  # the first one of its search path, and its own
        connection.execute("CREATE TABLE sale (number integer)")
    with forked_workers(store, run_log_path, 1, PROGRAM):
        assert crashes_of(durable_app.killed_around_each_commit_on_a_server.delay(steps)) == 3 * steps
    with psycopg.connect(url) as connection:
        found = [number for (number,) in connection.execute("SELECT number FROM sale")]
    assert found == list(range(1, steps + 1))


def test_sleep_starts_the_count_of_crashes_again(store: str, run_log_path: Path) -> None:
    with forked_workers(store, run_log_path, 1, PROGRAM):
        assert durable_app.killed_twice_between_sleeps.delay().result(3 * SOON) == 7, "attempts are kept"


@pytest.mark.timed
def test_sleep_and_timeout_are_exact_over_a_restart_of_all_workers(store: str, run_log_path: Path) -> None:
    """Each of both kills its worker before it is suspended; on a server, that costs the lease as well."""
    seconds = 3 if store.startswith("sqlite") else 8
    with forked_workers(store, run_log_path, 1, PROGRAM) as parent:
        sleeper = durable_app.sleeper.delay(seconds)
        waiter = durable_app.waiter.delay(seconds)
        wait_for(lambda: sleeper.state() == "scheduled" and waiter.state() == "waiting", 60)
        assert durable_app.other.delay().result(SOON) == "ran", "one slot, and it is free"
        before = worker_pids(durable_app.app)
        kill_a_forked_worker(parent, random.Random(1))
        wait_for(lambda: bool(worker_pids(durable_app.app) - before), 60)
        ready = time.time()
        began, ended = sleeper.result(SOON)
        assert began + seconds <= ended <= max(began + seconds, ready) + LATE
        began, ended, found = waiter.result(SOON)
        assert found == "timeout"
        assert began + seconds <= ended <= max(began + seconds, ready) + LATE


def test_every_waiter_gets_its_signals_while_workers_are_killed(store: str, run_log_path: Path) -> None:
    """Half of the signals have a shared name, and half are addressed to one task. Some come before the wait."""
    number = scaled(100, 2000)
    rng = random.Random(11)
    with forked_workers(store, run_log_path, 4, PROGRAM) as parent:
        handles = durable_app.numbered_waiter.delay_many([(each,) for each in range(number)])
        uuids = [handle.uuid for handle in handles]
        senders = threading.Thread(target=run_clients, args=(store, run_log_path, SENDERS, SEND.format(uuids=uuids)))
        senders.start()
        kills = 0
        while senders.is_alive() or kills < 4:
            time.sleep(rng.uniform(0.2, 1.0))  # the random moment
            kill_a_forked_worker(parent, rng)
            kills += 1
        senders.join()
        results = [handle.result(6 * SOON) for handle in handles]
    print(f"\n{store.partition(':')[0]}: {number} waiters, {kills} workers killed")
    assert results == [[each, -each] for each in range(number)]
    lines = Counter(run_log_path.read_text().split())
    assert lines.keys() == {str(each) for each in range(number)}
    assert sum(lines.values()) <= number + kills, "only a kill inside of a step repeats it"


SEND = f"""
import random
from tests.faults import durable_app
uuids = {{uuids}}
own = list(range(number, len(uuids), {SENDERS}))
random.Random(number).shuffle(own)
for each in own:
    durable_app.app.sync.signal(f"go {{{{each}}}}", each, id=f"{{{{each}}}}")
    durable_app.app.handle(uuids[each]).signal("again", -each, id="own")
"""


def test_signal_without_a_worker_is_taken_by_the_next_one(store: str, run_log_path: Path) -> None:
    with forked_workers(store, run_log_path, 1, PROGRAM) as parent:
        waiter = durable_app.waiter.delay(600)
        wait_for(lambda: waiter.state() == "waiting", 60)
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
        assert waiter.signal("approved", "yes")
        assert waiter.state() == "waiting"
    with forked_workers(store, run_log_path, 1, PROGRAM):
        assert waiter.result(3 * SOON)[2] == "yes"
