"""A task with a life of every kind, which writes down when its runs begin and end. As a program: workers of it.

The environment variables STORE and RUN_LOG name the store and the file of the effects.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from onthedot import App, current_task
from tests.faults.kill_points import append, kill_once
from tests.faults.worker_processes import run_forked

FAILURES = 3
app = App("shop", store=os.environ.get("STORE", "memory://"), concurrency=4)


@app.task(concurrency=1, max_retries=FAILURES, backoff=0.2)
async def order(number: int, seconds: float = 0) -> str:
    """With seconds: holds the only slot. Otherwise: three failures, a death of its worker, and a wait."""
    await asyncio.sleep(seconds)
    if seconds:
        return "held"
    attempt = current_task().attempt
    effect("begin", attempt)
    await asyncio.sleep(0.05)
    if attempt <= FAILURES:
        effect("end", attempt)
        raise ConnectionError(f"no vendor for {number}")
    kill_once("vendor")
    effect("wait", attempt)
    await current_task().wait_for("approved", timeout=600)
    effect("end", attempt)
    return "sent"


def effect(what: str, attempt: int) -> None:
    append(f"{what} {attempt} {time.time()}")


if __name__ == "__main__":
    run_forked(int(sys.argv[1]), app.run)
