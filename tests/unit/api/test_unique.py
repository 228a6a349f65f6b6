"""Unique keys, a uuid that comes twice, and expiry: which of the tasks that are added run."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onthedot import App, DuplicateTask, TaskCancelled
from onthedot.clock.manual import ManualClock
from tests.support.waits import LONG


def plain(key: str, cost: int = 1) -> None: ...


def test_unique_keep(app: App) -> None:
    task = app.task(unique="{key}")(plain)
    first = task.delay("x")
    second = task.delay("x", 2)
    other = task.delay("y")
    assert (first.added, second.added, other.added) == (True, False, True)
    assert second.uuid == first.uuid != other.uuid
    assert first.info().args == {"key": "x"}
    first.cancel()
    assert task.delay("x").added  # its key is free again


@pytest.mark.parametrize(("unique", "same"), [(True, True), (None, False), ("{key}", True), ("{key}:{cost}", True)])
def test_unique_by_all_arguments_defaults_included(app: App, unique: Any, same: bool) -> None:
    task = app.task(unique=unique)(plain)
    assert (task.delay("x").uuid == task.delay("x", cost=1).uuid) == same


def test_unique_replace_debounces(app: App, clock: ManualClock) -> None:
    task = app.task(unique="{key}", on_conflict="replace")(plain)
    begin = clock.moment()
    first = task.options(after=10).delay("x", 1)
    clock.advance(5_000)
    second = task.options(after=10).delay("x", 2)
    assert (second.uuid, second.added) == (first.uuid, False)
    info = first.info()
    assert (info.args["cost"], info.schedule_at) == (2, begin + timedelta(seconds=15))


VERBS: dict[str, Callable[[App, Any], Any]] = {
    "delay": lambda app, task: task.delay("x"),
    "enqueue": lambda app, task: task.enqueue("x"),
    "delay_many": lambda app, task: task.delay_many([{"key": "x"}]),
    "enqueue_many": lambda app, task: task.enqueue_many([{"key": "x"}]),
    "app.enqueue_many": lambda app, task: app.enqueue_many([task.s("x")]),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
async def test_unique_error(app: App, verb: Callable[[App, Any], Any]) -> None:
    async def add() -> None:
        added = verb(app, task)
        if inspect.isawaitable(added):
            await added

    task = app.task(unique="{key}", on_conflict="error")(plain)
    await add()
    with pytest.raises(DuplicateTask, match=f"'x'.*{app.sync.find().tasks[0].uuid}"):
        await add()


def test_unique_for_a_time(app: App, clock: ManualClock) -> None:
    task = app.task(unique="{key}", unique_for=60)(plain)
    first = task.delay("x")
    first.cancel()
    assert task.delay("x").uuid == first.uuid  # also after its end
    clock.advance(60_000)
    assert task.delay("x").added


def test_the_same_uuid_twice_changes_nothing_and_warns_if_it_differs(
    send: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first = send.options(uuid="order-17").delay("ann")
    again = send.options(uuid="order-17").delay("ann")
    assert (again.uuid, again.added, caplog.messages) == (first.uuid, False, [])
    other = send.options(uuid="order-17").delay("bob")
    assert (other.added, first.info().args) == (False, {"to": "ann"})
    assert [each.levelname for each in caplog.records if "order-17" in each.getMessage()] == ["WARNING"]


async def test_task_expires_although_no_slot_is_free(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    app = App("busy", store="memory://", concurrency=1, stop_timeout=0)
    began = asyncio.Event()

    @app.task(expires=60)
    async def sit() -> None:
        began.set()
        await asyncio.sleep(LONG)

    with app.override(clock=clock):
        async with app.running():
            running = await sit.enqueue()
            waiting = await sit.enqueue()
            later = await sit.options(after=30).enqueue()  # expires 60 s after that
            short = await sit.options(expires=10).enqueue()
            await began.wait()
            clock.advance(10_000)
            assert str(await short.exception()).endswith("expired")
            clock.advance(50_000)
            error = await waiting.exception()
            assert isinstance(error, TaskCancelled)
            assert error.reason == "expired"
            assert (await running.state(), await later.state()) == ("running", "ready")
            clock.advance(30_000)
            assert isinstance(await later.exception(), TaskCancelled)
            assert await running.state() == "running"
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert [line.split()[:3] for line in lines] == [["[expired]", "task", h.uuid] for h in (short, waiting, later)]
