"""One soak run: a store, a worker whose connections are cut now and then, a producer that starts and stops workers."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.faults.proxy import Proxy, proxy
from tests.faults.server_stores import PROCESS_STORES, ServerStore, on_postgres
from tests.faults.worker_processes import ROOT, environment, worker_processes
from tests.soak.samples import growth, of_process, sampler_of
from tests.support.process_guard import start_guarded

LEASE = 10  # seconds
CUT = 7.0  # seconds between two cuts of all connections
STORES = {**PROCESS_STORES, "postgres": partial(on_postgres, autovacuum="on")}
Series = dict[str, list[tuple[float, float]]]
"""By name of the figure: (seconds, value)."""
NOISE = {"memory": 3.0, "descriptors": 4, "threads": 2, "keys": 30, "wal": 20.0}
"""Growth over half of the run that is not a leak: MB, numbers, MB. Rows follow the load; they are judged after it."""
RETENTION = 240  # seconds after the load within which ended tasks are purged: 20 are kept, then a purge per minute
MAX_LEFT = 1_000  # rows without load: a task per second by the schedule, the figures of an hour by the minute


class SoakRun:
    def __init__(
        self, store: ServerStore, pids: dict[str, int], link: Proxy | None, producer: subprocess.Popen[bytes]
    ) -> None:
        self.store = store
        self.left: int | None = None
        self._producer = producer
        self.series: Series = defaultdict(list)
        self._pids = pids
        self._link = link
        self._sample_store = sampler_of(store)
        self._began = time.monotonic()
        self._cut_at = self._began

    def step(self) -> None:
        """Samples once, and cuts the connections if that is due."""
        now = time.monotonic() - self._began
        found = dict(self._sample_store())
        for process, pid in self._pids.items():
            found |= {f"{name} of the {process}": value for name, value in of_process(pid).items()}
        for name, value in found.items():
            self.series[name].append((round(now, 1), round(value, 2)))
        if self._link is not None and time.monotonic() > self._cut_at + CUT:
            self._cut_at = time.monotonic()
            self._link.cut()

    def end_load(self) -> None:
        """The producer ends; the worker goes on, with the schedule's task per second."""
        end_producer(self._producer)

    def await_retention(self) -> None:
        """Waits until few rows are left, as long as retention may take."""
        deadline = time.monotonic() + RETENTION
        while self.left is None or (self.left > MAX_LEFT and time.monotonic() < deadline):
            time.sleep(1)
            self.left = int(self._sample_store()["rows"])

    def leaks(self) -> dict[str, float]:
        """Figures that grew by more than noise in the second half of the run, and rows that are left after it."""
        found: dict[str, float] = {}
        for name, samples in self.series.items():
            noise = NOISE.get(name.split()[0])
            grown = growth(samples)
            if noise is not None and grown > noise:
                found[name] = round(grown, 1)
        if self.left is not None and self.left > MAX_LEFT:
            found["rows left"] = self.left
        return found

    def __str__(self) -> str:
        figures = [
            f"{name} {samples[len(samples) // 2][1]:g} → {samples[-1][1]:g}, most {max(y for _, y in samples):g}"
            for name, samples in sorted(self.series.items())
        ]
        left = "" if self.left is None else f"; rows after the load {self.left}"
        seconds = time.monotonic() - self._began
        return f"soak, {self.store.name}, {seconds:.0f} s, from its middle: {'; '.join(figures)}{left}"


@contextlib.contextmanager
def started(name: str) -> Iterator[SoakRun]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="soak-")))
        store = stack.enter_context(STORES[name]())
        link = stack.enter_context(proxy(store.port)) if store.port else None
        url = store.url(LEASE, link.port if link else None)
        run_log = folder / "run_log"
        workers = stack.enter_context(worker_processes(url, run_log, 1, "tests.soak.app"))
        with run_log.with_suffix(".producer").open("ab") as log:
            producer = start_guarded(
                [sys.executable, "-m", "tests.soak.app", "produce"],
                env=environment(url, run_log), cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            time.sleep(5)  # both have started
            yield SoakRun(store, {"worker": workers.workers[0].pid, "producer": producer.pid}, link, producer)
            assert not producer.poll(), run_log.with_suffix(".producer").read_text()[-2_000:]
            assert workers.workers[0].poll() is None, workers.log.read_text()[-2_000:]
        finally:
            end_producer(producer)


def end_producer(producer: subprocess.Popen[bytes]) -> None:
    """It ends with its standard input."""
    assert producer.stdin is not None
    producer.stdin.close()
    try:
        producer.wait(60)
    finally:
        producer.kill()
        producer.wait()


@contextlib.contextmanager
def started_together(names: list[str]) -> Iterator[list[SoakRun]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(started(name)) for name in names]


def sample_for(runs: list[SoakRun], seconds: float, pause: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for run in runs:
            run.step()
        time.sleep(pause)
