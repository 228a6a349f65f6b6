"""CPU time of processes. Unlike time by the clock, it hardly depends on what else the machine does."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.leak_check import descendants

_TICKS = os.sysconf("SC_CLK_TCK")


def children_cpu(besides: int) -> float:
    """Seconds of all processes below this one but `besides`, with ended ones that another of them waited for."""
    return sum(cpu_of(pid) for pid in descendants(os.getpid()) if pid != besides)


def cpu_of(pid: int) -> float:
    """Seconds of a process and of those that it waited for."""
    process = Path(f"/proc/{pid}")
    try:
        threads = sum(int((task / "schedstat").read_text().split()[0]) for task in (process / "task").iterdir())
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:  # it has ended meanwhile; the time is its parent's
        return 0.0
    return threads / 1e9 + sum(map(int, fields[13:15])) / _TICKS  # cutime, cstime
