"""Workers are killed around the time at which a schedule fires: every window has exactly one task."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from onthedot import App
from onthedot.clock.epoch import to_ms
from onthedot.operations.schedule_info import ScheduleInfo
from onthedot.schedules.windows import nominal_uuid
from onthedot.stores.contract import Schedule
from tests.faults import barrier_app, scaled
from tests.faults.machines import machines
from tests.faults.run_log import RunEntry, RunLog, extra_runs
from tests.faults.schedule_app import app
from tests.faults.server_stores import ServerStore
from tests.faults.worker_processes import forked_workers, wait_for, worker_processes
from tests.support.app_access import call_store, session_count, worker_pids

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]

SECOND = timedelta(seconds=1)


def info() -> ScheduleInfo:
    return app.sync.schedules.get("tick")


def states() -> dict[str, str]:
    """The state of every task of the schedule, by uuid."""
    found = app.sync.find(source="tick", limit=10_000)
    assert found.cursor is None
    return {task.uuid: task.state.value for task in found}


def wait_for_the_next_window(rng: random.Random) -> datetime:
    """Sleeps until shortly before the window, its time, or the run of its task."""
    at = info().next_run
    assert at is not None
    time.sleep(max(0.0, at.timestamp() + rng.uniform(-0.01, 0.05) - time.time()))
    return at


def repeated_pids(entries: list[RunEntry]) -> set[int]:
    """The processes whose runs were repeated by another one."""
    begun = [entry for entry in entries if entry.event == "begin"]
    last = {entry.uuid: entry.fence for entry in sorted(begun, key=lambda entry: entry.fence)}
    return {entry.pid for entry in begun if entry.fence != last[entry.uuid]}


def test_every_window_has_one_task(run_log: RunLog, tmp_path: Path) -> None:
    check_every_window(run_log, f"sqlite:///{tmp_path}/schedules.db", 4, scaled(4, 100))


@pytest.mark.timed
def test_last_worker_fires_in_time_while_others_are_killed(run_log: RunLog, tmp_path: Path) -> None:
    """A killed worker is replaced later, so that only the other one can fire the next windows."""
    rng = random.Random(5)
    url = f"sqlite:///{tmp_path}/schedules.db"
    latest = 0.0
    with app.override(store=url), worker_processes(url, run_log.path, 2, "tests.faults.schedule_app") as workers:
        for _ in range(scaled(4, 60)):
            wait_for(lambda: session_count(app) == 2 and info().last_run is not None, 60)
            window = wait_for_the_next_window(rng)
            index = rng.randrange(2)
            workers.kill(index)
            for _ in range(3):
                after = window
                wait_for(lambda after=after: (info().last_run or after - SECOND) >= after, 20)
                latest = max(latest, (datetime.now(UTC) - after).total_seconds())
                window = after + SECOND
            workers.replace(index)
    print(f"\nlatest window: {latest:.2f} s")
    assert latest < 2


@pytest.mark.timed
def test_windows_fire_while_processes_of_a_supervisor_are_killed(run_log: RunLog, tmp_path: Path) -> None:
    """At random, and often both before either is ready again. The pause before a restart does not grow with each."""
    rng = random.Random(7)
    url = f"sqlite:///{tmp_path}/schedules.db"
    program = "tests.faults.schedule_app:app"
    dead: set[int] = set()
    pause = 0.0
    latest = 0.0
    with app.override(store=url), machines(1, url, run_log.path, "--processes", "2", program=program) as (machine,):
        wait_for(lambda: session_count(app) == 2 and info().last_run is not None, 60)
        for _ in range(scaled(4, 60)):
            pid = rng.choice(machine.children())
            os.kill(pid, signal.SIGKILL)
            dead.add(pid)
            pause = max(pause, wait_for(lambda: not dead.issuperset(machine.children()), 60))
            if rng.random() < 0.7:
                wait_for(lambda: bool(worker_pids(app) - dead), 60)
                up = datetime.now(UTC)
                latest = max(latest, wait_for(lambda up=up: (info().last_run or up - SECOND) >= up, 20))
    print(f"\nlongest time without a process: {pause:.2f} s; latest window: {latest:.2f} s after one is up")
    assert pause < 5
    assert latest < 2


@pytest.mark.parametrize("server_store", ["sqlite", "redis", "postgres"], indirect=True)
def test_window_that_two_workers_fire_at_once_advances_the_schedule_once(
    server_store: ServerStore, run_log: RunLog
) -> None:
    """Both have read the same revision; the rule of the schedule is the barrier between read and fire."""
    url = server_store.url(30)
    with (
        barrier_app.app.override(store=url),
        worker_processes(url, run_log.path, barrier_app.WORKERS, "tests.faults.barrier_app"),
    ):
        wait_for(lambda: session_count(barrier_app.app) == barrier_app.WORKERS, 30)
        wait_for(lambda: len(met_windows(run_log)) >= 2, 30)
        before = record_of(barrier_app.app)
        wait_for(lambda: record_of(barrier_app.app).runs >= before.runs + 3, 30)
        barrier_app.app.sync.schedules.pause("tick")
        after = record_of(barrier_app.app)
        met = met_windows(run_log)
    assert after.rev == before.rev + (after.runs - before.runs) + 1, "one revision per window, and one for the pause"
    assert after.last_at is not None
    assert {(after.last_at // 1000) - number for number in range(after.runs - before.runs)} <= met


def met_windows(run_log: RunLog) -> set[int]:
    """The windows that both workers were about to fire at the same time."""
    names = Counter(path.stem for path in run_log.path.with_suffix(".barrier").glob("*"))
    return {int(window) for window, number in names.items() if number == barrier_app.WORKERS}


def record_of(app: App) -> Schedule:
    (record,) = call_store(app, lambda store: store.schedules())
    return record


def check_every_window(run_log: RunLog, url: str, workers: int, kills: int) -> None:
    rng = random.Random(11)
    dead: set[int] = set()
    with app.override(store=url):
        with forked_workers(url, run_log.path, workers, "tests.faults.schedule_app"):
            wait_for(lambda: bool(run_log.entries()), 30)
            begin = first_window(states())
            before = record_of(app)
            for _ in range(kills):
                wait_for(lambda: len(worker_pids(app) - dead) > 1, 30)
                pid = rng.choice(sorted(worker_pids(app) - dead))
                window = wait_for_the_next_window(rng)
                os.kill(pid, signal.SIGKILL)  # its parent starts another one
                dead.add(pid)
                wait_for(lambda window=window: (info().last_run or begin) >= window, 20)  # another worker fired it
            last = record_of(app)
            app.sync.schedules.pause("tick")
            wait_for(lambda: set(states().values()) <= {"succeeded"}, 20)
        end = info()
        found = states()
        entries = run_log.entries()
        assert end.last_run is not None
        windows = [begin + number * SECOND for number in range((end.last_run - begin) // SECOND + 1)]
        print(
            f"\n{len(windows)} windows, {workers} schedulers, {kills} kills: {len(found)} tasks, "
            f"{extra_runs(entries)} repeated runs of dead workers"
        )
        assert set(found) == {nominal_uuid("tick", to_ms(at)) for at in windows}, (
            "one task for each window, and no other"
        )
        assert set(found.values()) == {"succeeded"}
        assert (end.run_count, dict(end.skipped)) == (len(windows), {})
        assert end.next_run == windows[-1] + SECOND
        assert last.rev - before.rev <= last.runs - before.runs, "a window was fired twice"
        assert repeated_pids(entries) <= dead, "only runs of dead workers are repeated"


def first_window(found: dict[str, str]) -> datetime:
    """The uuid of a window begins with its time."""
    ms = min(int(uuid.replace("-", "")[:12], 16) for uuid in found)
    return datetime.fromtimestamp(ms / 1000, UTC)
