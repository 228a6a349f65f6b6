"""Ends the processes of a test run that was killed: one guard per run, which knows their pids.

As a program: reads one pid per line, and kills these processes and their descendants when the standard input ends.
Unlike `services/server_guard.py` it is not their parent, so that tests can signal and await them directly.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_guards: dict[int, subprocess.Popen[str]] = {}  # by the pid of the run: a forked process has its own


def start_guarded(command: list[str], **options: Any) -> subprocess.Popen[Any]:
    """Starts a process that does not outlive this one, also if this one is killed."""
    process = subprocess.Popen(command, **options)
    guard = _guard()
    assert guard.stdin is not None
    guard.stdin.write(f"{process.pid}\n")
    guard.stdin.flush()
    return process


def _guard() -> subprocess.Popen[str]:
    if os.getpid() not in _guards:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.support.process_guard"]
        guard = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, text=True, start_new_session=True)
        _guards[os.getpid()] = guard
        atexit.register(_stop, guard)
    return _guards[os.getpid()]


def _stop(guard: subprocess.Popen[str]) -> None:
    assert guard.stdin is not None
    guard.stdin.close()
    guard.wait()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for the run
    started: dict[int, str] = {}
    for line in sys.stdin:
        pid = int(line)
        started[pid] = started_at(pid)
    for pid, at in started.items():
        if at and started_at(pid) == at:  # otherwise it has ended, and another process has its pid
            kill_tree(pid)


def started_at(pid: int) -> str:
    """Identifies a process together with its pid; empty: there is none."""
    ps = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return ps.stdout.strip()


def kill_tree(pid: int) -> None:
    """The ancestors first, so that nothing is restarted."""
    from tests.support.leak_check import descendants

    for each in [pid, *descendants(pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


if __name__ == "__main__":
    main()
