"""Worker processes of the shop that can be killed and replaced."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Fleet:
    def __init__(self, store: str, ledger: Path, size: int) -> None:
        self._environment = {**os.environ, "STORE": store, "LEDGER": str(ledger), "PYTHONPATH": str(ROOT)}
        self.log = ledger.with_suffix(".log")
        self.workers: list[subprocess.Popen[bytes]] = [self._start() for _ in range(size)]

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.faults.shop"], env=self._environment, cwd=ROOT, stdout=log, stderr=log
            )

    def kill(self, index: int) -> tuple[int, float]:
        """kill -9. Which process it was, and when."""
        worker = self.workers[index]
        worker.send_signal(signal.SIGKILL)
        died = time.monotonic()
        worker.wait()
        return worker.pid, died

    def replace(self, index: int) -> None:
        self.workers[index] = self._start()

    def mend(self) -> int:
        """Replaces whoever has died by itself; answers how many."""
        dead = [index for index, worker in enumerate(self.workers) if worker.poll() is not None]
        for index in dead:
            self.replace(index)
        return len(dead)

    def stop(self) -> list[int | None]:
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(10)
        codes = [worker.poll() for worker in self.workers]
        for worker in self.workers:
            worker.kill()
            worker.wait()
        return codes


@contextlib.contextmanager
def fleet(store: str, ledger: Path, size: int) -> Iterator[Fleet]:
    workers = Fleet(store, ledger, size)
    try:
        yield workers
    finally:
        workers.stop()


def wait_for(condition: Callable[[], bool], seconds: float, meanwhile: Callable[[], object] = lambda: None) -> float:
    """Seconds that it took; AssertionError after too many."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"not within {seconds:g} s"
        meanwhile()
        time.sleep(0.02)
    return time.monotonic() - began
