"""A move to Redis and on from there, with workers on all, killed in the middle: none is lost, none runs twice."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from onthedot import App
from tests.faults import scaled, shop
from tests.faults.fleet import fleet, wait_for
from tests.faults.ledger import Ledger
from tests.faults.test_move import alive, mover, tally
from tests.services import valkey

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]


@pytest.fixture
def stores(server: valkey.Server, tmp_path: Path) -> Iterator[list[App]]:
    urls = (f"sqlite:///{tmp_path}/one.db", server.url, f"sqlite:///{tmp_path}/two.db")
    apps = [App("shop", store=url) for url in urls]
    yield apps
    for app in apps:
        app.shutdown()


def killed_once(source: App, target: App) -> bool:
    """Killed as soon as it has put something there; True: it was under way."""
    before, moving = tally(target).total(), mover(url(source), url(target))
    wait_for(lambda: moving.poll() is not None or tally(target).total() > before, 60)
    moving.send_signal(signal.SIGKILL)
    moving.communicate()
    return moving.returncode == -signal.SIGKILL


def moved(source: App, target: App) -> None:
    last = mover(url(source), url(target), "--wait")
    _, err = last.communicate(timeout=240)
    assert (last.returncode, err) == (0, "")


def url(app: App) -> str:
    return str(app._core.url)


def waiting(app: App) -> int:
    return sum(tally(app)[state] for state in ("scheduled", "ready", "parked"))


def test_to_redis_and_on_from_there(tmp_path: Path, stores: list[App]) -> None:
    """What is paused moves, with its pause, twice; what is not runs meanwhile, wherever it is."""
    path, batch, kills = tmp_path / "ledger", scaled(700, 6_000), scaled(1, 5)
    added, book, caught = list[str](), Ledger(path), 0
    with ExitStack() as stack:
        for app in stores:
            stack.enter_context(fleet(url(app), path, 1))
        stores[0].sync.pause("work", reason="moving")
        with shop.app.override(store=url(stores[0])):
            added += [handle.uuid for handle in shop.work.delay_many([{"number": n} for n in range(batch)])]
        for source, target in pairwise(stores):
            for _ in range(kills):
                with shop.app.override(store=url(source)):
                    made = shop.innocent.delay_many([{"number": n} for n in range(100)])
                added += [handle.uuid for handle in made]
                caught += killed_once(source, target)
            moved(source, target)
            assert (waiting(source), waiting(target) >= batch) == (0, True)
        stores[-1].sync.resume("work")
        wait_for(lambda: sum(map(alive, stores)) == 0, 240)
        ran = [tally(app)["succeeded"] for app in stores]
    entries = book.entries()
    book.close()
    began = Counter(entry.uuid for entry in entries if entry.what == "begin")
    print(f"\n{len(added)} tasks, {caught} of {2 * kills} kills hit a move under way; ran in the three: {ran}")
    assert began == dict.fromkeys(added, 1)
    assert {entry.uuid for entry in entries if entry.what == "end"} == set(added)
    assert sum(ran) == len(added)
    assert caught, "no kill hit a move under way"
