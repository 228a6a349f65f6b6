"""Layers around a run: `app.around`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from onthedot import (
    App,
    Reject,
    TaskContext,
    TaskFailed,
    TaskFunction,
    current_task,
)


async def test_first_middleware_is_the_outermost(app: App) -> None:
    steps: list[str] = []

    @app.around
    async def outer(task: TaskContext, call: Callable[[], Awaitable[object]]) -> object:
        steps.append(f"> {task.source} {task.args['number']}")
        try:
            return f"[{await call()}]"
        finally:
            steps.append("<")

    @app.around
    async def inner(task: TaskContext, call: Callable[[], Awaitable[object]]) -> object:
        assert current_task() is task
        return 10 * int(str(await call())) if task.args["number"] else 0

    @app.task
    async def on_loop(number: int) -> object:
        steps.append("run")
        return number

    @app.task
    def in_thread(number: int) -> object:
        steps.append("run")
        return number

    tasks: list[TaskFunction[..., Any, object]] = [on_loop, in_thread]
    async with app.running():
        for task in tasks:
            steps.clear()
            assert await (await task.enqueue(4)) == "[40]"
            assert await (await task.enqueue(0)) == "[0]"
            assert steps == [f"> {task.name} 4", "run", "<", f"> {task.name} 0", "<"]


async def test_middleware_may_handle_errors_and_repeat_the_call(app: App) -> None:
    tries: list[int] = []

    @app.around
    async def layer(task: TaskContext, call: Callable[[], Awaitable[object]]) -> object:
        try:
            return await call()
        except KeyError:
            return await call()
        except LookupError:
            return "handled"
        except OSError as error:
            raise Reject("not again") from error

    @app.task(max_retries=3)
    async def act(what: str) -> str:
        tries.append(1)
        if what == "key" and len(tries) == 2:
            return "second time"
        raise {"key": KeyError, "index": IndexError, "os": OSError}[what]

    async with app.running():
        assert await (await act.enqueue("index")) == "handled"
        tries.clear()
        assert await (await act.enqueue("key")) == "second time"
        error = await (await act.enqueue("os")).exception()
    assert isinstance(error, TaskFailed)
    assert error.message == "not again"


def test_middleware_must_be_async(app: App) -> None:
    with pytest.raises(TypeError, match="async function"):
        app.around(lambda task, call: call())
