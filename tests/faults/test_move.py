"""A move from store to store, with workers on all, killed again and again: none is lost, none runs twice."""

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
from tests.faults import LONG, caravan, scaled
from tests.faults.fleet import ROOT, environment, wait_for
from tests.faults.ledger import Entry, Ledger
from tests.faults.test_schedule_kill import first_window
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
WAYS = {  # kills on the way from one to the next, in a short run and in a long one; a name twice: back to there
    "sqlite-redis-postgres": (1, 10),
    "sqlite-sqlite2-sqlite": (1, 10),
    "postgres-redis-postgres-redis": (0, 4),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[list[App], int]]:
    """The stores, each as an app sees it, and how often a mover is killed between two of them."""
    kills = scaled(*WAYS[request.param])
    if not kills:
        pytest.skip("ONTHEDOT_FAULTS=long")
    with ExitStack() as stack:
        apps: dict[str, App] = {}
        names = request.param.split("-")
        for name in dict.fromkeys(names):
            url = stack.enter_context(STORES[name.rstrip("2")](request, tmp_path / name))
            apps[name] = App("caravan", store=url)
            stack.callback(apps[name].shutdown)
        yield [apps[name] for name in names], kills


def url_of(app: App) -> str:
    return str(app._runtime.url)


def tally(app: App) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (_, state), number in app._runtime.portal.run_sync(lambda link: link.store.tally()).items():
        counts[state] += number
    return counts


def alive(app: App) -> int:
    return sum(number for state, number in tally(app).items() if state not in ENDED)


@contextmanager
def workers(app: App, ledger: Path) -> Iterator[None]:
    """`onthedot worker`: a supervisor, and two processes that it replaces when they die."""
    command = [sys.executable, "-m", "onthedot", "worker", "tests.faults.caravan:app", "--processes", "2"]
    with ledger.with_suffix(".log").open("ab") as log:
        process = subprocess.Popen(command, env=environment(url_of(app), ledger), cwd=ROOT, stdout=log, stderr=log)
    try:
        wait_for(lambda: len(pids(app)) == 2, 60)
        yield
    finally:
        process.terminate()
        process.wait(60)


def pids(app: App) -> set[int]:
    return {each.pid for each in app._runtime.portal.run_sync(lambda link: link.operations.workers())}


def mover(source: App, target: App, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "onthedot", "move", "--from", url_of(source), "--to", url_of(target), "--json"]
    return subprocess.Popen([*command, *flags], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def killed(source: App, target: App, late: float) -> bool:
    """A move that has begun, at a random moment; or at once, in its first batch. True: it was still under way."""
    before, moving = tally(target).total(), mover(source, target)
    wait_for(lambda: moving.poll() is not None or tally(target).total() > before, 60)
    time.sleep(late)
    moving.send_signal(signal.SIGKILL)
    moving.communicate()
    return moving.returncode == -signal.SIGKILL


class Caravan:
    """What is sent on its way, by whom, and who died over it."""

    def __init__(self, apps: list[App], ledger: Path, batch: int) -> None:
        self.way, self.ledger, self.batch = apps, ledger, batch
        self.apps = list(dict.fromkeys(apps))  # one may be there twice
        self.chance = random.Random(5)
        self.acknowledged: set[str] = set()
        self.caught = 0  # kills of a move that was under way
        self.dead: set[int] = set()  # workers

    def add(self, app: App) -> None:
        """Due at once, due later, and paused: a third of each."""
        later = self.chance.uniform(1, 6)
        calls = [{"number": number} for number in range(self.batch // 3)]
        with caravan.app.override(store=url_of(app)):
            for adding in (caravan.work, caravan.work.options(after=later), caravan.cargo):
                self.acknowledged.update(handle.uuid for handle in adding.delay_many(calls))

    def lead(self, source: App, target: App, kills: int) -> None:
        """From one to the next, killed so often; then to the end, while the workers here finish what they have."""
        for kill in range(kills):
            self.add(source)
            self.caught += killed(source, target, self.chance.uniform(0, 0.3) if kill % 2 else 0)
            if LONG:
                self.kill_a_worker(self.chance.choice((source, target)))
        last = mover(source, target, "--wait")
        out, err = last.communicate(timeout=300)
        assert (last.returncode, err) == (0, ""), out
        assert (alive(source), json.loads(out)["schedules"]) == (0, ["pulse"])

    def kill_a_worker(self, app: App) -> None:
        wait_for(lambda: bool(pids(app) - self.dead), 60)
        pid = self.chance.choice(sorted(pids(app) - self.dead))
        os.kill(pid, signal.SIGKILL)  # of our supervisor, which makes another
        self.dead.add(pid)

    def windows(self) -> set[str]:
        """The tasks of the schedule: each window has one, in one of the stores, from the first to the last."""
        found: Counter[str] = Counter()
        for app in self.apps:
            page = app.sync.find(source="tick", state="succeeded", limit=10_000)
            found.update(task.uuid for task in page)
        begin, end = first_window(dict.fromkeys(found, "")), self.way[-1].sync.schedules.get("pulse")
        assert end.last_run is not None
        number = (end.last_run - begin) // WINDOW + 1
        assert found == {nominal_uuid("pulse", to_ms(begin + each * WINDOW)): 1 for each in range(number)}
        assert end.run_count == number
        return set(found)

    def told(self, entries: list[Entry]) -> str:
        runs = sum(entry.what == "begin" for entry in entries)
        return (
            f"{len(self.acknowledged)} acknowledged, {self.caught} moves killed under way, {len(self.dead)} workers "
            f"killed; {runs} runs; in each store {[dict(tally(app)) for app in self.apps]}"
        )


def nobody_else(entries: list[Entry], dead: set[int]) -> list[Entry]:
    """Runs after which the task began once more, although the process did not die."""
    begun = sorted((entry for entry in entries if entry.what == "begin"), key=lambda entry: entry.at)
    last = {entry.uuid: entry for entry in begun}
    return [entry for entry in begun if entry is not last[entry.uuid] and entry.pid not in dead]


def test_a_killed_move_goes_on(way: tuple[list[App], int], ledger: Ledger, ledger_path: Path) -> None:
    apps, kills = way
    made = Caravan(apps, ledger_path, scaled(600, 1_002))
    with ExitStack() as stack:
        for app in made.apps:
            stack.enter_context(workers(app, ledger_path))
        apps[0].sync.pause("cargo", reason="to the last store")
        with caravan.app.override(store=url_of(apps[0])):
            every = IntervalSchedule(WINDOW.total_seconds(), overlap="allow", catch_up="all")
            caravan.app.sync.schedules.put("pulse", caravan.tick.s(), every)
        for source, target in pairwise(apps):
            made.lead(source, target, kills)
        apps[-1].sync.resume("cargo")
        apps[-1].sync.schedules.pause("pulse")
        wait_for(lambda: sum(map(alive, made.apps)) == 0, 300)
        entries = ledger.entries()
        print(f"\n{made.told(entries)}")
        expected = made.acknowledged | made.windows()
    assert {entry.uuid for entry in entries if entry.what == "end"} == expected
    assert {entry.uuid for entry in entries if entry.what == "begin"} == expected
    assert nobody_else(entries, made.dead) == []
    assert sum(tally(app)["succeeded"] for app in made.apps) == len(expected)
    assert all(tally(app).keys() <= {"succeeded", "cancelled"} for app in made.apps), "cancelled: moved from there"
    assert made.caught, "no kill hit a move under way"
