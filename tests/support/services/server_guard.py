"""Runs a server until the standard input ends, so that also a test run that is killed leaves no server behind.

python server_guard.py COMMAND …
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys


def main(command: list[str]) -> int:
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for the tests, whose process group it shares
    while not select.select([0], [], [], 0.05)[0]:
        if server.poll() is not None:  # it failed to start, or has ended by itself
            return server.returncode
    _signal(server, signal.SIGTERM)
    try:
        return server.wait(10)
    except subprocess.TimeoutExpired:
        _signal(server, signal.SIGKILL)
        return server.wait()


def _signal(server: subprocess.Popen[bytes], number: int) -> None:
    """With its children: it leads a process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
