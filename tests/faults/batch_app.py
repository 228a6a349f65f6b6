"""The app of the fault tests of batches. As a program: one worker, or as many as the argument gives.

The environment variables STORE and RUN_LOG name the store and the file for what happened. With KILL, a worker kills
itself at the KILL-th point that a coordinator or a part reaches, in whichever process, and then KILL + 1, KILL + 2 …
points later.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from onthedot import App, BatchPolicy, Dedup, Rate, SizeTable, current_task
from onthedot.batches.coordinator import Coordinator
from tests.faults.worker_processes import run_forked

app = App("batches", store=os.environ.get("STORE", "memory://"), concurrency=8, stop_timeout=5)
KILL = int(os.environ.get("KILL", "0"))


def reach(point: str) -> None:
    """Writes a line, and kills this process if that is a line to die at."""
    if not KILL:
        return
    with Path(os.environ["RUN_LOG"]).open("a+") as log:
        log.write(f"{point} {os.getpid()}\n")
        log.flush()
        log.seek(0)
        if is_last_line(len(log.readlines())):
            os.kill(os.getpid(), signal.SIGKILL)


def is_last_line(number: int) -> bool:
    """The spans grow: equal ones can meet the same point of every run, and nothing would ever get done."""
    last = KILL
    span = KILL
    while last < number:
        span += 1
        last += span
    return last == number


@app.task(batch=BatchPolicy(split=SizeTable({}, other=10), dedup=Dedup()), max_crashes=1000)
async def names(count: int, pause: float = 0.0) -> list[str]:
    reach("part begins")
    await asyncio.sleep(pause)
    reach("part ends")
    return [uuid4().hex for _ in range(count)]


@app.task(batch=BatchPolicy(split=SizeTable({}, other=10)), max_crashes=1000)
async def one_hangs(count: int) -> list[str]:
    if current_task().metadata["subtask_id"].endswith(":2"):
        await asyncio.sleep(3600)
    return [uuid4().hex for _ in range(count)]


COST = 800  # tokens of a part
RATE = 3200  # tokens per second
BURST = 1600


@app.task(
    batch=BatchPolicy(split=lambda kind, count: [1] * count, top_up=0),
    limits=[Rate(f"{RATE}/s", name="llm", burst=BURST, cost="tokens")],
    max_crashes=1000,
)
async def costly(count: int, tokens: int = COST) -> list[int]:
    return [tokens] * count


def watched(name: str) -> None:
    """Makes a method of coordinators a point before and after which a worker may be killed."""
    method: Callable[..., Awaitable[Any]] = getattr(Coordinator, name)

    async def call(self: Coordinator, *arguments: Any) -> Any:
        reach(f"before {name}")
        answer = await method(self, *arguments)
        reach(f"after {name}")
        return answer

    setattr(Coordinator, name, call)


if KILL:
    for each in ("_ends", "_records", "_ended", "_wait"):
        watched(each)

if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_forked(int(sys.argv[1]), app.run)
    else:
        app.run()
