"""Sync tasks use ``ctx.sync``, async ones ``ctx``, and tasks in processes neither: the error names the other form."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from onthedot import App, Retry, TaskContext, TaskFailed, current_task, group
from onthedot.executors.processes import fork_server
from onthedot.testing import TestApp
from tests.support.waits import SOON, until
from tests.unit.durable.child_tasks import Tasks, has
from tests.unit.durable.stores import on_each_store

VERBS: dict[str, tuple[Any, ...]] = {
    "step": ("charge", list), "sleep": (1,), "wait_for": ("approved",), "wait_any": ("paid", "refused"),
    "run": (None,),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_async_form_in_a_sync_task_names_the_sync_form(verb: str) -> None:
    app = App("shop", store="memory://")

    @app.task
    def resize() -> None:
        getattr(current_task(), verb)(*VERBS[verb])

    with app.background(), pytest.raises(TaskFailed) as raised:
        resize.delay().result(10)
    text = f'ctx.{verb}() is for async tasks and "resize" is sync: write ctx.sync.{verb}(…)'
    assert (raised.value.error_type, raised.value.message) == ("TypeError", text)


@pytest.mark.parametrize("verb", VERBS)
def test_sync_form_in_an_async_task_names_the_async_form(verb: str) -> None:
    app = App("shop", store="memory://")

    @app.task
    async def resize() -> None:
        getattr(current_task().sync, verb)(*VERBS[verb])

    with app.background(), pytest.raises(TaskFailed) as raised:
        resize.delay().result(10)
    text = f'ctx.sync.{verb}() is for sync tasks and "resize" is async: write await ctx.{verb}(…)'
    assert (raised.value.error_type, raised.value.message) == ("TypeError", text)


process_app = App("shop", store="memory://")


@process_app.task(executor="process")
def in_process(verb: str, sync: bool) -> None:
    context: Any = current_task()
    getattr(context.sync if sync else context, verb)(*VERBS[verb])


@pytest.mark.once
@pytest.mark.skipif(not fork_server.is_supported(), reason="needs process groups")
@pytest.mark.parametrize("sync", [True, False])
def test_form_in_a_process_names_the_alternative(sync: bool) -> None:
    with process_app.background():
        for verb in VERBS:
            with pytest.raises(TaskFailed, match=r'executor="process".*with ctx\.run') as raised:
                in_process.delay(verb, sync).result(20)
            assert raised.value.error_type == "TypeError"


@pytest.mark.parametrize("function", [asyncio.sleep, lambda seconds: asyncio.sleep(seconds)], ids=["def", "lambda"])
def test_async_function_as_a_sync_step_is_refused(function: Callable[[float], Any]) -> None:
    app = App("shop", store="memory://")

    @app.task
    def order() -> None:
        current_task().sync.step("nap", function, 0)

    with app.background(), pytest.raises(TaskFailed, match="pass a sync function") as raised:
        order.delay().result(10)
    assert raised.value.error_type == "TypeError"


def test_sync_task_steps_sleeps_and_waits_as_its_async_twin() -> None:
    app = App("shop")
    calls: list[str] = []

    def charge(amount: int) -> int:
        calls.append("charge")
        return amount

    @app.task(max_retries=1)
    def order(amount: int) -> list[Any]:
        ctx = current_task()
        paid = ctx.sync.step("charge", charge, amount)
        ctx.sync.sleep(3 * 86_400)
        approved = ctx.sync.wait_for("approved", timeout=60, type=dict[str, str])
        first = ctx.sync.wait_any("shipped", "lost")
        if ctx.attempt == 1:
            raise Retry(after=0)
        return [paid, approved, first.name, first.payload]

    with TestApp(app) as test:
        handle = order.delay(7)
        test.sync.advance(days=2, hours=23)
        assert handle.state() == "scheduled"
        test.sync.advance(hours=1)
        assert handle.state() == "waiting"
        handle.signal("approved", {"by": "ann"})
        test.sync.run_until_idle()
        app.sync.signal("lost", 3)
        test.sync.run_until_idle()
        assert handle.result() == [7, {"by": "ann"}, "lost", 3]
    assert calls == ["charge"]


@on_each_store
async def test_sync_task_and_its_async_twin_agree_on_each_store(app: App) -> None:
    """Both step, sleep, wait and run a child; their answers tell which run each of them ended in."""
    charges: list[str] = []
    tasks = Tasks(app)

    def charge(name: str) -> str:
        charges.append(name)
        return f"receipt of {name}"

    @app.task
    def plain() -> list[Any]:
        sync = current_task().sync
        paid = sync.step("charge", charge, "plain")
        began = sync.step("begin", time.time)
        sync.sleep(0.2)
        slept = sync.step("wake", time.time) - began
        approved = sync.wait_for("approved", timeout=60, type=dict[str, str])
        total = sync.run(group(tasks.double.s(number) for number in range(4)) | tasks.total)
        return [paid, slept >= 0.2, approved, total, current_task().attempt]

    @app.task
    async def twin() -> list[Any]:
        ctx = current_task()
        paid = await ctx.step("charge", charge, "twin")
        began = await ctx.step("begin", time.time)
        await ctx.sleep(0.2)
        slept = await ctx.step("wake", time.time) - began
        approved = await ctx.wait_for("approved", timeout=60, type=dict[str, str])
        total = await ctx.run(group(tasks.double.s(number) for number in range(4)) | tasks.total)
        return [paid, slept >= 0.2, approved, total, ctx.attempt]

    async with app.running():
        handles = [await task.enqueue() for task in (plain, twin)]
        for source in ("plain", "twin"):
            await until(lambda source=source: has(app, source, "waiting", 1))
        assert sorted(charges) == ["plain", "twin"]
        assert await app.signal("approved", {"by": "ann"})
        found = [await handle.result(SOON) for handle in handles]
    assert found == [[f"receipt of {name}", True, {"by": "ann"}, 12, 1] for name in ("plain", "twin")]
    assert sorted(charges) == ["plain", "twin"], "a saved step does not run again when its task goes on"


def test_durable_verbs_need_a_running_task() -> None:
    with pytest.raises(RuntimeError, match="outside of a running task"):
        current_task()
    assert {"step", "sleep", "wait_for", "wait_any", "run", "changed"} <= set(dir(TaskContext))
