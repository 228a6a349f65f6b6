"""Shows that a process lives: a record lock on its own file, which the kernel releases at its death.

A fork does not inherit POSIX locks. Closing any descriptor of such a file drops the lock of the process that closes
it, so a process never opens its own file. Where it can, a process also watches the pidfds of the others.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

_own: set[str] = set()  # names of all stores of this process


class Presence:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.process: str = f"{os.getpid()}-{_namespace()}-{secrets.token_hex(6)}"
        _own.add(self.process)
        self._fd = os.open(self._file(self.process), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in folder.glob("*.lock"):  # of processes that died without a session
            self.is_dead(left.stem)

    def _file(self, process: str) -> Path:
        return _file(self._folder, process)

    def close(self) -> None:
        self._file(self.process).unlink(missing_ok=True)
        self.after_fork()
        _own.discard(self.process)

    def after_fork(self) -> None:
        """In the child: the lock stays the parent's."""
        os.close(self._fd)

    def is_dead(self, process: str) -> bool:
        dead = is_gone(self._folder, process)
        if dead:
            self._file(process).unlink(missing_ok=True)
        return dead

    def pidfd(self, process: str) -> int | None:
        """A descriptor that is readable when the process has ended. None: it must be polled."""
        pid, namespace, _ = process.split("-")
        if not hasattr(os, "pidfd_open") or namespace != _namespace():  # another container has other numbers
            return None
        try:
            return os.pidfd_open(int(pid))
        except OSError:
            return None


def is_gone(folder: Path, process: str) -> bool:
    """Check without deleting its file."""
    if process in _own and process.startswith(f"{os.getpid()}-"):  # a fork has a copy of its parent's names
        return False
    try:
        fd = os.open(_file(folder, process), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:  # another user's, or no descriptor is left: it may live
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _file(folder: Path, process: str) -> Path:
    return folder / f"{process}.lock"


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "0"
