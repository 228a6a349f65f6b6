"""Chaos on a real server: every process has its own proxy, which cuts, swallows, delays and delivers late.

Three workers and a producer. Beside the faults per read, single nodes are cut off, or get bytes in one direction only.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from onthedot import App, StoreError
from onthedot.model.task import TaskInfo
from onthedot.model.uuid7 import new_uuid
from onthedot.stores.contract import NewTask
from tests.faults import LONG, chaos_app, scaled
from tests.faults.machines import machines
from tests.faults.proxy import NO_FAULTS, FaultRates, Proxy, proxy
from tests.faults.run_log import RunEntry, RunLog
from tests.faults.server_stores import ServerStore
from tests.faults.worker_processes import ROOT, environment, wait_for, worker_processes
from tests.support.app_access import call_store, session_count
from tests.support.fault_report import ENDED, read_records, report_faults
from tests.support.process_guard import start_guarded

pytestmark = [pytest.mark.fault, pytest.mark.timeout(400 if LONG else 150)]

WORKERS = 3
SECONDS = scaled(10, 60)  # of faults
NODE_FAULT = (3 if LONG else 1.25) * chaos_app.LEASE  # seconds
STUCK = 45  # seconds after the faults in which everything has ended


@dataclass(frozen=True)
class NodeFault:
    node: int
    at: float
    pids: frozenset[int]


class Chaos:
    """The proxies of the nodes, and what happens to them."""

    def __init__(self, server_store: ServerStore, links: list[Proxy], random: Random) -> None:
        self.server_store = server_store
        self.links = links  # the last one is the producer's
        self.random = random
        self.node_faults: list[NodeFault] = []
        self.pids_of: list[Callable[[], set[int]]] = []
        self.stop_producer: Callable[[], None] | None = None

    def run(self) -> None:
        for link in self.links:
            link.rates = FaultRates()
        end = time.monotonic() + SECONDS
        while (left := end - time.monotonic()) > 2:
            time.sleep(1)
            self._disturb_node(min(NODE_FAULT, left - 1))
        time.sleep(max(0.0, end - time.monotonic()))
        for link in self.links:
            link.rates = NO_FAULTS

    def _disturb_node(self, seconds: float) -> None:
        """One node is cut off, or gets no bytes, or its bytes get lost, while the others work."""
        node = self.random.randrange(WORKERS)
        link = self.links[node]
        kind = self.random.choice(["cut off", "to the server", "to the client"])
        self.node_faults.append(NodeFault(node, time.monotonic(), frozenset(self.pids_of[node]())))
        if kind == "cut off":
            link.cut_off()
        else:
            link.block(kind)
        time.sleep(seconds)
        link.restore()

    def counts(self) -> dict[str, int]:
        return dict(sum((link.counts for link in self.links), Counter()))


@contextlib.contextmanager
def started(server_store: ServerStore, run_log: Path, seed: int) -> Iterator[Chaos]:
    """Two workers, a supervised one, and the producer; the store is used directly by this process."""
    direct = server_store.url(chaos_app.LEASE)
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(proxy(server_store.port, seed * 10 + node)) for node in range(WORKERS + 1)]
        stack.enter_context(chaos_app.app.override(store=direct))
        chaos = Chaos(server_store, links, Random(seed))
        urls = [server_store.url(chaos_app.LEASE, link.port) for link in links]
        for node in range(WORKERS - 1):
            workers = stack.enter_context(worker_processes(urls[node], run_log, 1, "tests.faults.chaos_app"))
            chaos.pids_of.append(lambda workers=workers: {workers.workers[0].pid})
        (machine,) = stack.enter_context(machines(1, urls[-2], run_log, program="tests.faults.chaos_app:app"))
        chaos.pids_of.append(lambda: set(machine.children()))
        wait_for(lambda: session_count(chaos_app.app) == WORKERS, 60)
        producer = start_guarded(
            [sys.executable, "-m", "tests.faults.chaos_app", "produce"],
            env={**environment(urls[-1], run_log), "DIRECT": direct, "SEED": str(seed)}, cwd=ROOT,
        )  # fmt: skip

        def stop_producer() -> None:
            """Its adds in flight end before."""
            run_log.with_suffix(".stop").touch()
            assert producer.wait(60) == 0

        chaos.stop_producer = stop_producer
        try:
            wait_for(run_log.with_suffix(".acknowledged").exists, 30)
            yield chaos
        finally:
            producer.kill()
            producer.wait()


@pytest.mark.parametrize("seed", range(1, scaled(1, 10) + 1))
@pytest.mark.parametrize("server_store", ["redis", "postgres"], indirect=True)
def test_chaos_loses_and_doubles_nothing(server_store: ServerStore, run_log: RunLog, seed: int) -> None:
    with started(server_store, run_log.path, seed) as chaos:
        chaos.run()
        stopped = time.monotonic()
        assert chaos.stop_producer is not None
        chaos.stop_producer()
        try:
            wait_for(all_ended, STUCK)
            wait_for(lambda: not server_store.leftovers(), 20)  # the session of a client that cancels lives for 10 s
        finally:
            uuids = {uuid for (uuid,) in lines_of(run_log.path.with_suffix(".acknowledged"))}
            report = report_faults(
                f"chaos, {server_store.name}, {SECONDS} s, seed {seed}, {chaos.counts()}",
                chaos_app.app, uuids, run_log.entries(), recovery_times(run_log.entries(), chaos.node_faults),
            )  # fmt: skip
            print(
                f"all had ended {time.monotonic() - stopped:.1f} s after the faults; left: {server_store.leftovers()}"
            )
            print(f"tally: {tally()}")
        report.check(most_extra_runs=(len(chaos.node_faults) + 1) * WORKERS * chaos_app.SLOTS)
        check_refused(run_log.path)
        check_store()
        assert overlaps(run_log.entries()) == []


def all_ended() -> bool:
    return all(state in ENDED for (_, state), number in tally().items() if number)


def tally() -> dict[tuple[str, str], int]:
    return dict(call_store(chaos_app.app, lambda store: store.tally()))


def lines_of(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def check_refused(path: Path) -> None:
    """The error of an add is final: what was not in the store then is not there now."""
    refused = {uuid: (present == "1", stored) for uuid, present, stored in lines_of(path.with_suffix(".refused"))}
    records = read_records(chaos_app.app, refused)
    print(f"{len(refused)} adds refused, {sum(present for present, _ in refused.values())} of them were stored")
    late = [uuid for uuid, (present, _) in refused.items() if not present and records[uuid] is not None]
    print(f"{len(late)} of them were stored after the error")
    if refuses_late_adds():
        assert late == [], "a refused task was stored after the error"
    wrong = [uuid for uuid, (present, stored) in refused.items() if present and stored == "False"]
    assert wrong == [], "the error stated that the task is not stored"


def refuses_late_adds() -> bool:
    """Whether the store enforces the deadline of an add."""
    probe: App[None] = App("probe", store=chaos_app.app.runtime.url)
    try:
        call_store(probe, lambda store: store.add([NewTask(new_uuid(), "probe", b"{}")], 1.0))
    except StoreError:
        return True
    finally:
        probe.shutdown()
    return False


def check_store() -> None:
    """The tally is the count, each parent that succeeded has one child, each flow all its members, and every task
    succeeded or was cancelled."""
    tasks = every_task()
    count = Counter((task.source, task.state.value) for task in tasks)
    assert {key: number for key, number in tally().items() if number} == count
    assert {state for _, state in count} <= {"succeeded", "cancelled"}
    parents = Counter(task.uuid for task in tasks if task.source == "parent" and task.state.value == "succeeded")
    children = Counter(task.args["of"] for task in tasks if task.source == "child")
    assert parents == children
    assert count["member", "succeeded"] == chaos_app.MEMBERS * count["last", "succeeded"]
    print(f"{len(tasks)} tasks in the store; {len(parents)} parents, {len(children)} children")


def every_task() -> list[TaskInfo]:
    found: list[TaskInfo] = []
    cursor = None
    while True:
        page = chaos_app.app.sync.find(limit=1000, cursor=cursor)
        found += page
        cursor = page.cursor
        if cursor is None:
            return found


def recovery_times(entries: list[RunEntry], faults: list[NodeFault]) -> list[float]:
    """For each run that a disturbed node had begun before and that was not settled: seconds until the next start."""
    begun = [entry for entry in entries if entry.event == "begin"]
    by_task: dict[str, list[RunEntry]] = {}
    for entry in begun:
        by_task.setdefault(entry.uuid, []).append(entry)
    found: list[float] = []
    for fault in faults:
        for lost in (entry for entry in begun if entry.pid in fault.pids and entry.at < fault.at):
            later = [run.at - fault.at for run in by_task[lost.uuid] if run.fence > lost.fence]
            if later and min(later) > 0:
                found.append(min(later))
    return found


def overlaps(entries: list[RunEntry], most: float = 1.0) -> list[str]:
    """Pairs of runs of one task, in different processes, that ran at the same time for more than `most` seconds."""
    ended = {(entry.uuid, entry.fence): entry.at for entry in entries if entry.event == "end"}
    by_task: dict[str, list[RunEntry]] = {}
    for entry in entries:
        if entry.event == "begin" and (entry.uuid, entry.fence) in ended:
            by_task.setdefault(entry.uuid, []).append(entry)
    found: list[str] = []
    for uuid, runs in by_task.items():
        for number, one in enumerate(runs):
            for other in runs[number + 1 :]:
                begin = max(one.at, other.at)
                end = min(ended[uuid, one.fence], ended[uuid, other.fence])
                if one.pid != other.pid and end - begin > most:
                    found.append(f"{uuid}: fences {one.fence} and {other.fence} for {end - begin:.1f} s")
    return found
