"""The worker's life: inside each call, and on whatever event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from onthedot import (
    App,
    SchedulerStateError,
    TaskFailed,
    current_task,
)
from onthedot.testing import ManualClock, TestApp
from tests.support.waits import LONG, SOON, until
from tests.unit.testing.steps import START, Log, none, nothing_is_alive, seconds

# -- the worker's life


async def test_lifespan_is_entered_at_every_start() -> None:
    lives = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        lives.append("in")
        yield "state"
        lives.append("out")

    app = App("shop", lifespan=lifespan)

    @app.task
    async def work() -> str:
        return app.state

    with TestApp(app) as test:
        handle = await work.enqueue()
        assert lives == []
        await test.advance(60)
        assert lives == ["in", "out"]
        assert await handle == "state"
        await test.drain()
        assert lives == ["in", "out"] * 2


async def test_no_task_of_the_loop_is_alive_between_calls(app: App, test: TestApp) -> None:
    @app.task
    def work(n: int) -> None:
        time.sleep(0.001)

    @app.task(timeout=5)
    async def other() -> None:
        await asyncio.sleep(0.001)

    for _ in range(3):
        await work.enqueue_many([{"n": n} for n in range(50)])
        await other.enqueue()
        await test.advance(60)
        nothing_is_alive()
        assert app.status()["status"] == "stopped"


async def test_waiting_tasks_are_kept_between_calls(app: App, test: TestApp) -> None:
    @app.task
    async def work() -> None: ...

    handle = await work.options(after=100).enqueue()
    for _ in range(9):
        await test.advance(10)
        assert await handle.state() == "scheduled"
    await test.advance(10)
    assert await handle.state() == "succeeded"


async def test_running_worker_is_driven(app: App, test: TestApp, log: Log) -> None:
    @app.task
    async def work() -> None:
        log("ran")

    async with app.running():
        await work.options(after=60).enqueue()
        assert await test.advance(60) == 1
        assert log == [("ran", seconds(60))]
        assert app.status()["status"] == "running"
        await work.enqueue()
        assert await test.drain() == 1
    nothing_is_alive()


async def test_cancelled_advance_leaves_nothing(app: App, test: TestApp) -> None:
    @app.task
    async def hang() -> None:
        await asyncio.Event().wait()

    await hang.enqueue()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(test.advance(60), 0.05)
    nothing_is_alive()
    assert [info.state for info in test.tasks()] == ["ready"]


async def test_test_app_works_in_two_loops_one_after_the_other(app: App, test: TestApp) -> None:
    @app.task
    async def work() -> int:
        return 1

    await work.enqueue()
    await test.run_until_idle()

    def in_thread() -> int:
        work.delay()
        return test.sync.run_until_idle()

    assert await asyncio.to_thread(in_thread) == 1


async def test_app_is_unchanged_after_the_block(app: App) -> None:
    runtime = app.runtime
    before = runtime.config
    with TestApp(app) as test:
        await test.run_until_idle()
        with TestApp(app) as inner:
            await inner.advance(5)
        assert test.now() == START
        await test.advance(1)
    assert runtime.config is before


async def test_each_test_app_begins_without_tasks(app: App) -> None:
    work = app.task(none)
    for _ in range(2):
        with TestApp(app) as test:
            test.refute_added(work)
            await work.enqueue()


async def test_two_apps_share_one_clock(app: App) -> None:
    other = App("mail", store="memory://")
    log: list[tuple[str, float]] = []
    clock = ManualClock()

    @other.task
    async def send() -> None:
        log.append(("send", (clock.moment() - START).total_seconds()))

    @app.task
    async def order() -> None:
        log.append(("order", (clock.moment() - START).total_seconds()))
        await send.enqueue()

    with TestApp(app, clock) as shop, TestApp(other, clock) as mail:
        await order.options(after=10).enqueue()
        assert await shop.advance(10) == 1
        mail.assert_added(send, times=1)
        shop.refute_added("send")
        assert await mail.run_until_idle() == 1
    assert log == [("order", 10), ("send", 10)]


async def test_wait_for_a_task_that_is_not_driven_times_out(app: App, test: TestApp) -> None:
    work = app.task(none)
    test.give_up = 0.05
    handle = await work.enqueue()
    with pytest.raises(TimeoutError, match=r"has not ended within 0\.05 s; in a test tasks run inside advance"):
        await handle
    await test.run_until_idle()
    assert await handle is None


@pytest.mark.timed
async def test_wait_while_nothing_runs_fails_at_once(app: App, test: TestApp) -> None:
    """Not after `give_up`, which is for tasks that run."""
    work = app.task(none)
    handle = await work.enqueue()
    began = time.monotonic()
    for wait in (handle.result, lambda: handle.result(timeout=LONG), handle.exception):
        with pytest.raises(TimeoutError, match=rf"task {handle.uuid} has not ended, and nothing runs now; in a test"):
            await wait()
    with pytest.raises(TimeoutError, match=r"nothing runs now; .* run_until_idle\(\)"):
        await asyncio.to_thread(app.handle(handle.uuid).result)
    assert time.monotonic() - began < test.give_up
    assert await test.run_until_idle() == 1
    assert await handle is None


async def test_wait_lasts_while_the_test_runs_tasks(app: App, test: TestApp) -> None:
    """Longer than a wait may last while nothing runs."""

    @app.task
    async def work() -> int:
        await asyncio.sleep(0.7)
        return 7

    handle = await work.options(after=60).enqueue()
    assert await asyncio.gather(handle.result(), test.advance(60)) == [7, 1]


async def test_wait_beside_an_advance_returns(app: App, test: TestApp) -> None:
    @app.task
    async def work() -> int:
        return 7

    async def endpoint() -> int:
        return await (await work.enqueue())

    waiting = asyncio.create_task(endpoint())
    await until(test.tasks)
    assert await test.run_until_idle() == 1
    assert await waiting == 7


# -- sync


def test_sync_test_app_runs_tasks(app: App, test: TestApp, log: Log) -> None:
    @app.task(max_retries=1, backoff=[60])
    def work(n: int) -> int:
        log(str(n))
        if current_task().attempt == 1:
            raise ValueError
        return n

    @app.task
    async def other() -> None: ...

    handle = work.delay(1)
    other.delay()
    assert test.sync.run_until_idle() == 2
    assert test.sync.advance(minutes=1) == 1
    assert handle.result(timeout=SOON) == 1
    work.options(after=3600).delay(2)
    assert test.sync.drain() == 2
    assert log == [("1", seconds(0)), ("1", seconds(60)), ("2", seconds(3660)), ("2", seconds(3720))]
    test.assert_added(work, n=2, times=1)


def test_result_of_a_failed_task_raises_in_sync_code(app: App, test: TestApp) -> None:
    @app.task
    def fail() -> None:
        raise ValueError("no")

    fail.delay()
    with pytest.raises(TaskFailed, match="ValueError: no"):
        test.sync.run_until_idle(raise_failures=True)


def test_sync_does_not_touch_the_loop_of_the_thread(app: App, test: TestApp) -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        test.sync.advance(1)
        assert asyncio.get_event_loop_policy().get_event_loop() is loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_sync_drives_a_background_worker(app: App, test: TestApp, log: Log) -> None:
    @app.task
    def work() -> None:
        log("ran")

    with app.background():
        work.options(after=60).delay()
        assert test.sync.advance(minutes=2) == 1
    assert log == [("ran", seconds(60))]


async def test_sync_in_an_event_loop_is_refused(test: TestApp) -> None:
    with pytest.raises(SchedulerStateError, match=r"await test\.advance"):
        test.sync.advance(1)


async def test_driving_a_worker_of_another_loop_is_refused(app: App, test: TestApp) -> None:
    with app.background(), pytest.raises(SchedulerStateError, match=r"`\.sync` drives it there"):
        await test.advance(1)
