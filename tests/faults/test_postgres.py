"""Worker processes on a real Postgres: killed with -9, cut off. Nothing is lost, everything is settled once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import scaled, shop
from tests.faults.fleet import fleet, wait_for
from tests.faults.ledger import Ledger, extra_runs, most_at_once, taken_over_after
from tests.faults.test_kill import counts, done
from tests.support.services.postgres import Service

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]

WORKERS = 3
LEASE = 2  # seconds; a dead worker's tasks are waited for that long


@pytest.fixture
def store(postgres: Service) -> Iterator[str]:
    """A database of its own, and the shop's functions adding to it."""
    name = f"shop_{time.time_ns()}"
    postgres.ask(f"CREATE DATABASE {name}")
    url = f"{postgres.url.rpartition('/')[0]}/{name}?lease={LEASE}"
    try:
        with shop.app.override(store=url):
            yield url
    finally:
        left = postgres.ask("SELECT query FROM pg_stat_activity WHERE datname = %s", name)
        postgres.ask(f"DROP DATABASE {name} WITH (FORCE)")
    assert left == []


def test_killed_workers_lose_nothing(store: str, ledger: Ledger, ledger_path: Path, postgres: Service) -> None:
    tasks, kills = scaled(600, 20_000), scaled(4, 60)
    chance = random.Random(7)
    added = shop.work.delay_many([{"number": number} for number in range(tasks // 2)])
    added += shop.limited.delay_many([{"number": number} for number in range(tasks // 2)])
    acknowledged = {handle.uuid for handle in added}
    deaths: list[tuple[int, float]] = []
    with fleet(store, ledger_path, WORKERS) as workers:
        wait_for(lambda: done() > 0, 30)
        for number in range(kills):
            time.sleep(chance.uniform(0.02, 0.3))  # the random moment
            if number % 2:  # and one whose connections are cut
                cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
                postgres.ask(cut, store.rpartition("/")[2].partition("?")[0])
            index = chance.randrange(WORKERS)
            deaths.append(workers.kill(index))
            workers.replace(index)
        wait_for(lambda: done() == tasks, 300)
        whole = {handle.uuid for handle in shop.limited.delay_many([{"number": number} for number in range(60)])}
        wait_for(lambda: done() == tasks + 60, 60)
    entries = ledger.entries()
    took = sorted(seconds for pid, died in deaths for seconds in taken_over_after(entries, pid, died))
    print(f"\n{tasks} acknowledged, {kills} kills: extra runs {extra_runs(entries)}, taken over {took}")
    assert counts() == {"succeeded": tasks + 60}
    assert {entry.uuid for entry in entries if entry.what == "end"} == acknowledged | whole
    assert len({(e.uuid, e.fence) for e in entries if e.what == "begin"}) == sum(e.what == "begin" for e in entries)
    assert most_at_once(entries, whole) <= 12, "the limit's slots are whole after the kills, and never exceeded"
    assert [handle.result(timeout=5) for handle in added[:3]] == [0, 1, 2]


def test_poison_fails_alone(store: str, ledger: Ledger, ledger_path: Path) -> None:
    handles = shop.innocent.delay_many([{"number": number} for number in range(20)])
    bad = shop.poison.delay()
    with fleet(store, ledger_path, 2) as workers:
        wait_for(lambda: counts().get("succeeded", 0) == 20 and bad.done(), 120, workers.mend)
    assert [handle.result(timeout=5) for handle in handles] == list(range(20))
    assert counts() == {"succeeded": 20, "failed": 1}
