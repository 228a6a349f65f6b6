"""A machine: `onthedot worker` and its processes, which can be killed apart or all together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from tests.faults.fleet import ROOT, environment, wait_for

_numbers = count()


class Machine:
    def __init__(self, store: str, ledger: Path, *arguments: str, program: str = "tests.faults.shop:app") -> None:
        self.log = ledger.with_suffix(f".{next(_numbers)}.log")
        command = [sys.executable, "-m", "onthedot", "worker", program, "--stop-timeout", "5", *arguments]
        with self.log.open("ab") as log:
            self.supervisor = subprocess.Popen(
                command, env=environment(store, ledger), cwd=ROOT, stdout=log, stderr=log
            )

    def children(self) -> list[int]:
        """Its worker processes, the oldest first."""
        return sorted(pid for pid, parent in parents().items() if parent == self.supervisor.pid)

    def kill_child(self, pid: int) -> float:
        """kill -9. When it was."""
        os.kill(pid, signal.SIGKILL)
        return time.monotonic()

    def kill(self) -> tuple[list[int], float]:
        """A power cut: the supervisor first, so that it tells nobody. Which processes worked there, and when."""
        children = self.children()
        self.supervisor.kill()
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        self.supervisor.wait()
        return children, time.monotonic()

    def tell(self, number: signal.Signals) -> None:
        self.supervisor.send_signal(number)

    def stop(self) -> int:
        self.tell(signal.SIGCONT)
        self.tell(signal.SIGTERM)
        try:
            return self.supervisor.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


def parents() -> dict[int, int]:
    """Of all processes that live."""
    found: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                found[int(path.parts[2])] = int(fields[1])
    return found


@contextlib.contextmanager
def machines(
    number: int, store: str, ledger: Path, *arguments: str, program: str = "tests.faults.shop:app"
) -> Iterator[list[Machine]]:
    running = [Machine(store, ledger, *arguments, program=program) for _ in range(number)]
    try:
        yield running
    finally:
        for machine in running:
            if machine.supervisor.poll() is None:
                machine.stop()
        wait_for(lambda: not any(machine.children() for machine in running), 10)
