"""Charts of a known load, while workers and the web server are killed: the sums are those of the run log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.faults import LONG, scaled, task_app
from tests.faults.run_log import RunEntry, RunLog
from tests.faults.server_stores import PROCESS_STORES, ServerStore
from tests.faults.worker_processes import ROOT, forked_workers, wait_for
from tests.support.app_access import call_store, worker_pids
from tests.support.process_guard import start_guarded
from tests.support.services.ports import free_port
from tests.support.web_client import WebClient
from tests.support.web_site import OPERATOR_TOKEN

pytestmark = [pytest.mark.fault, pytest.mark.timed, pytest.mark.timeout(1200 if LONG else 180)]

WORKERS = 2
LEASE = 10  # seconds
RATE = 20  # tasks per second
LOAD = scaled(13, 600)  # seconds
KILLS = scaled(1, 24)
WEB_KILLS = scaled(1, 6)
LOSS = 10  # seconds of a killed worker that may be missing
STORES = [
    pytest.param(name, marks=() if LONG or name == "sqlite" else pytest.mark.skip("ONTHEDOT_FAULTS=long"))
    for name in PROCESS_STORES
]


class WebServer:
    """``onthedot web`` as a process that is killed and started again."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._printed = folder / "web.log"
        self._token = folder / "token"
        self._token.write_text(OPERATOR_TOKEN)
        self._port = free_port()
        self.process = self.start()

    def start(self) -> subprocess.Popen[Any]:
        words = ["-n", task_app.app.name, "web", "--store", self._url, "--listen", f":{self._port}"]
        command = [sys.executable, "-m", "onthedot", *words, "--token-file", str(self._token)]
        with self._printed.open("w") as file:
            return start_guarded(command, cwd=ROOT, stdout=file, stderr=file)

    def wait_until_ready(self) -> None:
        wait_for(lambda: "page http" in self._printed.read_text() or self.process.poll() is not None, 60)
        assert self.process.poll() is None, self._printed.read_text()

    def restart(self) -> None:
        self.wait_until_ready()
        self.kill()
        self.process = self.start()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def sums(self, *names: str) -> Mapping[str, float]:
        """Of the charts of all tasks of this test."""
        self.wait_until_ready()
        client = WebClient(self._port, {"Authorization": f"Bearer {OPERATOR_TOKEN}"})
        chart = asyncio.run(client.json(f"/series?names={','.join(names)}&source=work&since=30m&step=60"))
        return {name: sum(value or 0 for value in chart["series"][name]) for name in names}


@contextlib.contextmanager
def web_server(url: str, folder: Path) -> Iterator[WebServer]:
    web = WebServer(url, folder)
    try:
        yield web
    finally:
        web.kill()


def kill_times(rng: random.Random) -> list[float]:
    """Seconds after the begin of the load: after the first write that must have been made."""
    return sorted(rng.uniform(LOSS + 0.5, LOAD - 0.5) for _ in range(KILLS))


def kill_one(dead: dict[int, float], rng: random.Random) -> None:
    """A worker that is live. Its parent starts another one."""
    wait_for(lambda: bool(worker_pids(task_app.app) - dead.keys()), 60)
    pid = rng.choice(sorted(worker_pids(task_app.app) - dead.keys()))
    os.kill(pid, signal.SIGKILL)
    dead[pid] = time.monotonic()


def run_load(web: WebServer, rng: random.Random) -> dict[int, float]:
    """Adds tasks at a steady rate, and kills meanwhile. Returns the dead workers, and when they died."""
    dead: dict[int, float] = {}
    kills = kill_times(rng)
    restarts = [LOAD * (number + 0.5) / WEB_KILLS for number in range(WEB_KILLS)]
    began = time.monotonic()
    added = 0
    while added < RATE * LOAD:
        passed = time.monotonic() - began
        due = min(RATE * LOAD, int(passed * RATE)) - added
        if due > 0:
            task_app.work.delay_many([{"number": added + number} for number in range(due)])
            added += due
        if kills and passed >= kills[0]:
            kills.pop(0)
            kill_one(dead, rng)
        if restarts and passed >= restarts[0]:
            restarts.pop(0)
            web.restart()
        time.sleep(0.05)
    return dead


def is_over() -> bool:
    tally = call_store(task_app.app, lambda store: store.tally())
    return {state for (_, state), number in tally.items() if number} == {"succeeded"}


def lost_at_most(entries: list[RunEntry], dead: Mapping[int, float]) -> int:
    """Runs that ended in the last ten seconds of a killed worker."""
    return sum(
        entry.event == "end" and entry.at >= dead.get(entry.pid, entry.at + LOSS + 1) - LOSS for entry in entries
    )


@pytest.mark.parametrize("server_store", STORES, indirect=True)
def test_sums_of_charts_are_those_of_the_run_log_but_for_ten_seconds_per_kill(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path
) -> None:
    url = server_store.url(LEASE)
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    with task_app.app.override(store=url), contextlib.ExitStack() as stack:
        with forked_workers(url, run_log_path, WORKERS):
            wait_for(lambda: len(worker_pids(task_app.app)) == WORKERS, 60)  # the store exists, too
            web = stack.enter_context(web_server(url, run_log_path.parent))
            dead = run_load(web, random.Random(seed))
            wait_for(is_over, 120)
        sums = web.sums("done", "failed", "cancelled")
        entries = run_log.entries()
    ended = len({entry.uuid for entry in entries if entry.event == "end"})
    allowed = lost_at_most(entries, dead)
    print(
        f"{server_store.name}: {LOAD} s, {len(dead)} workers and {WEB_KILLS} web servers killed: {ended} tasks have"
        f" ended, {sums['done']:.0f} are in the charts; {allowed} ended in the last {LOSS} s of a killed worker"
    )
    assert len(dead) == KILLS
    assert ended == RATE * LOAD
    assert ended - allowed <= sums["done"] <= ended
    assert (sums["failed"], sums["cancelled"]) == (0, 0)
