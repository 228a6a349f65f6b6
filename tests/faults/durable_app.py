"""Durable tasks that kill their own worker at chosen points. As a program: one worker of it.

The environment variables STORE and RUN_LOG name the store and the file that the steps append to. Each point kills once:
a file beside the log remembers it.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from onthedot import App, current_task, group

STEPS = 5
CHILDREN = 3
app = App("shop", store=os.environ.get("STORE", "memory://"), concurrency=1)


def append(line: str) -> None:
    """One system call, so that a kill leaves no partial line."""
    fd = os.open(os.environ["RUN_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def has_run_log() -> bool:
    return Path(os.environ["RUN_LOG"]).exists()


def kill_once(point: str) -> None:
    """kill -9 of this worker, the first time that the task gets here."""
    memory = Path(os.environ["RUN_LOG"]).with_suffix(f".{current_task().uuid}.{point}")
    if memory.exists():
        return
    memory.touch()
    os.kill(os.getpid(), signal.SIGKILL)


def append_and_die(line: str) -> None:
    append(line)
    kill_once(f"in {line}")


@app.task(max_crashes=1000)
async def killed_after_each_step() -> str:
    ctx = current_task()
    for number in range(1, STEPS + 1):
        await ctx.step(f"step {number}", append, f"step {number}")
        kill_once(f"after {number}")
    return "done"


@app.task(max_crashes=1000)
def killed_after_each_sync_step() -> str:
    ctx = current_task()
    for number in range(1, STEPS + 1):
        ctx.sync.step(f"step {number}", append, f"step {number}")
        kill_once(f"after {number}")
    return "done"


@app.task(max_crashes=1000)
async def killed_in_each_step() -> str:
    ctx = current_task()
    for number in range(1, STEPS + 1):
        await ctx.step(f"step {number}", append_and_die, f"step {number}")
    return "done"


@app.task(max_crashes=1000)
async def killed_around_each_commit() -> str:
    """The effect is a row in the file of the store."""
    ctx = current_task()
    path = os.environ["STORE"].removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE IF NOT EXISTS sale (number INTEGER)")
        for number in range(1, STEPS + 1):
            with db:
                await ctx.step_in(db, f"step {number}", sell, db, number)
                kill_once(f"before commit {number}")
            kill_once(f"after commit {number}")
    return "done"


def sell(db: sqlite3.Connection, number: int) -> None:
    db.execute("INSERT INTO sale VALUES (?)", (number,))
    kill_once(f"in step {number}")


@app.task
async def killed_twice_between_sleeps() -> int:
    """Three crashes would end it, if a sleep did not start their count again."""
    ctx = current_task()
    for number in range(3):
        kill_once(f"{number}, first")
        kill_once(f"{number}, second")
        await ctx.sleep(0.01)
    return ctx.attempt


@app.task
async def sleeper(seconds: float) -> list[float]:
    """Killed when the deadline is saved and the run has not ended; returns when it began and woke."""
    ctx = current_task()
    began = await ctx.step("begin", time.time)
    try:
        await ctx.sleep(seconds)
    finally:
        kill_once("suspension")
    return [began, time.time()]


@app.task
async def waiter(seconds: float) -> list[Any]:
    ctx = current_task()
    began = await ctx.step("begin", time.time)
    try:
        found = await ctx.wait_for("approved", timeout=seconds)
    except TimeoutError:
        found = "timeout"
    finally:
        kill_once("suspension")
    return [began, time.time(), found]


@app.task(max_crashes=1000)
async def numbered_waiter(number: int) -> list[int]:
    """Takes two signals: one of a shared name, and one of its own."""
    ctx = current_task()
    first = await ctx.wait_for(f"go {number}")
    second = await ctx.wait_for("again")
    await ctx.step("append", append, f"{number}")
    return [first, second]


@app.task(max_crashes=1000)
async def child(number: int, point: str) -> int:
    if point == "child" and number == 1:
        kill_once("child")
    append(f"child {number}")
    return number * 2


@app.task
async def add_up(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(max_crashes=1000)
async def parent(point: str) -> list[int]:
    """Killed once at a point: before the settle that suspends it, in a child, when it goes on, or with the result."""
    ctx = current_task()
    if point == "resumed" and has_run_log():
        kill_once("resumed")
    try:
        total = await ctx.run(group(child.s(number, point) for number in range(CHILDREN)) | add_up)
    finally:
        if point == "suspension":
            kill_once("suspension")
    if point == "result":
        kill_once("result")
    last = await ctx.run(child.s(CHILDREN, point))
    return [total, last]


@app.task
async def other() -> str:
    return "ran"


if __name__ == "__main__":
    app.run()
