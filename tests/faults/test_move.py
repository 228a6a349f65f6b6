"""A move from store to store, with workers on all, killed again and again: none is lost, none runs twice."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from onthedot import App
from tests.faults import scaled, shop
from tests.faults.fleet import ROOT, fleet, wait_for
from tests.faults.ledger import Ledger

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900)]

ENDED = ("succeeded", "failed", "cancelled")


@contextmanager
def _file(_: pytest.FixtureRequest, path: Path) -> Iterator[str]:
    yield f"sqlite:///{path}.db"


@contextmanager
def _database(request: pytest.FixtureRequest, _: Path) -> Iterator[str]:
    with request.getfixturevalue("postgres").database() as url:
        yield url


STORES: dict[str, Callable[[pytest.FixtureRequest, Path], AbstractContextManager[str]]] = {
    "sqlite": _file,
    "postgres": _database,
}
WAYS = {"sqlite-sqlite": (3, 20), "sqlite-postgres-sqlite": (1, 10)}  # kills on the way from one to the next


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[list[App], int]]:
    """The stores, each as an app sees it, and how often a mover is killed between two of them."""
    with ExitStack() as stack:
        apps: list[App] = []
        for number, kind in enumerate(request.param.split("-")):
            url = stack.enter_context(STORES[kind](request, tmp_path / f"shop{number}"))
            apps.append(App("shop", store=url))
            stack.callback(apps[-1].shutdown)
        yield apps, scaled(*WAYS[request.param])


def tally(app: App) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (_, state), number in app._core.bridge.call(lambda link: link.store.tally()).items():
        counts[state] += number
    return counts


def alive(app: App) -> int:
    return sum(number for state, number in tally(app).items() if state not in ENDED)


def mover(source: str, target: str, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "onthedot", "move", "--from", source, "--to", target, "--json", *flags]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def killed(source: str, target: App, late: float) -> bool:
    """A move that has begun, at a random moment; or at once, in its first batch. True: it was still under way."""
    before = tally(target).total()
    moving = mover(source, str(target._core.url))
    wait_for(lambda: moving.poll() is not None or tally(target).total() > before, 60)
    time.sleep(late)
    under_way = moving.poll() is None
    moving.send_signal(signal.SIGKILL)
    moving.communicate()
    return under_way


def test_a_killed_move_goes_on(way: tuple[list[App], int], ledger: Ledger, ledger_path: Path) -> None:
    apps, kills = way
    chance, batch, caught = random.Random(5), scaled(600, 1_000), 0
    acknowledged: set[str] = set()
    urls = [str(app._core.url) for app in apps]

    def add(url: str, seconds: float) -> None:
        """Half of them due at once, half later."""
        with shop.app.override(store=url):
            for after in (0.0, seconds):
                made = shop.work.options(after=after).delay_many([{"number": n} for n in range(batch // 2)])
                acknowledged.update(handle.uuid for handle in made)

    with ExitStack() as stack:
        for url in urls:
            stack.enter_context(fleet(url, ledger_path, 2))
        for source, target in pairwise(apps):
            url = str(source._core.url)
            for kill in range(kills):
                add(url, chance.uniform(1, 6))
                caught += killed(url, target, chance.uniform(0, 0.2) if kill % 2 else 0)
            last = mover(url, str(target._core.url), "--wait")
            out, err = last.communicate(timeout=240)
            assert (last.returncode, err) == (0, "")
            assert alive(source) == 0
            print(f"\n{url.partition(':')[0]}: {json.loads(out)['tasks']} moved in the last run")
        wait_for(lambda: sum(map(alive, apps)) == 0, 240)
    entries = ledger.entries()
    began = Counter(entry.uuid for entry in entries if entry.what == "begin")
    tallies = [tally(app) for app in apps]
    print(
        f"{len(acknowledged)} acknowledged, {kills * (len(apps) - 1)} kills, {caught} of them of a move under way: "
        f"lost {len(acknowledged - began.keys())}, extra runs {sum(began.values()) - len(began)}, "
        f"in each store {[dict(each) for each in tallies]}"
    )
    assert began == dict.fromkeys(acknowledged, 1)
    assert {entry.uuid for entry in entries if entry.what == "end"} == acknowledged
    assert sum(each["succeeded"] for each in tallies) == len(acknowledged)
    assert tallies[-1].keys() == {"succeeded"}
    assert caught, "no kill hit a move under way"
