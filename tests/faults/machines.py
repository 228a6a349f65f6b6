"""A machine: `onthedot worker` and its processes, which can be killed one by one or all together."""

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

from tests.faults.worker_processes import ROOT, environment, wait_for
from tests.support.process_guard import start_guarded

_numbers = count()


class Machine:
    def __init__(self, store: str, run_log: Path, *arguments: str, program: str = "tests.faults.task_app:app") -> None:
        self.log = run_log.with_suffix(f".{next(_numbers)}.log")
        command = [sys.executable, "-m", "onthedot", "worker", program, "--stop-timeout", "5", *arguments]
        with self.log.open("ab") as log:
            self.supervisor = start_guarded(command, env=environment(store, run_log), cwd=ROOT, stdout=log, stderr=log)

    def children(self) -> list[int]:
        """The pids of its worker processes, oldest first."""
        return sorted(pid for pid, parent in parents().items() if parent == self.supervisor.pid)

    def kill_child(self, pid: int) -> float:
        """Sends SIGKILL and returns the time."""
        os.kill(pid, signal.SIGKILL)
        return time.monotonic()

    def kill(self) -> tuple[list[int], float]:
        """Simulates a power cut. The supervisor dies first, so that it reports nothing. Returns pids and time."""
        children = self.children()
        self.supervisor.kill()
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        self.supervisor.wait()
        return children, time.monotonic()

    def send_signal(self, number: signal.Signals) -> None:
        self.supervisor.send_signal(number)

    def stop(self) -> int:
        self.send_signal(signal.SIGCONT)
        self.send_signal(signal.SIGTERM)
        try:
            return self.supervisor.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


def parents() -> dict[int, int]:
    """The parent of every live process."""
    found: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                found[int(path.parts[2])] = int(fields[1])
    return found


@contextlib.contextmanager
def machines(
    number: int, store: str, run_log: Path, *arguments: str, program: str = "tests.faults.task_app:app"
) -> Iterator[list[Machine]]:
    running = [Machine(store, run_log, *arguments, program=program) for _ in range(number)]
    try:
        yield running
    finally:
        for machine in running:
            if machine.supervisor.poll() is None:
                machine.stop()
        wait_for(lambda: not any(machine.children() for machine in running), 30)
