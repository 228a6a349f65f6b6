"""Many machines on one store: processes and machines die, links break, the store is restarted, hints are lost."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import scaled, shop
from tests.faults.commits import replayed
from tests.faults.fleet import crew, fleet, wait_for
from tests.faults.grounds import Ground, grounds
from tests.faults.ledger import Ledger, extra_runs, most_at_once, taken_over_after
from tests.faults.machines import Machine, machines
from tests.faults.proxy import Proxy, proxy
from tests.faults.test_kill import counts, done, sessions
from tests.faults.test_limits import Place, never_three
from tests.faults.test_schedule_kill import every_window

pytestmark = [pytest.mark.fault, pytest.mark.timeout(1800)]

WORKERS = scaled(2, 4)
LEASE = 3  # seconds


def on(*short: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("ground", grounds(*short), indirect=True)


@on("redis")
def test_killed_workers_and_machines_lose_nothing(ground: Ground, ledger: Ledger, ledger_path: Path) -> None:
    """Every fourth time (in the short form the second) a whole machine, with nobody left to tell the store."""
    tasks, kills, chance = scaled(600, 50_000), scaled(2, 50), random.Random(7)
    children, cuts = list[tuple[int, float]](), list[tuple[int, float]]()
    store = ground.at(LEASE)
    with shop.app.override(store=store):
        acknowledged, limited = set[str](), dict[str, object]()
        with machines(WORKERS, store, ledger_path) as fleet:
            wait_for(lambda: all_at_work(fleet), 60)
            commits = ground.commits()
            for number in range(1, kills + 1):
                wait_for(lambda: all_at_work(fleet), 60, commits.follow)
                for task in (shop.work, shop.limited):
                    added = task.delay_many([{"number": n} for n in range(tasks // kills // 2)])
                    acknowledged |= {handle.uuid for handle in added}
                limited |= {handle.uuid: "limited" for handle in added}
                wait_for(lambda: counts().get("running", 0) >= WORKERS, 30)
                time.sleep(chance.uniform(0, 0.15))  # the random moment
                index = chance.randrange(WORKERS)
                if number % scaled(2, 4):
                    (pid,) = fleet[index].children()
                    children.append((pid, fleet[index].kill_child(pid)))
                else:
                    pids, died = fleet[index].kill()
                    cuts += [(pid, died) for pid in pids]
                    fleet[index] = Machine(store, ledger_path)
            wait_for(lambda: all_at_work(fleet), 60)
            wait_for(lambda: done() == tasks, 1200, commits.follow)
            whole = {handle.uuid for handle in shop.limited.delay_many([{"number": n} for n in range(100)])}
            wait_for(lambda: done() == tasks + 100, 60)
        entries, rows = ledger.entries(), commits.rows()
        said = replayed(rows, limited | dict.fromkeys(whole, "limited"))
        fast = [seconds for pid, died in children for seconds in taken_over_after(entries, pid, died)]
        slow = [seconds for pid, died in cuts for seconds in taken_over_after(entries, pid, died)]
        print(
            f"\n{tasks} acknowledged, {len(children)} processes and {len(cuts)} machines killed:"
            f" lost {len(acknowledged - {entry.uuid for entry in entries})}, extra runs {extra_runs(entries)};"
            f" taken over from processes {told(fast)}; from machines {told(slow)} with a lease of {LEASE} s;"
            f" after each of {len(rows)} commits at most {said.most['limited']} of a source ran"
        )
        assert counts() == {"succeeded": tasks + 100}
    assert {entry.uuid for entry in entries if entry.what == "end"} >= acknowledged | whole
    assert extra_runs(entries) <= kills * shop.SLOTS
    begun = [(entry.uuid, entry.fence) for entry in entries if entry.what == "begin"]
    assert len(set(begun)) == len(begun), "no lease is given twice"
    assert most_at_once(entries, whole) <= 12, "the limit is not exceeded"
    assert scaled(shop.SLOTS, 12) <= said.most["limited"] <= 12, "nor by any commit"
    assert fast, "no kill hit a running task"
    assert statistics.median(fast) < LEASE / 2, "a supervisor does not wait for the lease"


def all_at_work(fleet: list[Machine]) -> bool:
    """One process each, which the store knows and its supervisor has heard of; and the store knows no other."""
    pids = {worker.pid for worker in shop.app._runtime.portal.run_sync(lambda link: link.operations.workers())}
    children = [machine.children() for machine in fleet]
    ready = all("worker ready" in machine.log.read_text() for machine in fleet)
    return ready and all(len(each) == 1 for each in children) and pids == {pid for each in children for pid in each}


def told(took: list[float]) -> str:
    if not took:
        return "none"
    ordered = sorted(took)
    return (
        f"{len(took)} (p50 {statistics.median(took) * 1000:.0f} ms, p99 {ordered[len(took) * 99 // 100] * 1000:.0f} ms,"
        f" max {ordered[-1] * 1000:.0f} ms)"
    )


@on("postgres")
def test_without_hints_tasks_start_within_the_poll_interval(
    ground: Ground, ledger: Ledger, ledger_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLL", "1")
    with shop.app.override(store=ground.at(30)), fleet(ground.at(30), ledger_path, 1):
        wait_for(lambda: sessions() == 1, 30)
        ground.drop_hints()
        waits = []
        for _ in range(scaled(3, 30)):
            handle = shop.fresh.delay()
            wait_for(handle.done, 20)
            info = handle.info()
            assert info.started_at is not None
            waits.append((info.started_at - info.added_at).total_seconds())
    print(f"\nstarted after {', '.join(f'{s * 1000:.0f}' for s in waits)} ms with a poll interval of 1 s")
    assert max(waits) <= 1.5
    assert statistics.median(waits) > 0.1, "they were heard of"


@on("redis", "postgres")
def test_work_goes_on_by_itself(ground: Ground, ledger: Ledger, ledger_path: Path) -> None:
    """Connections that are cut, a link that goes silent, a store that is restarted: all under load."""
    with proxy(ground.port) as link, shop.app.override(store=ground.at(30)):
        with machines(scaled(1, 2), ground.at(30, link.port), ledger_path) as fleet:
            wait_for(lambda: sessions() == len(fleet), 30)
            load = Load()
            wait_for(load.goes_on(), 30)
            began, before = time.monotonic(), [memory(machine) for machine in fleet]
            late = {
                "cut": max(tried(load, link.cut) for _ in range(scaled(3, 50))),
                "half-open": max([tried(load, link.go_silent) for _ in range(scaled(0, 5))], default=0.0),
                "restart": max(tried(load, lambda: restart(ground, link)) for _ in range(scaled(1, 5))),
            }
            lasted, after = time.monotonic() - began, [memory(machine) for machine in fleet]
            load.end()
            lines = [complaints(machine) for machine in fleet]
        print(
            f"\nwork went on after {', '.join(f'{what} {took:.1f} s' for what, took in late.items())};"
            f" {[len(each) for each in lines]} lines in {lasted:.0f} s;"
            f" memory {[f'{kb / 1024:.0f} MB' for kb in before]} → {[f'{kb / 1024:.0f} MB' for kb in after]}"
        )
        assert max(late.values()) <= 10
        assert counts() == {"succeeded": load.number}
    for each in lines:
        assert len(each) <= lasted / 10 + 1, "\n".join(each)
    for kb_before, kb_after in zip(before, after, strict=True):
        assert kb_after - kb_before < 15_000


@on("redis", "postgres")
def test_never_three_of_a_key_at_once(ground: Ground, ledger: Ledger) -> None:
    """Eight processes that embed a worker: who is killed is missed after its lease."""
    place = Place(ground.at(LEASE), ledger.path)
    with shop.app.override(store=place.url), crew(place.url, place.ledger, 8):
        wait_for(lambda: sessions() == 8, 60)
        never_three(place, ground.commits())


@on()
def test_every_window_has_one_task(ground: Ground, ledger: Ledger) -> None:
    every_window(ledger, ground.at(LEASE), 8, scaled(2, 60))


class Load:
    """Tasks, always some; added past the link, and again if the store does not take them."""

    def __init__(self) -> None:
        self.number = 0

    def add(self) -> None:
        self.number += len(shop.quick.delay_many([{}] * 300))

    def goes_on(self) -> Callable[[], bool]:
        """All that was added up to now, and some more, has been done."""
        self.add()
        least = self.number

        def ended() -> bool:
            return done() >= least

        return ended

    def end(self) -> None:
        wait_for(lambda: done() == self.number, 60)


def tried(load: Load, fault: Callable[[], object]) -> float:
    """Seconds after the fault until what was added after it has been done."""
    load.add()
    wait_for(lambda: counts().get("running", 0) > scaled(0, shop.SLOTS), 30)  # all are at it
    fault()
    return wait_for(load.goes_on(), 60)


def restart(ground: Ground, link: Proxy) -> None:
    ground.stop()
    link.cut()
    time.sleep(0.5)  # so long it is away
    ground.start()


def memory(machine: Machine) -> int:
    """Of its worker process, in kB."""
    (pid,) = machine.children()
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def complaints(machine: Machine) -> list[str]:
    lines = machine.log.read_text().splitlines()
    assert not any("Traceback" in line for line in lines), "\n".join(lines)
    return [line for line in lines if any(word in line for word in ("ERROR", "WARNING", "trying again"))]
