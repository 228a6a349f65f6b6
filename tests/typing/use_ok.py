"""Accepted by mypy --strict and pyright. Make it (and use_bad.py) part of tests/typing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, assert_type

from onthedot import (
    App,
    AsyncTaskHandle,
    AtMost,
    Call,
    CronSchedule,
    Explanation,
    FlowHandle,
    Rate,
    Signal,
    TaskHandle,
    TaskInfo,
    TaskPage,
    current_task,
)


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


assert_type(build.s("x").delay(), FlowHandle[str])
assert_type(build.delay_many([{"day": "x"}, ("x",), build.s("x")]), list[TaskHandle[str]])
assert_type(app.delay_many([build.s("x"), build.s("y")]), list[TaskHandle[str]])
app.delay_many([send.s("a"), build.s("x")])


@dataclass
class Approval:
    by: str


async def charge(card: str, *, amount: int) -> Approval:
    return Approval(card)


@app.task
async def durable() -> None:
    ctx = current_task()
    assert_type(await ctx.step("charge", charge, "visa", amount=3), Approval)
    assert_type(await ctx.step("length", len, "visa"), int)
    assert_type(await ctx.step_in(object(), "charge", charge, "visa", amount=3), Approval)
    assert_type(await ctx.sleep(timedelta(days=3)), None)
    assert_type(await ctx.wait_for("approved", timeout=60, type=Approval), Approval)
    await ctx.wait_for("approved")
    assert_type(await ctx.wait_any("paid", "refused"), Signal)
    ctx.changed(renamed={"charge": "pay"}, added={"audit"}, removed={"log"})


@app.task
def durable_sync() -> None:
    ctx = current_task()
    assert_type(ctx.sync.step("length", len, "visa"), int)
    assert_type(ctx.sync.wait_for("approved", type=Approval), Approval)
    assert_type(ctx.sync.wait_any("paid", "refused").at, datetime)
    ctx.sync.sleep(3)


async def main() -> None:
    assert_type(await send("a"), int)
    assert_type(await app.signal("approved", {"by": "ann"}, id="evt-17", keep=timedelta(days=30)), bool)
    assert_type(app.sync.signal("approved"), bool)
    assert_type(send.delay("a").signal("approved", 3), bool)
    h = await send.enqueue("a")
    assert_type(await h, int)
    assert_type(await h.result(timeout=5), int)
    h2 = await send.options(after=5, priority="high").enqueue("a", body="b")
    assert_type(await h2, int)
    await app.enqueue_many([send.s("a"), build.s("x")])
    assert_type(send.s("a"), Call[int])
    assert_type(await (await send.s("a").enqueue()), int)
    assert_type(await app.enqueue_many([send.s("a"), send.s("b")]), list[AsyncTaskHandle[int]])
    assert_type(await send.enqueue_many([{"to": "a"}, ("a", "hi"), send.s("a")]), list[AsyncTaskHandle[int]])
    info = await app.get(h.uuid)
    assert_type(info, TaskInfo)
    assert_type(info.duration, timedelta | None)
    assert_type(info.to_dict(), dict[str, Any])
    assert_type(await app.find(state="failed"), TaskPage)
    assert_type(await app.explain(h.uuid), Explanation)
