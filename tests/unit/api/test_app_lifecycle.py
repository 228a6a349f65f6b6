"""An app's life: start and shutdown, lifespan, override, log lines."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from onthedot import (
    App,
    SchedulerStateError,
    current_task,
)
from onthedot.clock.manual import ManualClock
from tests.support.waits import LONG, SOON, until

# -- doors


async def test_second_start_is_refused(app: App) -> None:
    async with app.running():
        assert app.status()["status"] == "running"
        with pytest.raises(SchedulerStateError):
            async with app.running():
                pass
        with pytest.raises(SchedulerStateError, match="another way"):
            app.start(auto=True)
        with pytest.raises(SchedulerStateError, match=r"async with app\.running\(\)"):
            app.run()
        with pytest.raises(SchedulerStateError, match="override"), app.override(store="memory://"):
            pass
        assert app.status()["status"] == "running"
    assert app.status()["status"] == "stopped"


def test_start_shutdown_and_start_again(send: Any, app: App, caplog: pytest.LogCaptureFixture) -> None:
    with app.override(store="memory://", clock=None):
        for _ in range(2):
            assert app.start(auto=True) is True
            assert app.start(auto=True) is False
            assert [each.levelname for each in caplog.records] == ["WARNING"]
            assert send.delay("ann").result(timeout=SOON) == "hello, ann"
            assert (app.shutdown(), app.shutdown()) == (True, False)
            caplog.clear()


async def test_background_works_under_a_running_loop(app: App, send: Any) -> None:
    with app.background() as same:
        assert same is app
        assert await (await send.enqueue("ann")) == "hello, ann"
        with pytest.raises(SchedulerStateError, match="background"), app.background():
            pass


@pytest.mark.timed
def test_an_idle_app_stops_at_once(app: App) -> None:
    took = []
    for _ in range(5):
        app.start(auto=True)
        began = time.perf_counter()
        app.shutdown()
        took.append(time.perf_counter() - began)
    assert min(took) < 0.2


async def test_status_is_json_with_state_and_counts(app: App) -> None:
    @app.task
    async def hang() -> None:
        await asyncio.sleep(LONG)

    async with app.running():
        first = await hang.enqueue()
        await hang.options(after=60).enqueue()
        await until(lambda: app.status()["running_count"] == 1)
        status = json.loads(json.dumps(app.status()))
    assert status["current_task_id"] == first.uuid
    assert (status["is_executing"], status["delayed_count"], status["queue_count"]) == (True, 1, 0)
    assert app.status()["is_executing"] is False


# -- lifespan, override


async def test_lifespan_is_entered_once_per_start_and_not_to_add(clock: ManualClock) -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[list[str]]:
        steps.append("enter")
        yield steps
        steps.append("leave")

    app = App("shop", store="memory://", lifespan=lifespan, stop_timeout=0)

    @app.task
    async def on_loop() -> None:
        app.state.append("loop")

    @app.task
    def in_thread() -> None:
        app.state.append("thread")

    with app.override(clock=clock):
        async with app:
            handle = await on_loop.enqueue()
            with pytest.raises(SchedulerStateError, match="lifespan"):
                _ = app.state
        assert steps == []
        async with app.running():
            await handle
            await (await in_thread.enqueue())
            hanging = await on_loop.options(after=LONG).enqueue()
        assert steps == ["enter", "loop", "thread", "leave"]
        async with app.running():
            pass
        assert steps[4:] == ["enter", "leave"]
        assert (await app.get(hanging.uuid)).reason == "shutdown"
        with pytest.raises(SchedulerStateError):
            _ = app.state


async def test_a_lifespan_may_yield_nothing() -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield

    app = App("shop", store="memory://", lifespan=lifespan)
    async with app.running():
        assert app.state is None


@pytest.mark.parametrize("how", ["running", "background"])
async def test_failing_lifespan_leaves_the_app_stopped(how: str) -> None:
    fail = [True]

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        if fail.pop():
            raise ConnectionError("no database")
        yield "connected"

    app = App("shop", store="memory://", lifespan=lifespan)

    async def enter() -> str:
        if how == "running":
            async with app.running():
                return app.state
        with app.background():
            return app.state

    with pytest.raises(ConnectionError, match="no database"):
        await enter()
    assert app.status()["status"] == "stopped"
    fail[:] = [False]
    assert await enter() == "connected"


def test_override_restores_store_and_clock(app: App, send: Any, clock: ManualClock) -> None:
    outside = send.delay("ann").uuid
    noon = clock.moment()
    other = ManualClock(noon + timedelta(days=1))
    with app.override(store="memory://", clock=other) as same:
        assert same is app
        assert app.sync.find().tasks == ()
        inside = send.delay("bob")
        assert inside.info().added_at == other.moment()
    (left,) = app.sync.find().tasks
    assert (left.uuid, left.added_at) == (outside, noon)


# -- logs


async def test_log_lines_of_start_and_stop(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    app = App("shop", store="memory://")

    @app.task
    async def send(to: str) -> None: ...

    async with app.running():
        handle = await send.enqueue("ann")
        await handle
    await app.runtime.host.stop()  # a second one says nothing
    expected = [
        ("onthedot.scheduler", r"Task registered: send"),
        ("onthedot.scheduler", r"Scheduler started"),
        ("onthedot.task", rf"\[queued\] task {handle.uuid} from send"),
        ("onthedot.task", rf"\[done\] task {handle.uuid} from send in \d+(\.\d+)? ms"),
        ("onthedot.scheduler", r"Scheduler stopped"),
    ]
    assert [(each.name, each.levelname) for each in caplog.records] == [(name, "INFO") for name, _ in expected]
    for line, (_, pattern) in zip(caplog.messages, expected, strict=True):
        assert re.fullmatch(pattern, line)


async def test_own_logger_gets_every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    app = App("shop", store="memory://", logger=logging.getLogger("mine"))

    @app.task(max_retries=1, backoff=[0])
    async def act() -> None:
        current_task().logger.info("from inside")
        raise OSError("gone")

    async with app.running():
        await (await act.enqueue()).exception()
    assert {each.name for each in caplog.records} == {"mine.scheduler", "mine.task"}
    assert "from inside" in caplog.messages


def test_the_library_adds_no_handler() -> None:
    names = ["onthedot", *(name for name in logging.root.manager.loggerDict if name.startswith("onthedot."))]
    assert [name for name in names if logging.getLogger(name).handlers] == []
