"""A move between stores is killed repeatedly while workers run on all of them: no task is lost, none runs twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from onthedot import App, IntervalSchedule
from onthedot.clock.epoch import to_ms
from onthedot.schedules.windows import nominal_uuid
from tests.faults import LONG, move_app, scaled
from tests.faults.run_log import RunEntry, RunLog
from tests.faults.test_killed_schedulers import first_window
from tests.faults.worker_processes import ROOT, environment, wait_for
from tests.support.app_access import call_store, worker_pids
from tests.support.process_guard import start_guarded
from tests.support.services import valkey

pytestmark = [pytest.mark.fault, pytest.mark.timeout(1800)]

ENDED = ("succeeded", "failed", "cancelled")
WINDOW = timedelta(seconds=0.5)


@contextmanager
def _file(_: pytest.FixtureRequest, path: Path) -> Iterator[str]:
    yield f"sqlite:///{path}.db"


@contextmanager
def _redis(_: pytest.FixtureRequest, path: Path) -> Iterator[str]:
    with valkey.server() as server:
        yield f"{server.url}?lease=3"


@contextmanager
def _database(request: pytest.FixtureRequest, _: Path) -> Iterator[str]:
    with request.getfixturevalue("postgres").database() as url:
        yield f"{url}{'&' if '?' in url else '?'}lease=3"


STORES: dict[str, Callable[[pytest.FixtureRequest, Path], AbstractContextManager[str]]] = {
    "sqlite": _file,
    "redis": _redis,
    "postgres": _database,
}
ROUTES = {  # kills between two stores, in a short run and in a long one; a repeated name means back to it
    "sqlite-redis-postgres": (1, 10),
    "sqlite-sqlite2-sqlite": (1, 10),
    "postgres-redis-postgres-redis": (0, 4),
}


@pytest.fixture(params=ROUTES)
def route(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[list[App], int]]:
    """The stores, each with its app, and the number of kills between two of them."""
    kills = scaled(*ROUTES[request.param])
    if not kills:
        pytest.skip("ONTHEDOT_FAULTS=long")
    with ExitStack() as stack:
        apps: dict[str, App] = {}
        names = request.param.split("-")
        for name in dict.fromkeys(names):
            url = stack.enter_context(STORES[name.rstrip("2")](request, tmp_path / name))
            apps[name] = App("moves", store=url)
            stack.callback(apps[name].shutdown)
        yield [apps[name] for name in names], kills


def url_of(app: App) -> str:
    return str(app.runtime.url)


def tally(app: App) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (_, state), number in call_store(app, lambda store: store.tally()).items():
        counts[state] += number
    return counts


def alive(app: App) -> int:
    return sum(number for state, number in tally(app).items() if state not in ENDED)


@contextmanager
def workers(app: App, run_log: Path) -> Iterator[None]:
    """`onthedot worker`: a supervisor, and two processes that it replaces when they die."""
    command = [sys.executable, "-m", "onthedot", "worker", "tests.faults.move_app:app", "--processes", "2"]
    with run_log.with_suffix(".log").open("ab") as log:
        process = start_guarded(command, env=environment(url_of(app), run_log), cwd=ROOT, stdout=log, stderr=log)
    try:
        wait_for(lambda: len(worker_pids(app)) == 2, 60)
        yield
    finally:
        process.terminate()
        process.wait(60)


def start_move(source: App, target: App, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "onthedot", "move", "--from", url_of(source), "--to", url_of(target), "--json"]
    return start_guarded([*command, *flags], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_a_move(source: App, target: App, late: float) -> bool:
    """Kills a move some seconds after its first batch. Returns whether it was still running."""
    before = tally(target).total()
    moving = start_move(source, target)
    wait_for(lambda: moving.poll() is not None or tally(target).total() > before, 60)
    time.sleep(late)
    moving.send_signal(signal.SIGKILL)
    moving.communicate()
    return moving.returncode == -signal.SIGKILL


class MoveRun:
    """One test run: added tasks, moves, and kills."""

    def __init__(self, apps: list[App], run_log: Path, batch: int) -> None:
        self.route = apps
        self.run_log = run_log
        self.batch = batch
        self.apps = list(dict.fromkeys(apps))  # the route may contain an app twice
        self.rng = random.Random(5)
        self.acknowledged: set[str] = set()
        self.caught = 0  # kills of a running move
        self.dead: set[int] = set()  # workers

    def add(self, app: App) -> None:
        """Adds a batch: a third is due at once, a third later, a third is paused."""
        later = self.rng.uniform(1, 6)
        calls = [{"number": number} for number in range(self.batch // 3)]
        with move_app.app.override(store=url_of(app)):
            for adding in (move_app.work, move_app.work.options(after=later), move_app.paused):
                self.acknowledged.update(handle.uuid for handle in adding.delay_many(calls))

    def move(self, source: App, target: App, kills: int) -> None:
        """Moves from one store to the next: some moves are killed, the last one waits for running tasks."""
        for kill in range(kills):
            self.add(source)
            self.caught += kill_a_move(source, target, self.rng.uniform(0, 0.3) if kill % 2 else 0)
            if LONG:
                self.kill_a_worker(self.rng.choice((source, target)))
        last = start_move(source, target, "--wait")
        out, err = last.communicate(timeout=300)
        assert (last.returncode, err) == (0, ""), out
        assert (alive(source), json.loads(out)["schedules"]) == (0, ["pulse"])

    def kill_a_worker(self, app: App) -> None:
        wait_for(lambda: bool(worker_pids(app) - self.dead), 60)
        pid = self.rng.choice(sorted(worker_pids(app) - self.dead))
        os.kill(pid, signal.SIGKILL)  # its supervisor starts another one
        self.dead.add(pid)

    def windows(self) -> set[str]:
        """The uuids of the schedule's tasks; checks that each window has one task in one of the stores."""
        found: Counter[str] = Counter()
        for app in self.apps:
            page = app.sync.find(source="tick", state="succeeded", limit=10_000)
            found.update(task.uuid for task in page)
        begin = first_window(dict.fromkeys(found, ""))
        end = self.route[-1].sync.schedules.get("pulse")
        assert end.last_run is not None
        number = (end.last_run - begin) // WINDOW + 1
        assert found == {nominal_uuid("pulse", to_ms(begin + each * WINDOW)): 1 for each in range(number)}
        assert end.run_count == number
        return set(found)

    def summary(self, entries: list[RunEntry]) -> str:
        runs = sum(entry.event == "begin" for entry in entries)
        return (
            f"{len(self.acknowledged)} acknowledged, {self.caught} running moves killed, {len(self.dead)} workers "
            f"killed; {runs} runs; in each store {[dict(tally(app)) for app in self.apps]}"
        )


