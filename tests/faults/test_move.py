"""A move between two stores, with workers on both, killed again and again: none is lost, none runs twice."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from onthedot import App
from tests.faults import scaled, shop
from tests.faults.fleet import ROOT, fleet, wait_for
from tests.faults.ledger import Ledger

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]

ENDED = ("succeeded", "failed", "cancelled")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[App]:
    app = App("shop", store=f"sqlite:///{tmp_path}/other.db")
    yield app
    app.shutdown()


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


def test_a_killed_move_goes_on(store: str, other: App, ledger: Ledger, ledger_path: Path) -> None:
    target, chance = str(other._core.url), random.Random(5)
    kills, batch = scaled(3, 20), scaled(600, 1_000)
    acknowledged: set[str] = set()

    def add(seconds: float) -> None:
        """Half of them due at once, half later."""
        for after in (0.0, seconds):
            made = shop.work.options(after=after).delay_many([{"number": n} for n in range(batch // 2)])
            acknowledged.update(handle.uuid for handle in made)

    caught = 0
    with fleet(store, ledger_path, 2), fleet(target, ledger_path, 2):
        for kill in range(kills):
            add(chance.uniform(1, 6))
            before = sum(tally(other).values())
            moving = mover(store, target)
            wait_for(
                lambda moving=moving, before=before: moving.poll() is not None or tally(other).total() > before, 60
            )
            time.sleep(chance.uniform(0, 0.2) if kill % 2 else 0)  # the random moment; or at once, in the first batch
            caught += moving.poll() is None
            moving.send_signal(signal.SIGKILL)
            moving.communicate()
        last = mover(store, target, "--wait")
        out, err = last.communicate(timeout=240)
        assert (last.returncode, err) == (0, "")
        wait_for(lambda: alive(shop.app) + alive(other) == 0, 240)
    entries = ledger.entries()
    began = Counter(entry.uuid for entry in entries if entry.what == "begin")
    here = tally(shop.app)
    print(
        f"\n{len(acknowledged)} acknowledged, {kills} kills, {caught} of them of a move under way: "
        f"lost {len(acknowledged - began.keys())}, extra runs {sum(began.values()) - len(began)}, "
        f"ran here {here['succeeded']}, moved {here['cancelled']}, in the last run {json.loads(out)['tasks']}"
    )
    assert began == dict.fromkeys(acknowledged, 1)
    assert {entry.uuid for entry in entries if entry.what == "end"} == acknowledged
    assert here["succeeded"] + here["cancelled"] == len(acknowledged)
    assert tally(other) == {"succeeded": here["cancelled"]}
    assert caught, "no kill hit a move under way"
