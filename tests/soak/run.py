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
NOISE = {"memory": 3.0, "descriptors": 4, "threads": 2, "keys": 30, "rows": 1_000, "wal": 20.0}
"""Growth over half of the run that is not a leak: MB, numbers, MB."""


class SoakRun:
    def __init__(self, store: ServerStore, pids: dict[str, int], link: Proxy | None) -> None:
        self.store = store
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

    def leaks(self) -> dict[str, float]:
        """Figures that grew by more than noise in the second half of the run."""
        return {
            name: round(grown, 1)
            for name, samples in self.series.items()
            if (grown := growth(samples)) > NOISE[name.split()[0]]
        }

    def __str__(self) -> str:
        figures = [
            f"{name} {samples[len(samples) // 2][1]:g} → {samples[-1][1]:g}, most {max(y for _, y in samples):g}"
            for name, samples in sorted(self.series.items())
        ]
        return f"soak, {self.store.name}, {time.monotonic() - self._began:.0f} s, from its middle: {'; '.join(figures)}"


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
            yield SoakRun(store, {"worker": workers.workers[0].pid, "producer": producer.pid}, link)
            assert producer.poll() is None, run_log.with_suffix(".producer").read_text()[-2_000:]
            assert workers.workers[0].poll() is None, workers.log.read_text()[-2_000:]
        finally:
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
