"""Accepted by mypy --strict and pyright. Make it (and use_bad.py) part of tests/typing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_type

from onthedot import App, AtMost, CronSchedule, Rate, TaskHandle, current_task


@dataclass
class State:
    db: str


@asynccontextmanager
async def lifespan() -> AsyncIterator[State]:
    yield State("db")


app = App("shop", lifespan=lifespan)
assert_type(app, App[State])
assert_type(app.state, State)


@app.task
async def send(to: str, body: str = "") -> int:
    return len(app.state.db)


@app.task(
    executor="process",
    max_retries=3,
    limits=[Rate("10/s", by="day"), AtMost(2, by="day")],
    schedule=CronSchedule("0 3 * * *", args={"day": "x"}),
)
def build(day: str) -> str:
    return current_task().uuid


@app.schedule(schedule=timedelta(minutes=5))
def tick() -> None: ...


assert_type(send.delay("a", body="b"), TaskHandle[int])
assert_type(build.delay("x").result(timeout=3), str)
assert_type(build("x"), str)
assert_type(build.handle("018f").result(), str)


async def main() -> None:
    assert_type(await send("a"), int)
    h = await send.enqueue("a")
    assert_type(await h, int)
    assert_type(await h.result(timeout=5), int)
    h2 = await send.options(after=5, priority="high").enqueue("a", body="b")
    assert_type(await h2, int)
    await app.enqueue_many([send.s("a"), build.s("x")])
