"""Memory of this process."""

from __future__ import annotations

import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_STATM = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    """None: the system has no /proc."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE
    except OSError:
        return None
