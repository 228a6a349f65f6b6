"""A flow is cancelled while its members add others: nothing of it lives on, and its handler runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from onthedot import App, TaskCancelled, current_task, group
from onthedot.operations import Operations, flows
from onthedot.stores.contract import Record, Store
from tests.faults import scaled
from tests.support.app_access import call_store
from tests.support.app_stores import AppStore
from tests.support.waits import LONG, SOON, until, wait_until

SIZE = scaled(2_000, 10_000)
PROMISED = 5.0  # seconds


def living(app: App) -> dict[str, int]:
    tally = call_store(app, lambda store: store.tally())
    ended = ("succeeded", "failed", "cancelled")
    return {source: number for (source, state), number in tally.items() if number and state not in ended}


@pytest.mark.long
@pytest.mark.timed
@pytest.mark.timeout(600)
def test_cancelled_flow_ends_within_five_seconds_while_its_members_add_others(app: App, flow_store: AppStore) -> None:
    spawned: list[int] = []
    cleaned: list[str] = []
    cancelled = threading.Event()

    @app.task
    async def leaf(number: int) -> int:
        return number

    @app.task
    async def spread(number: int) -> int:
        if len(spawned) >= SIZE // 2:  # otherwise a fast store has run all of them before the cancel
            await until(cancelled.is_set)
        current_task().spawn(leaf.options(after=3600).s(number))
        spawned.append(number)
        return number

    @app.task
    async def total(numbers: list[int]) -> int:
        return len(numbers)

    @app.task
    async def clean(what: str) -> None:
        cleaned.append(what)

    flow = (group(spread.s(number) for number in range(SIZE)) | total).always(clean.s("all"))
    with app.background():
        handle = flow.delay()
        wait_until(lambda: len(spawned) >= SIZE // 20)
        began = time.monotonic()
        lived = handle.cancel("enough")
        cancelled.set()
        wait_until(lambda: not living(app).keys() - {"clean"})
        took = time.monotonic() - began
        with pytest.raises(TaskCancelled, match="enough"):
            handle.result(timeout=SOON)
        wait_until(lambda: cleaned == ["all"])
    print(f"\n{flow_store.url.partition(':')[0]}: {SIZE} members, {len(spawned)} had run, {lived} lived, {took:.2f} s")
    assert len(spawned) < SIZE, "they have all run before the cancel"
    assert took < PROMISED


async def test_tasks_that_a_member_adds_during_the_cancel_are_cancelled_however_long_it_takes(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member ends after the cancel has read it. No time is left for the pass that finds what it has added."""
    monkeypatch.setattr(flows, "CANCEL_TIME", 0.0)
    may_end: list[bool] = []

    @app.task
    async def leaf(number: int) -> int:
        return number

    @app.task
    async def spread(number: int) -> int:
        await until(lambda: may_end)
        current_task().spawn(leaf.options(after=3600).s(number))
        return number

    @app.task
    async def hang(number: int) -> int:
        await asyncio.sleep(LONG)
        return number

    @app.task
    async def total(numbers: list[int]) -> int:
        return len(numbers)

    def after_its_end(get: Callable[..., Any]) -> Callable[..., Any]:
        async def read(uuids: Sequence[str]) -> Sequence[Record | None]:
            records: Sequence[Record | None] = await get(uuids)
            if len(uuids) > 1 and not may_end:  # the members
                may_end.append(True)

                async def has_added() -> bool:
                    return any(source == "leaf" for source, _ in await store.tally())

                await until(has_added)
            return records

        return read

    async with app, app.running():
        store = app.runtime.store
        handle = await (group([spread.s(1), hang.s(2)]) | total).enqueue()
        await until(lambda: _run(app, 2))
        monkeypatch.setattr(store, "get", after_its_end(store.get))
        await handle.cancel("enough")
        (added,) = await app.find(source="leaf")
        assert added.state == "cancelled"
        await until(lambda: _run(app, 0))


