"""Cases that take real time: threads, timeouts, tasks that wait or never end."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from onthedot import (
    App,
    TaskTimeout,
)
from onthedot.testing import TestApp
from tests.unit.testing.steps import START, Log, hours, nothing_is_alive, seconds


async def test_timeout_of_an_async_task(app: App, test: TestApp, log: Log) -> None:
    @app.task(timeout=30, max_retries=2, backoff=[60])
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            log("cancelled")

    test.patience = 0.05
    handle = await hang.enqueue()
    assert await test.advance(minutes=10) == 3
    assert [when for _, when in log] == [seconds(30), seconds(120), seconds(210)]
    nothing_is_alive()
    assert isinstance(await handle.exception(), TaskTimeout)


@pytest.mark.timed
async def test_timeout_of_a_thread(app: App, test: TestApp, caplog: pytest.LogCaptureFixture) -> None:
    go_on = threading.Event()

    @app.task(timeout=30)
    def hang() -> None:
        go_on.wait(10)

    @app.task
    def work() -> None: ...

    test.patience = 0.05
    handle = await hang.enqueue()
    await work.options(after=60).enqueue()
    began = time.monotonic()
    assert await test.advance(minutes=2) == 2
    assert time.monotonic() - began < 1
    assert isinstance(await handle.exception(), TaskTimeout)
    assert (await handle.info()).ended_at == START + seconds(30)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert "has timed out" in caplog.text
    stuck = [each for each in threading.enumerate() if each.name.startswith("onthedot-shop-")]
    go_on.set()
    for thread in stuck:
        thread.join()


async def test_time_stands_still_while_a_thread_runs(app: App, test: TestApp, log: Log) -> None:
    @app.task(timeout=1)
    def slow(name: str) -> None:
        time.sleep(0.1)
        log(name)

    await slow.enqueue("a")
    await slow.options(after=0.5).enqueue("b")
    assert await test.advance(days=1) == 2
    assert log == [("a", seconds(0)), ("b", seconds(0.5))]


async def test_many_threads_may_take_longer_than_patience_together(app: App, test: TestApp, log: Log) -> None:
    @app.task(concurrency=1)
    def slow() -> None:
        time.sleep(0.02)

    @app.task
    async def later() -> None:
        log("later")

    test.patience = 0.1
    await later.options(after=1).enqueue()
    await slow.enqueue_many([{}] * 15)
    assert await test.advance(1) == 16
    ended = [info.ended_at for info in test.tasks(slow)]
    assert ended == [START] * 15
    assert log == [("later", seconds(1))]


async def test_a_task_that_waits_for_a_later_one(app: App, test: TestApp, log: Log) -> None:
    @app.task
    async def child() -> int:
        return 21

    @app.task
    async def parent() -> int:
        value = await (await child.options(after=3600).enqueue())
        log("went on")
        return 2 * value

    test.patience = 0.05
    handle = await parent.enqueue()
    assert await test.advance(hours=2) == 2
    assert log == [("went on", hours(1))]
    nothing_is_alive()
    assert await handle == 42


async def test_endless_task_is_a_timeout_error(app: App, test: TestApp) -> None:
    @app.task
    async def hang(url: str) -> None:
        await asyncio.Event().wait()

    test.patience = 0.05
    test.give_up = 0.2
    await hang.enqueue("http://x")
    for verb in (test.run_until_idle, test.drain):
        with pytest.raises(TimeoutError, match=r"still running after 0.2 real seconds: hang\(url='http://x'\)$"):
            await verb()
        nothing_is_alive()
    (info,) = test.tasks()
    assert (info.state, info.attempt) == ("ready", 1)


async def test_advance_that_ends_before_the_timeout_names_the_next_alarm(app: App, test: TestApp) -> None:
    @app.task(timeout=30)
    async def hang() -> None:
        await asyncio.Event().wait()

    test.patience = 0.05
    test.give_up = 0.2
    await hang.enqueue()
    with pytest.raises(TimeoutError, match="The next alarm is at 2026-01-01 00:00:30"):
        await test.advance(10)


async def test_a_blocking_task_is_waited_for(app: App, test: TestApp, log: Log) -> None:
    @app.task
    async def block() -> None:
        time.sleep(0.2)  # noqa: ASYNC251 - as users do
        log("done")

    test.patience = 0.05
    test.give_up = 0.1
    await block.enqueue()
    await block.options(after=1).enqueue()
    assert await test.advance(1) == 2
    assert log == [("done", seconds(0)), ("done", seconds(1))]
