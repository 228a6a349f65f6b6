"""Memory, CPU time and descriptors of this process."""

from __future__ import annotations

import time
from pathlib import Path

from onthedot.model.figures import Figures
from onthedot.observability.process_memory import resident_bytes
from onthedot.observability.worker_metrics import CPU, OPEN_FDS, RSS

_SELF = Path("/proc/self")


def add_process_figures(figures: Figures) -> None:
    """Figures that the system does not have are left out."""
    figures.add(CPU, time.process_time())
    resident = resident_bytes()
    if resident is not None:
        figures.add(RSS, resident)
        figures.add(OPEN_FDS, sum(1 for _ in (_SELF / "fd").iterdir()))
