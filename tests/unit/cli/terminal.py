"""A command at a pseudo-terminal: its output, and typed input."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ONTHEDOT = (sys.executable, "-m", "onthedot")


class Terminal:
    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process = process
        self._fd = fd
        self.text = ""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def until(self, text: str, timeout: float = 30) -> str:
        """Return the output since the last call, up to and including this text."""
        self._read(timeout, text)
        shown, found, self.text = self.text.partition(text)
        assert found, f"not shown within {timeout} s: {text!r}; but {shown!r}"
        return shown + found

    def ended(self, timeout: float = 30) -> int | None:
        """Return the exit code; None if it is still running."""
        self._read(timeout, None)
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(timeout)
        return None

    def _read(self, timeout: float, until: str | None) -> None:
        deadline = time.monotonic() + timeout
        while until is None or until not in self.text:
            if time.monotonic() > deadline:
                return
            if not select.select([self._fd], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(self._fd, 65_536)
            except OSError:  # Linux: the other end is closed
                return
            if not data:
                return
            self.text += data.decode(errors="replace")


@contextmanager
def terminal(
    folder: Path, *arguments: str, program: Sequence[str] = ONTHEDOT, columns: int = 140
) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    env = {name: value for name, value in os.environ.items() if not name.startswith("ONTHEDOT")}
    env |= {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40"}
    process = subprocess.Popen(
        [*program, *arguments], cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
