"""The tasks of flows, of steps and of signals that every node runs with `--flows`, and the flows that nodes add."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from onthedot import App, Call, TaskContext, TaskFailure, current_task, group
from tests.sim.app import Boom, Tasks

SIGNAL = "go"
SIGNALS_TAKEN = 2
"""How many signals a task of `waiting` takes, one after the other."""


@dataclass(frozen=True)
class FlowEvents:
    """Receives what the tasks see.

    violated: a value is wrong. stepped: the function of a step runs. is_mended: a task of `fragile` succeeds now.
    """

    violated: Callable[[str], None]
    stepped: Callable[[TaskContext, str], None]
    is_mended: Callable[[str], bool]


def add_flow_tasks(app: App, events: FlowEvents) -> Tasks:
    tasks = _add_members(app, events)
    return tasks | _add_durable_tasks(app, events) | _add_callers(app, events, tasks)


def _add_members(app: App, events: FlowEvents) -> Tasks:  # noqa: C901 -- one function per task
    @app.task
    async def part(number: int) -> int:
        return number

    @app.task(max_retries=5, backoff=[0.2])
    async def unsteady(number: int) -> int:
        if current_task().attempt < 2:
            raise Boom(number)
        return number

    @app.task
    async def fragile(number: int) -> int:
        await asyncio.sleep(0.1)
        if not events.is_mended(current_task().uuid):
            raise Boom(number)
        return number

    @app.task
    async def expect(number: int, expected: int) -> int:
        if number != expected:
            events.violated(f"{current_task().uuid} got {number} instead of {expected}")
        return number

    @app.task
    async def total(numbers: list[int]) -> int:
        if numbers != list(range(len(numbers))):
            events.violated(f"{current_task().uuid} got {numbers}")
        return len(numbers)

    @app.task
    async def collected(numbers: list[int | TaskFailure]) -> int:
        wrong = [each for index, each in enumerate(numbers) if each != index and not isinstance(each, TaskFailure)]
        if wrong:
            events.violated(f"{current_task().uuid} got {numbers}")
        return len(numbers)

    @app.task
    async def on_failed(failure: TaskFailure) -> None:
        pass

    @app.task
    async def after_all(number: int) -> None:
        pass

    tasks: Any = [part, unsteady, fragile, expect, total, collected, on_failed, after_all]
    return {task.name: task for task in tasks}


def _add_durable_tasks(app: App, events: FlowEvents) -> Tasks:
    async def once(name: str) -> str:
        events.stepped(current_task(), name)
        await asyncio.sleep(0.02)
        return name

    async def step(name: str) -> None:
        ctx = current_task()
        if await ctx.step(name, once, name) != name:
            events.violated(f"step {name} of {ctx.uuid} has another result")

    @app.task
    async def stepping(number: int) -> int:
        await step("one")
        await current_task().sleep(0.7)
        await step("two")
        await step("three")
        return number

    @app.task
    async def waiting(number: int) -> list[int]:
        """Takes signals without a time limit."""
        ctx = current_task()
        await step("one")
        payloads = [await ctx.wait_for(SIGNAL, type=int) for _ in range(SIGNALS_TAKEN)]
        if len(set(payloads)) < SIGNALS_TAKEN:
            events.violated(f"{ctx.uuid} got one signal twice: {payloads}")
        await step("two")
        return payloads

    @app.task
    async def impatient(number: int) -> int | None:
        """Its wait times out, or gets a signal just in time. Then it lives on for a while."""
        ctx = current_task()
        payload: int | None = None
        try:
            payload = await ctx.wait_for(SIGNAL, timeout=1.0, type=int)
        except TimeoutError:
            await step("late")
        await ctx.sleep(1.0)
        await asyncio.sleep(0.5)
        return payload

    tasks: Any = [stepping, waiting, impatient]
    return {task.name: task for task in tasks}


def _add_callers(app: App, events: FlowEvents, members: Any) -> Tasks:
    @app.task
    async def calling(number: int) -> int:
        """Runs a task and a flow as its children."""
        ctx = current_task()
        child = await ctx.run(members["unsteady"].s(number))
        size = await ctx.run(group(members["part"].s(index) for index in range(3)) | members["total"])
        if (child, size) != (number, 3):
            events.violated(f"the children of {ctx.uuid} have returned {child} and {size} instead of {number} and 3")
        return number

    tasks: Any = [calling]
    return {task.name: task for task in tasks}


def new_flow(tasks: Any, chance: Random) -> Call[Any]:
    """A flow of one of the shapes."""
    number = chance.randrange(1000)
    match chance.randrange(6):
        case 0:  # a chain
            first = tasks["part"].s(number)
            second = tasks["unsteady"].s(first.result)
            flow: Call[Any] = tasks["expect"].s(second.result, number)
        case 1:  # one, two, one
            first = tasks["part"].s(number)
            left = tasks["expect"].s(first.result, number)
            right = tasks["part"].s(first.result)
            flow = tasks["expect"].s(right.result, number).after(left)
        case 2:  # many, one
            flow = group(tasks["part"].s(index) for index in range(chance.randrange(2, 6))) | tasks["total"]
        case 3:  # one of many fails, until it is mended
            flow = group(_members(tasks, chance), on_error=chance.choice(["fail", "stop"])) | tasks["total"]
        case 4:
            flow = group(_members(tasks, chance), on_error="collect") | tasks["collected"]
        case _:  # the last one fails, or what it follows
            first = tasks["fragile"].s(number) if chance.random() < 0.5 else tasks["part"].s(number)
            flow = tasks["fragile"].s(first.result)
    if chance.random() < 0.3:
        flow = flow.on_failure(tasks["on_failed"])
    if chance.random() < 0.3:
        flow = flow.always(tasks["after_all"].s(number))
    return flow


def _members(tasks: Any, chance: Random) -> list[Call[Any]]:
    size = chance.randrange(2, 6)
    failing = chance.randrange(size)
    return [tasks["fragile" if index == failing else "part"].s(index) for index in range(size)]
