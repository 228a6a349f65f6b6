"""Tasks run tasks and flows as children: results, failures and retries, on each store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from onthedot import App, ArgumentError, Retry, TaskCancelled, TaskFailed, TaskFailure, current_task, group
from onthedot.model.flow_names import is_child_flow
from onthedot.testing import TestApp
from tests.support.app_stores import AppStore
from tests.support.waits import SOON, until
from tests.unit.durable.child_tasks import Tasks, has
from tests.unit.durable.stores import on_each_store

pytestmark = pytest.mark.timeout(60)


@on_each_store
async def test_chord_as_a_child_needs_one_slot(app_store: AppStore) -> None:
    app = App(app_store.name, store=app_store.url, concurrency=1, poll_interval=60)
    tasks = Tasks(app)
    entries: list[int] = []

    @app.task
    async def order(count: int) -> list[Any]:
        ctx = current_task()
        entries.append(ctx.attempt)
        one = await ctx.run(tasks.double.s(21))
        chord = await ctx.run(group(tasks.double.s(number) for number in range(count)) | tasks.total)
        both = await ctx.run(group(tasks.double.s(1), tasks.total.s([1, 2])))
        none = await ctx.run(group([]))
        return [one, chord, list(both), none]

    async with app.running():
        handle = await order.enqueue(10)
        assert await handle.result(SOON) == [42, 90, [2, 3], []]
        assert (await handle.info()).attempt == 1
    assert entries == [1, 1, 1, 1]
    assert sorted(tasks.runs) == sorted([21, 1, *range(10)])


@on_each_store
async def test_sync_task_runs_a_child_as_its_async_twin(app: App) -> None:
    tasks = Tasks(app)

    @app.task
    def order(count: int) -> int:
        return current_task().sync.run(group(tasks.double.s(number) for number in range(count)) | tasks.total)

    async with app.running():
        assert await (await order.enqueue(4)).result(SOON) == 12


@on_each_store
async def test_failed_child_raises_its_error(app: App) -> None:
    tasks = Tasks(app)
    tasks.broken = {2}

    @app.task
    async def order(shape: str) -> list[str]:
        call = tasks.double.s(2)
        if shape == "chord":
            call = group(tasks.double.s(number) for number in range(4)) | tasks.total
        try:
            await current_task().run(call)
        except TaskFailed as error:
            return [error.error_type, error.message, error.task]
        return []

    @app.task
    async def collected() -> list[int | TaskFailure]:
        calls = [tasks.double.s(number) for number in (1, 2)]
        return await current_task().run(group(calls, on_error="collect"))

    async with app.running():
        for shape in ("task", "chord"):
            error_type, message, uuid = await (await order.enqueue(shape)).result(SOON)
            assert (error_type, message) == ("ValueError", "no 2")
            assert (await app.ahandle(uuid).info()).args == {"number": 2}
        first, second = await (await collected.enqueue()).result(SOON)
        assert first == 2
        assert isinstance(second, TaskFailure)


@on_each_store
async def test_retry_starts_a_new_child_and_keeps_those_that_succeeded(app: App) -> None:
    tasks = Tasks(app)
    tasks.broken = {2}

    @app.task(max_retries=3, backoff=0)
    async def order() -> list[int]:
        ctx = current_task()
        one = await ctx.run(tasks.double.s(1))
        if ctx.attempt == 2:
            tasks.broken = set()
        two = await ctx.run(tasks.double.s(2))
        return [one, two, ctx.attempt]

    async with app.running():
        assert await (await order.enqueue()).result(SOON) == [2, 4, 2]
    assert tasks.runs == [1, 2, 2]


@on_each_store
async def test_same_attempt_raises_the_same_error_after_a_suspension(app: App) -> None:
    tasks = Tasks(app)
    tasks.broken = {1}
    errors: list[tuple[int, str]] = []

    @app.task(max_retries=1, backoff=0)
    async def order() -> str:
        ctx = current_task()
        try:
            await ctx.run(tasks.double.s(1))
        except TaskFailed as error:
            errors.append((ctx.attempt, error.task))
            await ctx.sleep(0.5)
            if ctx.attempt == 1:
                raise Retry from None
            return "gave up"
        return "done"

    async with app.running():
        assert await (await order.enqueue()).result(SOON) == "gave up"
    assert [attempt for attempt, _ in errors] == [1, 1, 2], "the sleep is over in attempt 2"
    assert errors[0] == errors[1] != errors[2]
    assert tasks.runs == [1, 1]


def test_caught_failure_of_a_child_does_not_look_like_changed_code() -> None:
    """The next attempt starts a new child, which succeeds, so it takes other steps than the first."""
    app = App("shop")
    tasks = Tasks(app)
    tasks.broken = {1}

    @app.task(max_retries=1, backoff=0)
    async def order() -> list[str]:
        ctx = current_task()
        done: list[str] = []
        try:
            await ctx.run(tasks.double.s(1))
        except TaskFailed:
            done.append(await ctx.step("remind", str, "reminded"))
        done.append(await ctx.step("pack", str, "packed"))
        if ctx.attempt == 1:
            tasks.broken = set()
            raise Retry
        done.append(await ctx.step("ship", str, "shipped"))
        return done

    with TestApp(app) as test:
        handle = order.delay()
        test.sync.drain()
        assert handle.result() == ["packed", "shipped"]


@on_each_store
async def test_child_is_no_member_of_the_flow_of_its_parent(app: App) -> None:
    """Also if the parent is the last task of its flow, whose id is the uuid of the parent."""
    tasks = Tasks(app)
    tasks.broken = {7}

    @app.task
    async def order(numbers: list[int]) -> int:
        try:
            await current_task().run(tasks.double.s(7))
        except TaskFailed:
            return sum(await current_task().run(group(tasks.double.s(number) for number in numbers)))
        return 0

    async with app.running():
        handle = await (group(tasks.double.s(number) for number in range(3)) | order).enqueue()
        assert await handle.result(SOON) == 12
        progress = await handle.progress()
        assert (progress.done, progress.failed, progress.total) == (4, 0, 4)
        shown = [task.uuid for task in await handle.tasks()]
        assert len(shown) == 4
        assert not any(map(is_child_flow, shown))
        assert await handle.retry() == 0, "the failed child is not run again"


async def test_flow_reports_its_own_failure_and_not_that_of_a_child() -> None:
    app = App("shop", store="memory://")
    tasks = Tasks(app)
    tasks.broken = {7}

    @app.task
    async def order(number: int) -> int:
        try:
            await current_task().run(tasks.double.s(7))
        except TaskFailed:
            await current_task().wait_for("approved")
        return number

    async with app.running():
        handle = await (tasks.double.s(1) | order).enqueue()
        await until(lambda: has(app, "order", "waiting", 1))
        await until(lambda: has(app, "double", "failed", 1))
        await until(lambda: has(app, "order", "waiting", 1))
        await handle.cancel("enough")
        with pytest.raises(TaskCancelled, match="enough"):
            await handle.result(SOON)


def test_result_of_a_child_is_kept_as_long_as_its_parent_lives() -> None:
    app = App("shop")
    runs: list[int] = []

    @app.task(keep=0)
    async def double(number: int) -> int:
        runs.append(number)
        return number * 2

    @app.task
    async def order() -> int:
        ctx = current_task()
        found = await ctx.run(double.s(4))
        await ctx.sleep(timedelta(days=60))
        return found

    with TestApp(app) as test:
        handle = order.delay()
        for _ in range(30):
            test.sync.advance(days=2)
            app.runtime.portal.run_sync(lambda client: client.operations.purge())
        assert handle.result() == 8
    assert runs == [4]


async def test_child_of_another_app_is_refused() -> None:
    app = App("shop", store="memory://")
    other = App("bank", store="memory://")

    @other.task
    async def pay(amount: int) -> int:
        return amount

    @app.task
    async def order(verb: str) -> str:
        ctx = current_task()
        if verb == "spawn":
            ctx.spawn(pay.s(1))
        return str(await ctx.run(pay.s(1) | pay))

    async with app.running():
        for verb in ("run", "spawn"):
            handle = await order.enqueue(verb)
            with pytest.raises(TaskFailed, match=rf"ctx\.{verb}\(\): .*pay.* is a call of another app") as raised:
                await handle.result(SOON)
            assert raised.value.error_type == "onthedot.ArgumentError"


async def test_bad_child_is_refused_before_anything_is_added() -> None:
    app = App("shop", store="memory://")
    tasks = Tasks(app)

    async def inside() -> None:
        await current_task().run(tasks.double.s(1))

    @app.task
    async def order() -> str:
        ctx = current_task()
        with pytest.raises(ArgumentError, match=r"ctx.run adds at most 1,000 tasks in one step.*1,001"):
            await ctx.run(group(tasks.double.s(number) for number in range(1000)) | tasks.total)
        with pytest.raises(ArgumentError, match=r"unique= on a task.*once per attempt"):
            await ctx.run(tasks.double.options(unique="one").s(1))
        for wrong in (tasks.double, tasks.total.s, 3):
            with pytest.raises(ArgumentError, match=r"takes a call such as f\.s"):
                await ctx.run(wrong)  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match=r"ctx.run\(\) inside of step 'charge'"):
            await ctx.step("charge", inside)
        with pytest.raises(RuntimeError, match=r"await the steps first"):
            await asyncio.gather(ctx.step("slow", asyncio.sleep, 0.01), ctx.run(tasks.double.s(1)))
        return "refused"

    async with app.running():
        assert await (await order.enqueue()).result(SOON) == "refused"
        assert not await app.find(source="double")


@on_each_store
async def test_stream_as_a_child_returns_its_items(app: App) -> None:
    @app.task
    async def count_up(to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    @app.task
    async def order() -> list[Any]:
        ctx = current_task()
        one = await ctx.run(count_up.s(3))
        several = await ctx.run(group(count_up.s(number) for number in range(3)))
        await ctx.sleep(0.01)
        return [one, several]

    @app.task
    async def streaming() -> AsyncIterator[int]:
        ctx = current_task()
        streamed = ctx.streamed
        for number in range(3):
            value = sum(await ctx.run(count_up.s(number + 2)))
            if number >= streamed:
                yield value

    async with app.running():
        assert await (await order.enqueue()).result(SOON) == [[0, 1, 2], [[], [0], [0, 1]]]
        assert await (await streaming.enqueue()).result(SOON) == [1, 3, 6]


@on_each_store
async def test_remote_child_is_run_by_name(app: App) -> None:
    tasks = Tasks(app)

    @app.task
    async def order() -> Any:
        assert tasks.double.name == "double"
        return await current_task().run(app.named("double").s(number=5))

    async with app.running():
        assert await (await order.enqueue()).result(SOON) == 10
