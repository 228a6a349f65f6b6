"""Metrics of all workers, while some are killed: no counter decreases, and the sums are those of the run log."""

from __future__ import annotations

import asyncio
import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from onthedot import App
from tests.faults import scaled, task_app
from tests.faults.run_log import RunLog
from tests.faults.server_stores import ServerStore
from tests.faults.worker_processes import forked_workers, wait_for
from tests.support.app_access import call_store, worker_pids
from tests.support.metrics_rules import Samples, read_samples
from tests.support.web_site import web_site

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]

WORKERS = 2
LEASE = 10  # seconds
TASKS = 40  # per kill
KILLS = scaled(2, 20)
COUNTERS = ("_total", "_count", "_sum", "_bucket")


def scrape(url: str) -> Samples:
    """Each time by a new web server."""

    async def read() -> Samples:
        async with App(task_app.app.name, store=url) as app, web_site(app) as site:
            answer = await site.viewer.at("").get("/metrics")
            return read_samples(answer.body.decode())

    return asyncio.run(read())


def succeeded(found: Samples) -> dict[str, float]:
    """The number of tasks, by source."""
    return {
        labels[0]: value
        for (name, labels), value in found.items()
        if name == "onthedot_tasks_total" and labels[1] == "succeeded"
    }


def decreased(before: Samples, after: Samples) -> list[tuple[str, tuple[str, ...]]]:
    counters = [key for key in before if key[0].endswith(COUNTERS)]
    return [key for key in counters if after[key] < before[key]]


def pending() -> int:
    tally = call_store(task_app.app, lambda store: store.tally())
    return sum(number for (_, state), number in tally.items() if state != "succeeded")


def add_tasks(dead: set[int]) -> None:
    """The parent of a dead worker has started another one before."""
    wait_for(lambda: len(worker_pids(task_app.app) - dead) == WORKERS, 60)
    task_app.work.delay_many([{"number": number} for number in range(TASKS)])


def kill_one(dead: set[int], busy: set[int] | None = None) -> int:
    """The process of a worker. busy: one of these."""
    pid = min((worker_pids(task_app.app) if busy is None else busy) - dead)
    os.kill(pid, signal.SIGKILL)
    dead.add(pid)
    return pid


def busy_workers(run_log: RunLog) -> set[int]:
    """The processes that have begun a task which has not ended."""
    entries = run_log.entries()
    ended = {entry.uuid for entry in entries if entry.event == "end"}
    return {entry.pid for entry in entries if entry.event == "begin" and entry.uuid not in ended}


@pytest.mark.parametrize("server_store", ["sqlite", "redis", "postgres"], indirect=True)
def test_sums_over_scrapes_are_those_of_the_run_log(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path
) -> None:
    """Each worker dies after its figures were written, so none is lost; the last one dies while it works."""
    url = server_store.url(LEASE)
    dead: set[int] = set()
    scrapes: list[Samples] = []
    with task_app.app.override(store=url), forked_workers(url, run_log_path, WORKERS):
        for number in range(1, KILLS + 1):
            add_tasks(dead)
            wait_for(lambda number=number: succeeded(scrape(url)) == {"work": number * TASKS}, 120)
            scrapes.append(scrape(url))
            kill_one(dead)
        before = [entry for entry in run_log.entries() if entry.event == "end"]
        assert succeeded(scrape(url)) == {"work": len({entry.uuid for entry in before})} == {"work": KILLS * TASKS}
        add_tasks(dead)
        wait_for(lambda: busy_workers(run_log) - dead, 60)
        killed = kill_one(dead, busy_workers(run_log))
        wait_for(lambda: pending() == 0, 120)
        ends = [entry for entry in run_log.entries() if entry.event == "end"]
        lost = [entry for entry in ends[len(before) :] if entry.pid == killed]
        tasks = len({entry.uuid for entry in ends})
        wait_for(lambda: succeeded(scrape(url))["work"] >= tasks - len(lost), 120)
        scrapes.append(scrape(url))
    counted = succeeded(scrapes[-1])["work"]
    print(f"{server_store.name}, {len(dead)} kills: {tasks} tasks have ended, {counted:.0f} are counted")
    assert counted <= tasks == (KILLS + 1) * TASKS
    assert [decreased(before, after) for before, after in pairwise(scrapes)] == [[]] * KILLS
