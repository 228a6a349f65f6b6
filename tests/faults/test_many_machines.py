"""Many machines on one store: processes and machines die, connections break, the store restarts, hints are lost."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import scaled, task_app
from tests.faults.commit_log import replay
from tests.faults.machines import Machine, machines
from tests.faults.proxy import Proxy, proxy
from tests.faults.run_log import RunLog, max_concurrent, takeover_times
from tests.faults.server_stores import ServerStore, server_store_params
from tests.faults.test_killed_schedulers import check_every_window
from tests.faults.test_killed_workers import counts, done, sessions
from tests.faults.test_limits import Location, check_never_three
from tests.faults.worker_processes import forked_workers, wait_for, wait_for_progress, worker_processes
from tests.support.app_access import worker_pids
from tests.support.fault_report import report_faults

pytestmark = [pytest.mark.fault, pytest.mark.timeout(1800)]

WORKERS = scaled(2, 4)
LEASE = 3  # seconds


def on_servers(*short: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("server_store", server_store_params(*short), indirect=True)


@pytest.mark.timed
@on_servers("redis")
def test_killed_workers_and_machines_lose_no_task(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path
) -> None:
    """Every fourth time (in the short form every second time) a whole machine is killed, with its supervisor."""
    tasks = scaled(600, 50_000)
    kills = scaled(2, 50)
    rng = random.Random(7)
    children: list[tuple[int, float]] = []
    cuts: list[tuple[int, float]] = []
    store = server_store.url(LEASE)
    with task_app.app.override(store=store):
        acknowledged: set[str] = set()
        limited: dict[str, object] = {}
        with machines(WORKERS, store, run_log_path) as hosts:
            wait_for(lambda: all_ready(hosts), 60)
            commits = server_store.commits()
            for number in range(1, kills + 1):
                wait_for(lambda: all_ready(hosts), 60, commits.follow)
                for task in (task_app.work, task_app.limited):
                    added = task.delay_many([{"number": n} for n in range(tasks // kills // 2)])
                    acknowledged |= {handle.uuid for handle in added}
                limited |= {handle.uuid: "limited" for handle in added}
                wait_for(lambda: counts().get("running", 0) >= WORKERS, 30)
                time.sleep(rng.uniform(0, 0.15))  # the random moment
                index = rng.randrange(WORKERS)
                if number % scaled(2, 4):
                    (pid,) = hosts[index].children()
                    children.append((pid, hosts[index].kill_child(pid)))
                else:
                    pids, died = hosts[index].kill()
                    cuts += [(pid, died) for pid in pids]
                    hosts[index] = Machine(store, run_log_path)
            wait_for(lambda: all_ready(hosts), 60)
            wait_for_progress(done, tasks, commits.follow)
            extra = task_app.fill_limit()
            wait_for_progress(done, tasks + len(extra))
        entries = run_log.entries()
        rows = commits.rows()
        replayed = replay(rows, limited | dict.fromkeys(extra, "limited"))
        fast = [seconds for pid, died in children for seconds in takeover_times(entries, pid, died)]
        slow = [seconds for pid, died in cuts for seconds in takeover_times(entries, pid, died)]
        report = report_faults(
            f"{server_store.name}, {len(children)} processes and {len(cuts)} machines killed",
            task_app.app, acknowledged | extra, entries, [*fast, *slow],
        )  # fmt: skip
        print(
            f"taken over from processes {summary(fast)}; from machines {summary(slow)} with a lease of {LEASE} s;"
            f" after each of {len(rows)} commits at most {replayed.most['limited']} of a source ran"
        )
        report.check(kills * task_app.SLOTS)
        assert counts() == {"succeeded": tasks + len(extra)}
    assert {entry.uuid for entry in entries if entry.event == "end"} >= acknowledged | extra
    assert max_concurrent(entries, extra) == 12, "the limit is fully used after the kills, and never exceeded"
    assert replayed.most["limited"] == 12, "the limit is not exceeded after any commit"
    assert fast, "no kill hit a running task"
    assert statistics.median(fast) < LEASE / 2, "a supervisor does not wait for the lease"


def all_ready(hosts: list[Machine]) -> bool:
    """Each machine has one ready process with a session, and there are no other sessions."""
    pids = worker_pids(task_app.app)
    children = [machine.children() for machine in hosts]
    ready = all("worker ready" in machine.log.read_text() for machine in hosts)
    return ready and all(len(each) == 1 for each in children) and pids == {pid for each in children for pid in each}


def summary(took: list[float]) -> str:
    if not took:
        return "none"
    ordered = sorted(took)
    return (
        f"{len(took)} (p50 {statistics.median(took) * 1000:.0f} ms, p99 {ordered[len(took) * 99 // 100] * 1000:.0f} ms,"
        f" max {ordered[-1] * 1000:.0f} ms)"
    )


@pytest.mark.timed
@on_servers("redis", "postgres")
def test_without_hints_tasks_start_within_the_poll_interval(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLL", "1")
    with task_app.app.override(store=server_store.url(30)), worker_processes(server_store.url(30), run_log_path, 1):
        wait_for(lambda: sessions() == 1, 30)
        server_store.drop_hints()
        waits = []
        for _ in range(scaled(3, 30)):
            handle = task_app.fresh.delay()
            wait_for(handle.done, 20)
            info = handle.info()
            assert info.started_at is not None
            waits.append((info.started_at - info.added_at).total_seconds())
    print(f"\nstarted after {', '.join(f'{s * 1000:.0f}' for s in waits)} ms with a poll interval of 1 s")
    assert max(waits) <= 1.5
    assert statistics.median(waits) > 0.1, "a hint was delivered"


@pytest.mark.timed
@on_servers("redis", "postgres")
def test_workers_recover_from_cut_connections_and_a_restarted_store(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path
) -> None:
    """Connections are cut or go silent, and the store is restarted, all under load."""
    with proxy(server_store.port) as link, task_app.app.override(store=server_store.url(30)):
        with machines(scaled(1, 2), server_store.url(30, link.port), run_log_path) as hosts:
            wait_for(lambda: sessions() == len(hosts), 30)
            load = Load()
            wait_for(load.add_and_expect(), 30)
            began = time.monotonic()
            before = [memory(machine) for machine in hosts]
            late = {
                "cut": max(recovery_time(load, link.cut) for _ in range(scaled(3, 50))),
                "half-open": max(recovery_time(load, link.go_silent) for _ in range(scaled(1, 5))),
                "restart": max(recovery_time(load, lambda: restart(server_store, link)) for _ in range(scaled(1, 5))),
            }
            lasted = time.monotonic() - began
            after = [memory(machine) for machine in hosts]
            load.end()
            lines = [complaints(machine) for machine in hosts]
        print(
            f"\nrecovered after {', '.join(f'{what} {took:.1f} s' for what, took in late.items())};"
            f" {[len(each) for each in lines]} lines in {lasted:.0f} s;"
            f" memory {[f'{kb / 1024:.0f} MB' for kb in before]} → {[f'{kb / 1024:.0f} MB' for kb in after]}"
        )
        assert max(late.values()) <= 10
        assert counts() == {"succeeded": load.number}
    for each in lines:
        failures = [line for line in each if "the store is back" not in line]
        assert len(failures) <= lasted / 10 + 1, "\n".join(each)
        assert len(each) <= 2 * len(failures), "\n".join(each)
    for kb_before, kb_after in zip(before, after, strict=True):
        assert kb_after - kb_before < 15_000


@on_servers("redis", "postgres")
def test_never_three_of_a_key_at_once(server_store: ServerStore, run_log: RunLog) -> None:
    """Eight processes with an embedded worker: a killed one is noticed after its lease."""
    location = Location(server_store.url(LEASE), run_log.path)
    with task_app.app.override(store=location.url), forked_workers(location.url, location.run_log, 8):
        wait_for(lambda: sessions() == 8, 60)
        check_never_three(location, server_store.commits())


@on_servers("redis", "postgres")
def test_every_window_has_one_task(server_store: ServerStore, run_log: RunLog) -> None:
    check_every_window(run_log, server_store.url(LEASE), scaled(2, 8), scaled(2, 60))


class Load:
    """A supply of short tasks, added directly and not through the proxy."""

    def __init__(self) -> None:
        self.number = 0

    def add(self) -> None:
        self.number += len(task_app.quick.delay_many([{}] * 300))

    def add_and_expect(self) -> Callable[[], bool]:
        """Adds tasks; the result is true when all tasks added so far have ended."""
        self.add()
        least = self.number

        def ended() -> bool:
            return done() >= least

        return ended

    def end(self) -> None:
        wait_for_progress(done, self.number)


def recovery_time(load: Load, fault: Callable[[], object]) -> float:
    """Seconds from the fault until tasks that were added after it have ended."""
    load.add()
    wait_for(lambda: counts().get("running", 0) > scaled(0, task_app.SLOTS), 30)  # all slots are in use
    fault()
    return wait_for(load.add_and_expect(), 20)


def restart(server_store: ServerStore, link: Proxy) -> None:
    server_store.stop()
    link.cut()
    time.sleep(0.5)  # the outage
    server_store.start()


def memory(machine: Machine) -> int:
    """The resident memory of its worker process in kB."""
    (pid,) = machine.children()
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def complaints(machine: Machine) -> list[str]:
    lines = machine.log.read_text().splitlines()
    assert not any("Traceback" in line for line in lines), "\n".join(lines)
    return [line for line in lines if any(word in line for word in ("ERROR", "WARNING", "trying again"))]
