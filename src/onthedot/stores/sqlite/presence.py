"""Shows that a process lives: a record lock on its own file, which the kernel releases at its death.

A fork does not inherit POSIX locks. Closing any descriptor of such a file drops the lock of the process that closes
it, so a process never opens its own file. Where it can, a process also watches the pidfds of the others.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

from onthedot.stores.sqlite.files import PRIVATE, open_side_file

_own: set[str] = set()  # names of all stores of this process


class Presence:
    """The file of this process. Another program may remove it: then `inode` differs, and `restore` creates it again."""

    def __init__(self, folder: Path, mode: int = PRIVATE) -> None:
        self._folder = folder
        self._mode = mode
        pid = os.getpid()
        self.process: str = f"{pid}-{_namespace()}-{_start_time(pid)}-{secrets.token_hex(6)}"
        self.path: str = str(_file(folder, self.process))
        _own.add(self.process)
        self._fd = self._create()
        self.inode: int = os.fstat(self._fd).st_ino
        for left in folder.glob("*.lock"):  # of processes that died without a session
            if not _is_running(left.stem):
                self.is_dead(left.stem)

    def _create(self) -> int:
        """Others find the file when it is locked: before, they would take it for that of a dead process."""
        hidden = _file(self._folder, self.process).with_suffix(".new")
        fd = open_side_file(hidden, self._mode)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        hidden.rename(self.path)
        return fd

    def restore(self) -> None:
        """The file was removed: the session goes on with a new one, unless another process has reaped it."""
        lost = self._fd
        self._fd = self._create()
        self.inode = os.fstat(self._fd).st_ino
        os.close(lost)

    def close(self, *, has_sessions: bool) -> None:
        """has_sessions: others must reap them, so they find the file without its lock."""
        if not has_sessions:
            Path(self.path).unlink(missing_ok=True)
        self.after_fork()
        _own.discard(self.process)

    def after_fork(self) -> None:
        """In the child: the lock stays the parent's."""
        os.close(self._fd)

    def is_dead(self, process: str) -> bool:
        dead = is_gone(self._folder, process)
        if dead:
            _file(self._folder, process).unlink(missing_ok=True)
        return dead

    def pidfd(self, process: str) -> int | None:
        """A descriptor that is readable when the process has ended. None: it must be polled."""
        pid, namespace, *_ = process.split("-")
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
    except FileNotFoundError:  # it has closed its store, or another program has removed the file
        return not _is_running(process)
    except OSError:  # another user's, or no descriptor is left: it may live
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _is_running(process: str) -> bool:
    """Whether a process of this pid namespace still exists; of another one, False."""
    pid, namespace, started, *_ = process.split("-")
    return namespace == _namespace() and started != "" and _start_time(int(pid)) == started


def _start_time(pid: int) -> str:
    """It differs when the pid is used again. Empty: the process has ended, or this system has no /proc."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    state, *fields = status.rpartition(")")[2].split()  # the name before it may contain anything
    return "" if state in "ZX" else fields[18]


def _file(folder: Path, process: str) -> Path:
    return folder / f"{process}.lock"


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "0"
