"""Memory, CPU time and descriptors of this process."""

from __future__ import annotations

import os
import time
from pathlib import Path

from onthedot.model.figures import Figures
from onthedot.observability.worker_metrics import CPU, OPEN_FDS, RSS

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_SELF = Path("/proc/self")


def resident_bytes() -> int | None:
    """None: the system has no /proc."""
    try:
        return int((_SELF / "statm").read_text().split()[1]) * _PAGE
    except OSError:
        return None


def add_process_figures(figures: Figures) -> None:
    """Figures that the system does not have are left out."""
    figures.add(CPU, time.process_time())
    resident = resident_bytes()
    if resident is not None:
        figures.add(RSS, resident)
        figures.add(OPEN_FDS, sum(1 for _ in (_SELF / "fd").iterdir()))
