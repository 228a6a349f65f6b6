"""Tasks that kill their own worker at chosen points, and a file that their effects are appended to.

The environment variable RUN_LOG names the file. Each point kills once: a file beside it remembers the point.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from onthedot import current_task


def append(line: str) -> None:
    """One system call, so that a kill leaves no partial line."""
    fd = os.open(os.environ["RUN_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def has_run_log() -> bool:
    return Path(os.environ["RUN_LOG"]).exists()


def kill_once(point: str) -> None:
    """kill -9 of this worker, the first time that the task gets here."""
    memory = Path(os.environ["RUN_LOG"]).with_suffix(f".{current_task().uuid}.{point}")
    if memory.exists():
        return
    memory.touch()
    os.kill(os.getpid(), signal.SIGKILL)


def append_and_die(line: str) -> None:
    append(line)
    kill_once(f"in {line}")
