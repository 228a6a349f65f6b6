"""`explain` names what a task of a flow waits for, and the reason goes away with its cause."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onthedot import App, Explanation, StoreUnavailable, TaskFailed, current_task, group
from onthedot.flows import tasks as flow_tasks
from onthedot.stores.contract import Added, NewTask
from tests.support.waits import LONG, SOON, until


async def test_explanation_of_a_waiting_task_names_the_tasks_that_run(app: App) -> None:
    may_end = asyncio.Event()

    @app.task
    async def hold(number: int) -> int:
        await asyncio.wait_for(may_end.wait(), LONG)
        return number

    @app.task
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    handle = await (group([hold.s(1), hold.s(2)]) | total).enqueue()
    async with app.running():

        async def both_run() -> bool:
            return len(await app.find(source="hold", state="running")) == 2

        await until(both_run)
        found = await app.explain(handle.uuid)
        assert found.reason == "waiting_tasks"
        assert found.text.startswith(f"it waits for 2 of 2 tasks of flow {handle.uuid[-10:]}: 2 run (hold ")
        assert found.by_count == 2
        may_end.set()
        assert await handle.result(timeout=SOON) == 3
        assert (await app.explain(handle.uuid)).reason == "ended"


async def test_explanation_of_other_waits(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    async def same(number: int) -> int:
        return number

    @app.task
    async def fail(number: int) -> int:
        raise ValueError(number)

    @app.task
    async def clean() -> None: ...

    async def unavailable(*_: object) -> None:
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(app.runtime.store, "signal", unavailable)
        patch.setattr(flow_tasks, "MAX_WHOLE_BYTES", 0)
        with pytest.raises(StoreUnavailable):
            await group(same.s(number) for number in range(1001)).enqueue(uuid="large")
    first = next(iter((await app.find(state="waiting", source="same", limit=1)).tasks))
    found = await app.explain(first.uuid)
    assert found.reason == "incomplete_flow"
    assert "all 1,002 tasks are stored, and the signal that starts them is not sent yet; it ends at " in found.text
    flow = await (fail.s(1) | same).always(clean.s()).enqueue()
    handler = next(iter((await app.find(source="clean")).tasks))
    found = await app.explain(handler.uuid)
    assert found.text == f"it waits for the end of flow {flow.uuid[-10:]}"
    assert [each.reason for each in found.also] == ["waiting_tasks", "no_worker"]
    assert found.also[0].text.startswith(f"same {flow.uuid[-10:]}: it waits for 1 of 1 task of flow")
    assert found.also[1].text.startswith("fail ")
    async with app.running():
        with pytest.raises(TaskFailed):
            await flow.result(timeout=SOON)
        assert "cancelled" in (text := (await app.explain(flow.uuid)).text)
        assert "upstream: fail" in text


async def test_explanation_counts_the_tasks_of_a_flow_that_are_added(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    async def same(number: int) -> int:
        return number

    real = app.runtime.store.add
    adds: list[int] = []

    async def add(tasks: Sequence[NewTask], *deadline: Any) -> Sequence[Added]:
        if len(adds) == 2:
            raise StoreUnavailable("gone")
        adds.append(len(tasks))
        return await real(tasks, *deadline)

    with monkeypatch.context() as patch:
        patch.setattr(app.runtime.store, "add", add)
        patch.setattr(flow_tasks, "MAX_WHOLE_BYTES", 0)
        with pytest.raises(StoreUnavailable):
            await group(same.s(number) for number in range(2500)).enqueue(uuid="large")
    (first,) = await app.find(source="same", limit=1)
    text = (await app.explain(first.uuid)).text
    assert f"its flow large is still being added ({sum(adds):,} tasks so far); it ends at " in text


class Chain:
    """A flow of four: two calls of `first`, then `middle`, then `last`."""

    def __init__(self, app: App) -> None:
        self.app = app

        @app.task
        async def first(number: int) -> int:
            if number < 0:
                await current_task().wait_for("approved")
            return number

        @app.task
        async def middle(numbers: list[int]) -> int:
            return sum(numbers)

        @app.task
        async def last(number: int) -> int:
            return number

        self.first = first
        self.middle = middle
        self.last = last

    async def explained(self, uuid: str) -> tuple[Explanation, list[str]]:
        """The explanation and its further reasons."""
        found = await self.app.explain(uuid)
        return found, [each.reason for each in found.also]


async def test_explanation_follows_a_wait_to_the_task_that_blocks(app: App) -> None:
    chain = Chain(app)
    handle = await (group([chain.first.s(1), chain.first.s(2)]) | chain.middle | chain.last).enqueue()
    found, also = await chain.explained(handle.uuid)
    assert f"it waits for 1 of 1 task of flow {handle.uuid[-10:]}: 1 waits (middle " in found.text
    assert also == ["no_worker"]
    assert found.also[0].text.startswith("first ")
    assert found.also[0].text.endswith(": no worker is alive; start one: onthedot worker")
    await app.operations.pause("first", reason="deploy")
    async with app.running():
        found, also = await chain.explained(handle.uuid)
        assert also == ["source_paused"]
        assert found.also[0].text.endswith(": first is paused: deploy")
        await app.operations.resume("first")
        assert await handle.result(timeout=SOON) == 3
        assert (await chain.explained(handle.uuid))[1] == []


async def test_explanation_of_a_wait_for_tasks_that_are_not_due_or_wait_themselves(app: App) -> None:
    chain = Chain(app)
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    calls = [chain.first.options(at=at).s(1), chain.first.s(-1)]
    handle = await (group(calls) | chain.middle).enqueue()
    async with app.running():

        async def one_waits() -> bool:
            return len(await app.find(source="first", state="waiting")) == 1

        await until(one_waits)
        found, also = await chain.explained(handle.uuid)
        due = at.isoformat(" ").replace("+00:00", " UTC")
        assert found.text.startswith("it waits for 2 of 2 tasks of flow ")
        assert f": 1 is not due before {due}, 1 waits (first " in found.text
        assert sorted(also) == ["not_due", "waiting_signal"]
        assert 'it waits for the signal "approved" since ' in "".join(each.text for each in found.also)
        assert found.by_count == len(found.by) == 2
        await app.signal("approved")

        async def one_is_left() -> bool:
            return "it waits for 1 of 2 tasks" in (await app.explain(handle.uuid)).text

        await until(one_is_left)
        assert (await chain.explained(handle.uuid))[1] == ["not_due"]
        await handle.cancel()
