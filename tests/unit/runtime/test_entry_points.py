"""The doors of an app: background, running, run and shutdown; which fit together, and how each ends."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from typing import Any

import pytest

from onthedot import (
    App,
    SchedulerStateError,
    StoreRefused,
    TaskCancelled,
    TaskHandle,
)
from tests.support.consumers import status
from tests.support.waits import SOON, wait_until

pytestmark = pytest.mark.usefixtures("no_thread_left")


def app_of() -> tuple[App[None], Any]:
    app = App("shop", store="memory://")

    @app.task
    async def double(n: int) -> int:
        return n * 2

    return app, double


def test_background_runs_tasks_until_the_block_ends() -> None:
    app, double = app_of()
    assert app.start(auto=True) is True
    assert (status(app), app.start(auto=True)) == ("running", False)
    assert double.delay(4).result(timeout=SOON) == 8
    assert app.shutdown() is True
    assert (status(app), app.shutdown()) == ("stopped", False)
    with app.background():
        assert double.delay(5).result(timeout=SOON) == 10
        with pytest.raises(SchedulerStateError, match="already running"), app.background():
            pass
        assert double.delay(6).result(timeout=SOON) == 12


def test_a_second_start_in_another_mode_is_refused() -> None:
    app, double = app_of()

    async def inside() -> None:
        async with app.running():
            with pytest.raises(SchedulerStateError, match=r"already running in another way"):
                app.start(auto=True)
            assert await (await double.enqueue(1)) == 2

    asyncio.run(inside())
    with app.background():
        with pytest.raises(SchedulerStateError, match=r"already running in another way"):
            asyncio.run(inside())
        with pytest.raises(SchedulerStateError, match=r"already running in another way"):
            app.run()
        assert double.delay(1).result(timeout=SOON) == 2


async def test_pending_tasks_of_a_memory_app_are_cancelled_at_shutdown() -> None:
    app, double = app_of()
    async with app.running():
        handle = await double.options(after=3600).enqueue(1)
    async with app:
        assert await handle.state() == "cancelled"
        with pytest.raises(TaskCancelled, match="shutdown"):
            await handle


def ending(handle: TaskHandle[Any], begin: float, got: list[str]) -> None:
    """Waits for a result, and notes how that ended."""
    time.sleep(begin)
    try:
        handle.result(timeout=SOON)
    except BaseException as error:
        got.append(type(error).__name__)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the assertions say it better
def test_waiting_results_return_at_shutdown() -> None:
    """Whenever they began to wait: before it, during it, or after."""
    dice = random.Random(7)
    for _ in range(150):
        app, double = app_of()
        app.start(auto=True)
        got: list[str] = []
        waiting = [
            threading.Thread(
                target=ending, args=(double.options(after=3600).delay(1), dice.uniform(0, 0.004), got), daemon=True
            )
            for _ in range(4)
        ]
        for each in waiting:
            each.start()
        time.sleep(dice.uniform(0, 0.004))
        app.shutdown()
        for each in waiting:
            each.join(SOON)
        app.shutdown()  # a result() after the first shutdown opened the portal again
        assert got == ["TaskCancelled"] * 4, "every waiting result() returns"


async def test_blocking_call_in_a_running_loop_names_the_async_one() -> None:
    app, _ = app_of()
    for start in (app.run, app.start):
        with pytest.raises(SchedulerStateError, match=r"async with app\.running\(\)"):
            start()
    assert status(app) == "stopped"


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_run_returns_after_a_signal(sent: signal.Signals) -> None:
    app, double = app_of()
    handle = double.delay(3)

    def mine(*_: object) -> None: ...

    before = signal.signal(sent, mine)

    def send() -> None:
        wait_until(lambda: status(app) == "running" and handle.done())
        signal.pthread_kill(threading.main_thread().ident or 0, sent)

    sender = threading.Thread(target=send)
    sender.start()
    app.run()
    sender.join()
    after = signal.signal(sent, before)
    assert (status(app), handle.state()) == ("stopped", "succeeded")
    assert after is mine, "as it was"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_fork_of_a_running_memory_app_refuses_adds() -> None:
    app: App[None] = App("shop", store="memory://")

    @app.task
    async def nothing() -> None: ...

    with app.background():
        pid = os.fork()
        if pid == 0:
            try:
                nothing.delay()
            except StoreRefused:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert nothing.delay().result(timeout=SOON) is None
