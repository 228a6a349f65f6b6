"""The app of the fault tests of flows. As a program: as many workers of it as the argument gives.

The environment variables STORE and RUN_LOG name the store and the file for the runs of the last task.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from onthedot import App, Call, Reject, current_task, group
from onthedot.flows.builtin import StopSource
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


@app.task
async def refuse(number: int) -> int:
    raise Reject(f"no {number}")


def stopped(size: int) -> Call[Any]:
    """A member fails, and the others, which have not started, are cancelled by a task that is killed twice."""
    later = [same.options(after=3600).s(number) for number in range(size)]
    return group([refuse.s(1), *later], on_error="stop") | ordered


async def stop_and_die(source: StopSource, arguments: dict[str, Any], stop: Any = StopSource.call) -> None:
    kill_once("before")
    await stop(source, arguments)
    kill_once("after")


if __name__ == "__main__":
    StopSource.call = stop_and_die  # type: ignore[method-assign]
    run_forked(int(sys.argv[1]), app.run)
