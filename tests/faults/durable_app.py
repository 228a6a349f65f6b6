"""Durable tasks that kill their own worker at chosen points. As a program: one worker of it,
or as many as the argument gives, which are forked.

The environment variables STORE and RUN_LOG name the store and the file that the steps append to.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from contextlib import closing
from typing import Any

import asyncpg

from onthedot import App, current_task, group
from tests.faults.kill_points import append, append_and_die, has_run_log, kill_once
from tests.faults.worker_processes import run_forked

CHILDREN = 3
app = App("shop", store=os.environ.get("STORE", "memory://"), concurrency=1)


@app.task(max_crashes=1000)
async def killed_after_each_step(steps: int) -> str:
    ctx = current_task()
    for number in range(1, steps + 1):
        await ctx.step(f"step {number}", append, f"step {number}")
        kill_once(f"after {number}")
    return "done"


@app.task(max_crashes=1000)
def killed_after_each_sync_step(steps: int) -> str:
    ctx = current_task()
    for number in range(1, steps + 1):
        ctx.sync.step(f"step {number}", append, f"step {number}")
        kill_once(f"after {number}")
    return "done"


@app.task(max_crashes=1000)
async def killed_in_each_step(steps: int) -> str:
    ctx = current_task()
    for number in range(1, steps + 1):
        await ctx.step(f"step {number}", append_and_die, f"step {number}")
    return "done"


@app.task(max_crashes=1000)
async def killed_around_each_commit(steps: int) -> str:
    """The effect is a row in the file of the store."""
    ctx = current_task()
    path = os.environ["STORE"].removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as db:
        for number in range(1, steps + 1):
            with db:
                await ctx.step_in(db, f"step {number}", sell, db, number)
                kill_once(f"before commit {number}")
            kill_once(f"after commit {number}")
    return "done"


def sell(db: sqlite3.Connection, number: int) -> None:
    db.execute("INSERT INTO sale VALUES (?)", (number,))
    kill_once(f"in step {number}")


@app.task(max_crashes=1000)
async def killed_around_each_commit_on_a_server(steps: int) -> str:
    """The effect is a row in the database of the store."""
    ctx = current_task()
    connection = await asyncpg.connect(os.environ["STORE"].partition("?")[0])
    try:
        for number in range(1, steps + 1):
            async with connection.transaction():
                await ctx.step_in(connection, f"step {number}", sell_on_a_server, connection, number)
                kill_once(f"before commit {number}")
            kill_once(f"after commit {number}")
    finally:
        await connection.close()
    return "done"


async def sell_on_a_server(connection: Any, number: int) -> None:
    await connection.execute("INSERT INTO sale VALUES ($1)", number)
    kill_once(f"in step {number}")


@app.task
async def killed_twice_between_sleeps() -> int:
    """Three crashes would end it, if a sleep did not start their count again."""
    ctx = current_task()
    for number in range(3):
        kill_once(f"{number}, first")
        kill_once(f"{number}, second")
        await ctx.sleep(0.5)  # longer than it takes to save its deadline, so that the run is suspended
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
    if len(sys.argv) > 1:
        run_forked(int(sys.argv[1]), app.run)
    else:
        app.run()
