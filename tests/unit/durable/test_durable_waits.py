"""Sleeps and waits end the run: slots are free, times are exact, and a function that holds on to its run fails."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from onthedot import App, Retry, TaskCancelled, TaskFailed, current_task
from onthedot.testing import TestApp
from tests.support.app_stores import AppStore
from tests.support.waits import until
from tests.unit.durable.stores import on_each_store


@on_each_store
async def test_slot_is_free_during_a_sleep_and_a_wait(app_store: AppStore) -> None:
    app = App(app_store.name, store=app_store.url, concurrency=1)

    @app.task
    async def order() -> str:
        await current_task().sleep(0.2)
        return await current_task().wait_for("approved")

    @app.task
    async def other() -> str:
        return "ran"

    async with app.running():
        began = time.time()
        handle = await order.enqueue()
        assert await (await other.enqueue()).result(10) == "ran"
        await until(lambda: _is(handle, "waiting"))
        assert time.time() - began >= 0.2, "never early"
        assert await (await other.enqueue()).result(10) == "ran"
        await handle.signal("approved", "yes")
        assert await handle.result(10) == "yes"


async def _is(handle: Any, state: str) -> bool:
    return await handle.state() == state


def test_manual_clock_drives_sleeps_and_timeouts() -> None:
    app = App("shop")
    log: list[tuple[str, timedelta]] = []

    @app.task
    async def trial() -> str:
        ctx = current_task()
        await ctx.step("begin", note, "begin")
        await ctx.sleep(timedelta(days=14))
        await ctx.step("remind", note, "remind")
        try:
            await ctx.wait_for("paid", timeout=timedelta(days=2))
        except TimeoutError:
            await ctx.step("end", note, "end")
            return "ended"
        return "paid"

    with TestApp(app) as test:
        start = test.now()

        def note(what: str) -> None:
            log.append((what, test.now() - start))

        first = trial.delay()
        second = trial.delay()
        assert test.sync.advance(days=15) == 4
        second.signal("paid")
        test.sync.run_until_idle()
        assert second.result() == "paid"
        test.sync.drain()
        assert first.result() == "ended"
    days = [timedelta(days=number) for number in (0, 0, 14, 14, 16)]
    assert log == list(zip(["begin", "begin", "remind", "remind", "end"], days, strict=True))


def test_wait_without_a_timeout_lasts_until_its_signal() -> None:
    app = App("shop")

    @app.task
    async def order() -> Any:
        return await current_task().wait_for("approved")

    with TestApp(app) as test:
        handle = order.delay()
        test.sync.advance(weeks=50)
        assert handle.state() == "waiting"
        handle.signal("approved", [1])
        assert test.sync.run_until_idle() == 1
        assert handle.result() == [1]


def test_finally_runs_at_every_suspension_and_its_steps_at_the_end() -> None:
    app = App("shop")
    log: list[str] = []

    @app.task
    async def order() -> None:
        ctx = current_task()
        try:
            await ctx.sleep(10)
        finally:
            log.append("finally")
            await ctx.step("clean", log.append, "clean")

    with TestApp(app) as test:
        handle = order.delay()
        test.sync.drain()
        assert handle.result() is None
    assert log == ["finally", "finally", "clean"]


@pytest.mark.parametrize("verb", ["sleep", "wait"])
def test_function_that_swallows_its_suspension_fails(verb: str) -> None:
    app = App("shop")

    @app.task
    async def order() -> str:
        try:
            await (current_task().sleep(10) if verb == "sleep" else current_task().wait_for("approved"))
        except BaseException:
            return "swallowed"
        return "woken"

    with TestApp(app) as test:
        handle = order.delay()
        test.sync.drain()
        with pytest.raises(TaskFailed, match="let BaseException pass"):
            handle.result()


def test_suspension_passes_a_task_group() -> None:
    app = App("shop")

    @app.task
    async def order() -> str:
        async with asyncio.TaskGroup() as group:
            found = group.create_task(current_task().wait_for("approved", type=str))
        return found.result()

    with TestApp(app) as test:
        handle = order.delay()
        test.sync.run_until_idle()
        assert handle.state() == "waiting"
        handle.signal("approved", "yes")
        test.sync.run_until_idle()
        assert handle.result() == "yes"


def test_step_beside_a_suspension_does_not_run() -> None:
    """gather() does not cancel the others."""
    app = App("shop")
    calls: list[str] = []

    @app.task
    async def order() -> None:
        ctx = current_task()
        await asyncio.gather(ctx.sleep(10), ctx.step("charge", calls.append, "charge"))

    with TestApp(app) as test:
        handle = order.delay()
        test.sync.run_until_idle()
        assert (handle.state(), calls) == ("scheduled", [])
        test.sync.drain()
        assert (handle.state(), calls) == ("succeeded", ["charge"])


def test_suspension_keeps_the_attempt_and_counts_no_retry() -> None:
    app = App("shop")
    attempts: list[int] = []

    @app.task(max_retries=2)
    async def order() -> None:
        ctx = current_task()
        attempts.append(ctx.attempt)
        await ctx.sleep(10)
        if ctx.attempt == 1:
            raise Retry(after=0)
        await ctx.wait_for("approved", timeout=10)

    with TestApp(app) as test:
        handle = order.delay()
        test.sync.advance(10)
        handle.signal("approved")
        test.sync.drain()
        assert handle.state() == "succeeded"
    assert attempts == [1, 1, 2, 2]


def test_timeout_of_a_wait_stays_one_in_later_runs() -> None:
    """A signal that comes after the timeout is kept, and the next wait takes it."""
    app = App("shop")

    @app.task
    async def order() -> list[Any]:
        ctx = current_task()
        found: list[Any] = []
        for _ in range(2):
            try:
                found.append(await ctx.wait_for("approved", timeout=10))
            except TimeoutError as error:
                found.append(str(error))
            await ctx.sleep(5)
        return found

    with TestApp(app) as test:
        handle = order.delay()
        test.sync.advance(12)
        handle.signal("approved", "late")
        test.sync.drain()
        assert handle.result() == ['no signal "approved" came in time', "late"]


def test_task_timeout_applies_to_each_run() -> None:
    app = App("shop")

    @app.task(timeout=5)
    async def order() -> str:
        for _ in range(3):
            await current_task().sleep(4)
        return "done"

    with TestApp(app) as test:
        handle = order.delay()
        test.sync.drain()
        assert handle.result() == "done"


@on_each_store
@pytest.mark.parametrize("verb", ["sleep", "wait"])
async def test_sleeping_or_waiting_task_can_be_cancelled(app: App, verb: str) -> None:
    @app.task
    async def order() -> None:
        await (current_task().sleep(60) if verb == "sleep" else current_task().wait_for("approved"))

    async with app.running():
        handle = await order.enqueue()
        await until(lambda: _is(handle, "scheduled" if verb == "sleep" else "waiting"))
        assert await handle.cancel()
        with pytest.raises(TaskCancelled):
            await handle.result(10)


@on_each_store
async def test_stopped_worker_releases_a_run_and_its_steps_stay(app_store: AppStore) -> None:
    app = App(app_store.name, store=app_store.url, stop_timeout=0)
    app.runtime.use(replace(app.runtime.config, keep_pending_on_stop=True))
    calls: list[str] = []
    begun = asyncio.Event()

    @app.task
    async def order() -> list[Any]:
        ctx = current_task()
        await ctx.step("charge", calls.append, "charge")
        if not begun.is_set():
            begun.set()
            await asyncio.sleep(60)
        return [ctx.attempt, *calls]

    async with app.running():
        handle = await order.enqueue()
        await begun.wait()
    async with app.running():
        assert await handle.result(10) == [1, "charge"]


@pytest.mark.parametrize("duration", [-1, float("nan"), 1e12])
async def test_bad_duration_is_refused(duration: float) -> None:
    app = App("shop", store="memory://")

    @app.task
    async def order() -> str:
        ctx = current_task()
        with pytest.raises(ValueError, match=r"ctx.sleep\(\).*out of range"):
            await ctx.sleep(duration)
        with pytest.raises(ValueError, match=r"timeout of a wait.*out of range"):
            await ctx.wait_for("approved", timeout=duration)
        return "refused"

    async with app.running():
        assert await (await order.enqueue()).result(10) == "refused"


async def test_waiting_task_of_a_memory_store_ends_with_it() -> None:
    app = App("shop", store="memory://")

    @app.task
    async def order() -> None:
        await current_task().wait_for("approved")

    async with app:
        async with app.running():
            handle = await order.enqueue()
            await until(lambda: _is(handle, "waiting"))
        with pytest.raises(TaskCancelled, match="shutdown"):
            await handle.result(10)


def test_drain_leaves_a_task_that_waits_for_ever() -> None:
    app = App("shop")

    @app.task
    async def order() -> None:
        await current_task().wait_for("approved")

    with TestApp(app) as test:
        handle = order.delay()
        assert test.sync.drain() == 1
        assert handle.state() == "waiting"
