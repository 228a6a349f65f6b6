"""Runs a server until the standard input ends: also a test run that is killed with -9 leaves no server behind.

python leash.py COMMAND …
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def main(command: list[str]) -> int:
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for the tests, whose group it shares: it goes when they are gone
    while os.read(0, 4096):
        pass
    server.terminate()
    try:
        return server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
