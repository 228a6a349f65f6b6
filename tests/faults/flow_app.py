"""The app of the fault tests of flows. As a program: as many workers of it as the argument gives.

The environment variables STORE and RUN_LOG name the store and the file for the runs of the last task.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from onthedot import App, Call, current_task, group
from tests.faults.kill_points import append, kill_once
from tests.faults.worker_processes import run_forked

MEMBER_SECONDS = 0.05  # long enough that the members of a group run when workers are killed
app = App("flows", store=os.environ.get("STORE", "memory://"), concurrency=32, stop_timeout=5)


@app.task(max_crashes=1000)
async def same(number: int) -> int:
    await asyncio.sleep(MEMBER_SECONDS)
    return number


@app.task(max_crashes=1000)
def ordered(numbers: list[int]) -> int:
    """Returns how many numbers there are, and writes a line if they are in order."""
    if numbers == list(range(len(numbers))):
        append(f"{os.getpid()} {len(numbers)}")
    return len(numbers)


@app.task(max_crashes=1000)
async def fan_out(size: int) -> int:
    """Killed when it has added the flow and has not ended."""
    current_task().spawn(chord(size))
    kill_once("fan-out")
    return size


def chord(size: int) -> Call[Any]:
    return group(same.s(number) for number in range(size)) | ordered


if __name__ == "__main__":
    run_forked(int(sys.argv[1]), app.run)
