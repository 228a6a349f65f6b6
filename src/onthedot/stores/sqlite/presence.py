"""That a process lives: a lock on a file of its own, which the kernel frees at its death.

POSIX locks are not inherited by a fork; but any close of such a file drops the lock of the process that closes it, so
nobody may open a file of its own process. To be woken at once, a process that can also watches the others' pidfds.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

_own: set[str] = set()  # of all stores of this process


class Presence:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.process: str = f"{os.getpid()}-{_namespace()}-{secrets.token_hex(6)}"
        _own.add(self.process)
        self._fd = os.open(self._file(self.process), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in folder.glob("*.lock"):  # by those who died without a session
            self.is_dead(left.stem)

    def _file(self, process: str) -> Path:
        return _file(self._folder, process)

    def close(self) -> None:
        self._file(self.process).unlink(missing_ok=True)
        self.after_fork()
        _own.discard(self.process)

    def after_fork(self) -> None:
        """The lock stays the parent's."""
        os.close(self._fd)

    def is_dead(self, process: str) -> bool:
        dead = is_gone(self._folder, process)
        if dead:
            self._file(process).unlink(missing_ok=True)
        return dead

    def pidfd(self, process: str) -> int | None:
        """A file that can be read when the process has ended. None: nobody tells, so one has to look."""
        pid, namespace, _ = process.split("-")
        if not hasattr(os, "pidfd_open") or namespace != _namespace():  # in another container, it is another's number
            return None
        try:
            return os.pidfd_open(int(pid))
        except OSError:
            return None


def is_gone(folder: Path, process: str) -> bool:
    """Looks, and leaves everything as it is."""
    if process in _own and process.startswith(f"{os.getpid()}-"):  # a fork has a copy of its parent's names
        return False
    try:
        fd = os.open(_file(folder, process), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:  # of another user, or no descriptor is left: no reason to take it for dead
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
