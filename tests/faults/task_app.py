"""The app of the fault tests. As a program: one worker of it, or as many as the argument gives.

The environment variables STORE and RUN_LOG name the store and the file for the runs, POLL the poll interval.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import resource
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

from onthedot import App, AtMost, Rate, current_task
from tests.faults import scaled
from tests.faults.run_log import RunLog, log_run
from tests.faults.worker_processes import run_forked

SLOTS = 8
FILLING = 48  # tasks of `fill_limit`
LONGEST = scaled(10, 20) / 100  # seconds of a task, such that the kills end before the work
app = App(
    "shop",
    store=os.environ.get("STORE", "memory://"),
    concurrency=SLOTS,
    stop_timeout=5,
    poll_interval=float(os.environ.get("POLL", "10")),
)
if hasattr(app.runtime.config, "has_events"):  # not in the older versions that tests run beside this one
    app.runtime.use(replace(app.runtime.config, has_events=False))  # tests read the log lines of its worker alone


@app.task(max_crashes=1000)
async def work(number: int) -> int:
    await log_run(random.uniform(0.02, LONGEST))
    return number


@app.task(max_crashes=1000, concurrency=12)
async def limited(number: int, seconds: float | None = None) -> int:
    """At most twelve at once over all workers."""
    await log_run(random.uniform(0.02, LONGEST) if seconds is None else seconds)
    return number


def fill_limit() -> set[str]:
    """Adds enough limited tasks, each of which lasts long enough, that twelve run at once. Returns their uuids."""
    handles = limited.delay_many([{"number": number, "seconds": 0.5} for number in range(FILLING)])
    return {handle.uuid for handle in handles}


@app.task
async def innocent(number: int) -> int:
    await log_run(0.05)
    return number


@app.task
async def poison(how: Literal["exit", "segfault", "out of memory"] = "exit") -> None:
    """Ends its process. Out of memory: as the kernel does, by SIGKILL."""
    await log_run(0.01)
    match how:
        case "exit":
            os._exit(9)
        case "segfault":
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no file with its memory
            ctypes.string_at(0)
        case "out of memory":
            os.kill(os.getpid(), signal.SIGKILL)


@app.task(max_crashes=1)
async def deadly() -> None:
    """Kills its worker; it is a suspect from the beginning."""
    await log_run(0.01)
    os._exit(9)


@app.task
async def block_loop(seconds: float) -> str:
    """Blocks the event loop of its worker."""
    context = current_task()
    run_log = RunLog(Path(os.environ["RUN_LOG"]))
    run_log.write("begin", context.uuid, context.attempt, context.fence)
    time.sleep(seconds)  # noqa: ASYNC251 - on purpose
    run_log.write("end", context.uuid, context.attempt, context.fence)
    run_log.close()
    return "unblocked"


@app.task(max_crashes=1000)
async def bulky(text: str) -> int:
    """Its arguments are long, so that a reply with such tasks is recognised by its size."""
    await log_run(0.1)
    return len(text)


@app.task(max_crashes=1000)
async def copied(text: str) -> str:
    """Its result is as long as its arguments."""
    await log_run(0.1)
    return text


@app.task
async def slow(seconds: float) -> str:
    await log_run(seconds)
    return "slow"


@app.task(max_crashes=1000)
async def tracked(seconds: float) -> None:
    """Logs its end also when it is cancelled."""
    context = current_task()
    run_log = RunLog(Path(os.environ["RUN_LOG"]))
    run_log.write("begin", context.uuid, context.attempt, context.fence)
    try:
        await asyncio.sleep(seconds)
    finally:
        run_log.write("end", context.uuid, context.attempt, context.fence)
        run_log.close()


@app.task
async def hold_gil(seconds: int) -> str:
    """Holds the GIL, so that no other thread of this process runs."""
    context = current_task()
    run_log = RunLog(Path(os.environ["RUN_LOG"]))
    run_log.write("begin", context.uuid, context.attempt, context.fence)
    ctypes.PyDLL(None).sleep(seconds)
    run_log.close()
    return "released"


@app.task(max_crashes=1)
async def stuck() -> None:
    time.sleep(600)  # noqa: ASYNC251 - it blocks the event loop on purpose


@app.task(executor="process", max_crashes=1000)
def compute() -> None:
    """Logs every 20 ms that it still runs."""
    context = current_task()
    run_log = RunLog(Path(os.environ["RUN_LOG"]))
    run_log.write("begin", context.uuid, context.attempt, context.fence)
    while True:
        time.sleep(0.02)
        run_log.write("end", context.uuid, context.attempt, context.fence)


@app.task(limits=[AtMost(2, by="key")], max_crashes=1000)
async def keyed(key: int) -> None:
    """At most two of each key at once."""
    await log_run(random.uniform(0.02, 0.06))


@app.task(concurrency=2, max_crashes=1000)
async def paired() -> None:
    """At most two at once over all workers."""
    await log_run(random.uniform(0.02, 0.06))


@app.task(limits=[Rate("50/s", burst=10)])
async def paced() -> None:
    """Fifty per second, limited by the source."""


@app.task(limits=[Rate("50/s", burst=10, name="api")])
async def metered() -> None:
    """Fifty per second, limited by a lane."""


@app.task(unique="{key}", on_conflict="replace")
async def debounced(key: str, value: str) -> str:
    return value


@app.task
async def old() -> None:
    await asyncio.sleep(0.001)


@app.task
async def fresh() -> None: ...


@app.task(max_crashes=1000)
async def quick() -> None:
    await asyncio.sleep(0.01)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_forked(int(sys.argv[1]), app.run)
    else:
        app.run()
