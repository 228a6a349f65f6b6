"""Processes that tests start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def lives(pid: int) -> bool:
    """Whether a process is alive. A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        if sys.platform == "linux":
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def start_script(name: str, *arguments: str) -> subprocess.Popen[str]:
    script = Path(__file__).parent / "programs" / name
    command = [sys.executable, str(script), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=script.parents[3])
