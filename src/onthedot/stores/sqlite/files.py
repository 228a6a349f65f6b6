"""Files that a store creates. They are private to the user, or as open as a database file that exists already."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

PRIVATE = 0o600


def create_database(path: str) -> None:
    """Create an empty file, which is an empty database. SQLite gives the WAL the mode of this file."""
    with suppress(OSError):  # it exists; or SQLite reports the problem
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))


def may_write(path: str) -> bool:
    """Whether this user may write to the database and beside it, both of which SQLite needs."""
    own = {"effective_ids": os.access in os.supports_effective_ids}
    return all(os.access(place, os.W_OK, **own) for place in (path, Path(path).parent))


def side_mode(path: str) -> int:
    """The mode of the files beside a database."""
    try:
        return stat.S_IMODE(Path(path).stat().st_mode) & 0o666
    except OSError:
        return PRIVATE


def open_side_file(path: Path, mode: int) -> int:
    """A descriptor of a file, which is created if it does not exist; whatever the umask."""
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        return os.open(path, flags | os.O_CREAT, mode)
    if mode != PRIVATE:
        os.fchmod(fd, mode)
    return fd


def create_folder(path: Path, mode: int) -> None:
    """For all that may use a side file of this mode."""
    try:
        path.mkdir(0o700)
    except FileExistsError:
        return
    if mode != PRIVATE:
        path.chmod(mode | (mode & 0o444) >> 2)
