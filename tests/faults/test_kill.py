"""kill -9 at random moments: nothing is lost, everything is settled once, and nobody waits long."""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path

import pytest

from tests.faults import scaled, shop
from tests.faults.fleet import Fleet, fleet, wait_for
from tests.faults.ledger import Entry, Ledger, extra_runs, most_at_once, taken_over_after

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]

WORKERS = 4


def done() -> int:
    return counts().get("succeeded", 0)


def counts() -> dict[str, int]:
    found: dict[str, int] = {}
    for (_, state), number in shop.app._runtime.portal.run_sync(lambda link: link.store.tally()).items():
        found[state] = found.get(state, 0) + number
    return found


def sessions() -> int:
    return len(shop.app._runtime.portal.run_sync(lambda client: client.store.sessions()))


def test_killed_workers_lose_nothing(store: str, ledger: Ledger, ledger_path: Path) -> None:
    tasks, kills = scaled(4_000, 20_000), scaled(15, 100)
    chance = random.Random(7)
    half = tasks // 2
    added = shop.work.delay_many([{"number": n} for n in range(half)])
    added += shop.limited.delay_many([{"number": n} for n in range(half)])
    acknowledged = {handle.uuid for handle in added}
    deaths: list[tuple[int, float]] = []
    with fleet(store, ledger_path, WORKERS) as workers:
        wait_for(lambda: done() > 0, 20)
        for _ in range(kills):
            time.sleep(chance.uniform(0.02, 0.25))  # the random moment
            index = chance.randrange(WORKERS)
            deaths.append(workers.kill(index))
            workers.replace(index)
            wait_for(lambda: sessions() == WORKERS, 20)  # the dead one is noticed, the new one is at work
        wait_for(lambda: done() == tasks, 300)
        whole = {handle.uuid for handle in shop.limited.delay_many([{"number": n} for n in range(300)])}
        wait_for(lambda: done() == tasks + 300, 60)
    entries = ledger.entries()
    by_death = [taken for pid, died in deaths if (taken := sorted(taken_over_after(entries, pid, died)))]
    first = max(taken[0] for taken in by_death)  # another process is there; the others wait for a slot to be free
    took = sorted(seconds for taken in by_death for seconds in taken)
    lost = acknowledged - {entry.uuid for entry in entries}
    print(
        f"\n{tasks} acknowledged, {kills} kills: lost {len(lost)},"
        f" extra runs {extra_runs(entries)}, taken over {len(took)} in"
        f" p50 {statistics.median(took) * 1000:.0f} ms, p99 {took[len(took) * 99 // 100] * 1000:.0f} ms,"
        f" max {took[-1] * 1000:.0f} ms; of each death the first within {first * 1000:.0f} ms"
    )
    assert counts() == {"succeeded": tasks + 300}
    assert {entry.uuid for entry in entries if entry.what == "end"} == acknowledged | whole
    assert extra_runs(entries) <= kills * shop.SLOTS
    assert len({(e.uuid, e.fence) for e in entries if e.what == "begin"}) == sum(e.what == "begin" for e in entries)
    assert most_at_once(entries, whole) == 12, "the limit's slots are whole after the kills, and never exceeded"
    assert took, "no kill hit a running task"


def test_another_process_takes_over_within_100_ms(store: str, ledger: Ledger, ledger_path: Path) -> None:
    with fleet(store, ledger_path, 2) as workers:
        wait_for(lambda: sessions() == 2, 20)
        took = [_kill_the_holder(workers, ledger) for _ in range(scaled(5, 20))]
    print(f"\ntaken over after {', '.join(f'{s * 1000:.0f}' for s in took)} ms")
    assert max(took) <= 0.1


def _kill_the_holder(workers: Fleet, ledger: Ledger) -> float:
    handle = shop.slow.delay(0.3)

    def begun() -> list[Entry]:
        return [entry for entry in ledger.entries() if entry.uuid == handle.uuid and entry.what == "begin"]

    wait_for(lambda: len(begun()) == 1, 20)
    owner = next(index for index, worker in enumerate(workers.workers) if worker.pid == begun()[0].pid)
    pid, died = workers.kill(owner)
    wait_for(lambda: len(begun()) == 2, 20)
    assert handle.result(timeout=10) == "slow"
    workers.replace(owner)
    wait_for(lambda: sessions() == 2, 20)
    (took,) = taken_over_after(ledger.entries(), pid, died)
    return took


def test_poison_fails_alone(store: str, ledger: Ledger, ledger_path: Path) -> None:
    handles = shop.innocent.delay_many([{"number": n} for n in range(50)])
    bad = shop.poison.delay()
    handles += shop.innocent.delay_many([{"number": n} for n in range(50, 99)])
    with fleet(store, ledger_path, 2) as workers:
        wait_for(lambda: counts().get("succeeded", 0) == 99 and bad.done(), 60, workers.mend)
    assert [handle.result(timeout=1) for handle in handles] == list(range(99))
    assert counts() == {"succeeded": 99, "failed": 1}
    assert "died 3 times" in str(bad.exception(timeout=1))