async def test_last_step_cancels_what_members_have_added_since_the_steps_were_listed(app: App) -> None:
    may_end = asyncio.Event()

    @app.task
    async def leaf(number: int) -> int:
        return number

    @app.task
    async def spread(number: int) -> int:
        await may_end.wait()
        current_task().spawn(leaf.options(after=3600).s(number))
        return number

    @app.task
    async def total(numbers: list[int]) -> int:
        return len(numbers)

    async with app.running():
        handle = await (group([spread.s(1), spread.options(after=3600).s(2)]) | total).enqueue()
        await until(lambda: _run(app, 1))
        steps = await _operations(app).flows.cancel_steps(handle.uuid, "enough")
        assert len(steps.uuids) == 3
        may_end.set()
        await until(lambda: _has_scheduled(app, "leaf", 1))
        assert await steps.step(steps.uuids) == 3, "two of these, and what the member that has ended has added"
        ended = await app.find(flow=handle.uuid, state="cancelled")
        assert {(task.source, task.reason) for task in ended} == {
            ("leaf", "enough"), ("spread", "enough"), ("total", "enough"),
        }  # fmt: skip


async def test_steps_list_a_task_that_waits_before_its_child_and_followers_before_predecessors(app: App) -> None:
    @app.task
    async def leaf() -> None: ...

    @app.task
    async def parent() -> None:
        await current_task().run(leaf.options(after=3600).s())

    @app.task
    async def after() -> None: ...

    async with app.running():
        handle = await (parent.s() | after.s() | after.s()).enqueue()
        await until(lambda: _has_scheduled(app, "leaf", 1))
        steps = await _operations(app).flows.cancel_steps(handle.uuid, "enough")
        (waiting,) = await app.find(source="parent")
        (child,) = await app.find(source="leaf")
        (middle,) = [task for task in await app.find(source="after") if task.uuid != handle.uuid]
        assert list(steps.uuids) == [waiting.uuid, child.uuid, handle.uuid, middle.uuid]


def _operations(app: App) -> Operations:
    client = app.runtime.portal.connected()
    assert client is not None
    return client.operations


async def _run(app: App, number: int) -> bool:
    return len(await app.find(state="running")) == number


def _count_calls(store: Store, monkeypatch: pytest.MonkeyPatch, *verbs: str) -> Counter[str]:
    """The calls of these verbs from now on."""
    calls: Counter[str] = Counter()

    def counted(verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def counting(*args: Any) -> Any:
            calls[verb] += 1
            return await call(*args)

        return counting

    for verb in verbs:
        monkeypatch.setattr(store, verb, counted(verb, getattr(store, verb)))
    return calls


@pytest.mark.parametrize("flow_store", ["memory"], indirect=True)
async def test_cancel_and_retry_of_thousands_take_a_few_calls_per_page(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page has 1,000 tasks. 100 members have run, and have added others."""

    @app.task
    async def leaf(number: int) -> int:
        return number

    @app.task
    async def spread(number: int) -> int:
        current_task().spawn(leaf.options(after=3600).s(number))
        return number

    @app.task
    async def total(numbers: list[int]) -> int:
        return len(numbers)

    members = [spread.s(number) for number in range(100)]
    members += [spread.options(after=3600).s(number) for number in range(100, 4000)]
    handle = await (group(members) | total).enqueue()
    async with app.running():
        await until(lambda: _has_scheduled(app, "leaf", 100))
        calls = _count_calls(app.runtime.store, monkeypatch, "get", "find", "cancel", "revive")
        assert await handle.cancel("enough") == 4001
        assert calls == {
            "get": 6,  # the last task, twice, and 4 pages of members
            "find": 1,  # what members have added
            "cancel": 5,
        }
        calls.clear()
        assert await handle.retry() == 4001
        assert calls == {"get": 2, "find": 5, "revive": 5}


async def _has_scheduled(app: App, source: str, number: int) -> bool:
    return (await app.runtime.store.tally()).get((source, "scheduled"), 0) == number
