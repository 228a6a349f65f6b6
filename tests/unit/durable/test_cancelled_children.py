"""Children and their parents are cancelled, at any moment and through several levels, on each store."""

from __future__ import annotations

import asyncio

import pytest

from onthedot import App, TaskCancelled, current_task, group
from onthedot.client.client import StoreClient
from onthedot.operations.children import effects_of_cancel
from tests.support.waits import SOON, until
from tests.unit.durable.child_tasks import Tasks, has
from tests.unit.durable.stores import on_each_store

pytestmark = pytest.mark.timeout(60)


@on_each_store
async def test_cancelled_child_raises_task_cancelled(app: App) -> None:
    tasks = Tasks(app)

    @app.task
    async def order() -> str:
        try:
            await current_task().run(tasks.hang.s(1))
        except TaskCancelled as error:
            return error.reason
        return "not cancelled"

    async with app.running():
        handle = await order.enqueue()
        await tasks.begun.wait()
        (child,) = await app.find(source="hang")
        await app.cancel(child.uuid, reason="enough")
        assert await handle.result(SOON) == "enough"


@on_each_store
async def test_cancel_reaches_children_of_children(app: App) -> None:
    tasks = Tasks(app)

    @app.task
    async def third() -> int:
        return sum(await current_task().run(group(tasks.hang.s(number) for number in range(3))))

    @app.task
    async def second() -> int:
        return await current_task().run(third.s())

    @app.task
    async def first() -> int:
        return await current_task().run(group([second.s()]) | tasks.total)

    async with app.running():
        handle = await first.enqueue()
        await until(lambda: has(app, "hang", "running", 3))
        assert await handle.cancel()
        with pytest.raises(TaskCancelled):
            await handle.result(SOON)
        for source, count in {"hang": 3, "third": 1, "second": 1, "total": 1}.items():
            await until(lambda: has(app, source, "cancelled", count))  # noqa: B023 - awaited at once
        (child,) = await app.find(source="second")
        assert child.reason == f"its parent first {handle.uuid} was cancelled"
        await until(lambda: has(app, "onthedot.stop", "succeeded", 3))


@on_each_store
async def test_cancel_of_a_flow_counts_and_ends_the_tasks_of_children(app: App) -> None:
    tasks = Tasks(app)

    @app.task
    async def inner() -> int:
        return await current_task().run(group(tasks.hang.s(number) for number in range(3)) | tasks.total)

    @app.task
    async def outer() -> int:
        return await current_task().run(inner.s())

    @app.task
    async def last(number: int) -> int:
        return number

    async with app.running():
        handle = await (outer.s() | last).enqueue()
        await until(lambda: has(app, "hang", "running", 3))
        assert await handle.cancel() == 7  # last, outer, inner, total, and hang three times
        for source, count in {"hang": 3, "total": 1, "inner": 1, "outer": 1, "last": 1}.items():
            assert await has(app, source, "cancelled", count)


@on_each_store
@pytest.mark.parametrize("is_member", [False, True])
async def test_cancel_at_the_moment_of_suspension_leaves_no_child(app: App, is_member: bool) -> None:
    """The cancel comes when the run has decided to end, and its outcome is not settled."""
    tasks = Tasks(app)
    loop = asyncio.get_running_loop()

    @app.task
    def order() -> int:
        try:
            return current_task().sync.run(tasks.hang.s(1))
        finally:
            asyncio.run_coroutine_threadsafe(app.cancel(current_task().uuid), loop).result()

    @app.task
    async def show(number: int) -> int:
        return number

    async with app.running():
        handle = await (order.s() | show if is_member else order.s()).enqueue()
        with pytest.raises(TaskCancelled):
            await handle.result(SOON)
        (parent,) = await app.find(source="order")
        await until(lambda: _is_over(app, parent.uuid))


async def _is_over(app: App, parent: str) -> bool:
    """The parent was cancelled, and all that it has added."""
    tasks = list(await app.find())
    assert any(task.uuid == parent and task.state == "cancelled" for task in tasks)
    assert not any(task.source == "hang" and task.state == "succeeded" for task in tasks)
    return all(task.state.ended for task in tasks)


@on_each_store
async def test_child_is_cancelled_although_the_canceller_dies(app: App) -> None:
    tasks = Tasks(app)

    @app.task
    async def order() -> int:
        return await current_task().run(tasks.hang.s(1))

    async def cancel_and_die(client: StoreClient) -> None:
        leased = await client.store.cancel("canceller", [handle.uuid])
        assert [record.uuid for record in leased.tasks] == [handle.uuid]
        await client.store.close_session("canceller", crashed=True)

    async with app.running():
        handle = await order.enqueue()
        await tasks.begun.wait()
        await until(lambda: has(app, "order", "waiting", 1))
        await app.runtime.portal.run(cancel_and_die)
        with pytest.raises(TaskCancelled):
            await handle.result(SOON)
        await until(lambda: has(app, "hang", "cancelled", 1))


async def test_child_that_was_added_between_the_read_and_the_cancel_is_found() -> None:
    app = App("shop", store="memory://")
    tasks = Tasks(app)

    @app.task
    async def order() -> int:
        return await current_task().run(tasks.hang.s(1))

    async with app.running():
        handle = await order.options(after=0.05).enqueue()
        store = app.runtime.store
        (before,) = await store.get([handle.uuid])
        await tasks.begun.wait()
        await until(lambda: has(app, "order", "waiting", 1))
        (now,) = await store.get([handle.uuid])
        assert before is not None
        assert now is not None
        (child,) = await app.find(source="hang")
        for known in ({}, {before.uuid: before}, {now.uuid: now}):
            found = await effects_of_cancel(store, [now], known, lambda: "stop-1")
            (stop,) = found[handle.uuid].tasks
            assert (stop.uuid, stop.source) == ("stop-1", "onthedot.stop")
            assert child.uuid.encode() in stop.body
        assert await effects_of_cancel(store, [before], {}, lambda: "stop-1") == {}, "it never started"
        await handle.cancel()


@on_each_store
async def test_retried_parent_starts_a_new_child_after_a_cancel(app: App) -> None:
    tasks = Tasks(app)

    @app.task
    async def order() -> int:
        call = tasks.hang.s(1) if current_task().attempt == 1 else tasks.double.s(4)
        return await current_task().run(call)

    async with app.running():
        handle = await order.enqueue()
        await tasks.begun.wait()
        await until(lambda: has(app, "order", "waiting", 1))
        await handle.cancel()
        await handle.retry()
        assert await handle.result(SOON) == 8
        await until(lambda: has(app, "hang", "cancelled", 1))