def repeated_runs(entries: list[RunEntry], dead: set[int]) -> list[RunEntry]:
    """Runs of live processes after which the task began once more."""
    begun = sorted((entry for entry in entries if entry.event == "begin"), key=lambda entry: entry.at)
    last = {entry.uuid: entry for entry in begun}
    return [entry for entry in begun if entry is not last[entry.uuid] and entry.pid not in dead]


def test_killed_move_continues_when_it_is_started_again(
    route: tuple[list[App], int], run_log: RunLog, run_log_path: Path
) -> None:
    apps, kills = route
    made = MoveRun(apps, run_log_path, scaled(600, 1_002))
    with ExitStack() as stack:
        for app in made.apps:
            stack.enter_context(workers(app, run_log_path))
        apps[0].sync.pause("paused", reason="to the last store")
        with move_app.app.override(store=url_of(apps[0])):
            every = IntervalSchedule(WINDOW.total_seconds(), overlap="allow", catch_up="all")
            move_app.app.sync.schedules.put("pulse", move_app.tick.s(), every)
        for source, target in pairwise(apps):
            made.move(source, target, kills)
        apps[-1].sync.resume("paused")
        apps[-1].sync.schedules.pause("pulse")
        wait_for(lambda: sum(map(alive, made.apps)) == 0, 300)
        entries = run_log.entries()
        print(f"\n{made.summary(entries)}")
        expected = made.acknowledged | made.windows()
    assert {entry.uuid for entry in entries if entry.event == "end"} == expected
    assert {entry.uuid for entry in entries if entry.event == "begin"} == expected
    assert repeated_runs(entries, made.dead) == []
    assert sum(tally(app)["succeeded"] for app in made.apps) == len(expected)
    assert all(tally(app).keys() <= {"succeeded", "cancelled"} for app in made.apps), "only moved tasks are cancelled"
    assert made.caught, "no kill hit a running move"
