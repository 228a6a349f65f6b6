"""Files in memory: rules of a store do not depend on a disk, and a call fails if a disk stalls for 5 s."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

_FOLDER = Path("/dev/shm")  # not every system has it


def memory_folder(prefix: str) -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix=prefix, dir=_FOLDER if _FOLDER.is_dir() else None)
