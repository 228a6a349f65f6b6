"""Streams over several runs: they begin again, or continue after the saved items."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from onthedot import App, Retry, StoreUnavailable, StreamRestarted, TaskCancelled, TaskFailed, TaskTimeout, current_task
from onthedot.model.context import current_run
from onthedot.stores.contract import Lease, Note
from tests.support.waits import every_chance, until
from tests.unit.durable.stores import on_each_store

pytestmark = on_each_store


async def test_new_run_begins_the_stream_again(app: App) -> None:
    @app.task(max_retries=1)
    async def numbers() -> AsyncIterator[int]:
        attempt = current_task().attempt
        yield attempt * 10
        yield attempt * 10 + 1
        if attempt == 1:
            await read.wait()
            raise Retry(after=0)

    read = asyncio.Event()
    async with app.running():
        handle = await numbers.enqueue()
        items = handle.items()
        first = await anext(items)
        second = await anext(items)
        assert [first[1], second[1]] == [10, 11]
        waiting = aiter(handle)
        assert await anext(waiting) == 10
        read.set()
        with pytest.raises(StreamRestarted, match=handle.uuid):
            await anext(items)
        assert [number async for number in handle] == [20, 21]
        assert await handle == [20, 21]
        for cursor, _ in (first, second):  # a reader that was away
            with pytest.raises(StreamRestarted):
                await anext(handle.items(after=cursor))
        entries = [entry async for entry in handle.stream()]
        assert [(entry.number, entry.data) for entry in entries] == [(1, 20), (2, 21), (3, "succeeded")]
        assert entries[0].cursor != first[0]


async def test_new_run_without_items_begins_again_too(app: App) -> None:
    @app.task(max_retries=1)
    async def numbers() -> AsyncIterator[int]:
        if current_task().attempt == 1:
            yield 1
            await read.wait()
            raise Retry(after=0)

    read = asyncio.Event()
    async with app.running():
        handle = await numbers.enqueue()
        items = aiter(handle)
        assert await anext(items) == 1
        read.set()
        with pytest.raises(StreamRestarted):
            await anext(items)
        assert await handle == []


async def test_reading_streamed_continues_the_stream(app: App) -> None:
    seen: list[tuple[int, list[Any]]] = []

    @app.task(max_retries=3)
    async def numbers() -> AsyncIterator[int]:
        ctx = current_task()
        seen.append((ctx.streamed, await ctx.streamed_items()))
        for number in range(ctx.streamed, 10):
            yield number
            if number in (2, 3, 7):
                raise Retry(after=0)

    async with app.running():
        handle = await numbers.enqueue()
        entries = [entry async for entry in handle.stream()]
        assert [entry.data for entry in entries] == [*range(10), "succeeded"]
        assert [entry.number for entry in entries] == list(range(1, 12))
        assert await handle == list(range(10))
    assert seen == [(0, []), (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (8, list(range(8)))]


async def test_continued_stream_may_have_no_further_items(app: App) -> None:
    @app.task(max_retries=1)
    async def numbers() -> AsyncIterator[int]:
        if not current_task().streamed:
            yield 1
            raise Retry(after=0)

    async with app.running():
        handle = await numbers.enqueue()
        assert [number async for number in handle] == [1]
        assert await handle == [1]


async def test_streamed_counts_saved_items_during_the_run(app: App) -> None:
    counts: list[int] = []

    @app.task
    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            yield number
            await until(lambda: current_task().streamed == number + 1)  # noqa: B023 - awaited here
            counts.append(current_task().streamed)
            assert await current_task().streamed_items() == list(range(number + 1))

    @app.task
    async def plain() -> int:
        assert await current_task().streamed_items() == []
        return current_task().streamed

    async with app.running():
        assert await (await numbers.enqueue()).result(10) == [0, 1, 2]
        assert await (await plain.enqueue()).result(10) == 0
    assert counts == [1, 2, 3]


async def test_suspended_stream_continues_with_streamed(app: App) -> None:
    runs: list[int] = []

    @app.task
    async def coordinator() -> AsyncIterator[str]:
        ctx = current_task()
        runs.append(ctx.streamed)
        if ctx.streamed < 1:
            yield "begun"
        name = await ctx.wait_for("name", type=str)
        if ctx.streamed < 2:
            yield await ctx.step("greet", lambda: f"hello {name}")
        await ctx.sleep(0.2)
        if ctx.streamed < 3:
            yield "done"

    async with app.running():
        handle = await coordinator.enqueue()
        items = aiter(handle)
        assert await anext(items) == "begun"
        await until(lambda: _state_is(handle, "waiting"))
        await handle.signal("name", "ann")
        assert [item async for item in items] == ["hello ann", "done"]
        assert await handle == ["begun", "hello ann", "done"]
    assert runs == [0, 1, 2]


async def _state_is(handle: Any, state: str) -> bool:
    return bool((await handle.state()) == state)


async def test_suspended_stream_without_streamed_begins_again(app: App) -> None:
    @app.task
    async def numbers() -> AsyncIterator[int]:
        yield 1
        await current_task().wait_for("go")
        yield 2

    async with app.running():
        handle = await numbers.enqueue()
        items = aiter(handle)
        assert await anext(items) == 1
        await until(lambda: _state_is(handle, "waiting"))
        await handle.signal("go")
        with pytest.raises(StreamRestarted):
            await anext(items)
        assert await handle.result(10) == [1, 2]


async def test_unsaved_items_are_saved_before_a_suspension(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    store = app.runtime.store
    write = store.note
    counts: list[int] = []

    async def note(notes: Sequence[Note]) -> Sequence[Lease]:
        if any(each.kind == "item" for each in notes) and not app.runtime.store.traits.synchronous:
            await asyncio.sleep(0.05)
        return await write(notes)

    monkeypatch.setattr(store, "note", note)

    @app.task
    async def numbers() -> AsyncIterator[int]:
        counts.append(current_task().streamed)
        for number in range(current_task().streamed, 5):
            yield number
        await current_task().sleep(0.2)

    async with app.running():
        assert await (await numbers.enqueue()).result(10) == list(range(5))
    assert counts == [0, 5]


async def test_swallowed_suspension_fails_the_stream(app: App) -> None:
    @app.task
    async def numbers() -> AsyncIterator[int]:
        try:
            await current_task().sleep(60)
        except BaseException:
            yield 1

    async with app.running():
        with pytest.raises(TaskFailed, match="swallowed its suspension"):
            await (await numbers.enqueue()).result(10)


async def test_released_stream_continues_in_the_next_worker(app: App) -> None:
    @app.task
    async def numbers() -> AsyncIterator[int]:
        for number in range(current_task().streamed, 4):
            yield number
            if number == 1:
                saved.set()
                await more.wait()

    saved = asyncio.Event()
    more = asyncio.Event()
    if app.runtime.url.startswith("memory:"):
        pytest.skip("a memory store ends with its worker")
    async with app:
        async with app.running():
            handle = await numbers.enqueue()
            await saved.wait()
            items = aiter(handle)
            assert [await anext(items), await anext(items)] == [0, 1]
            await app.runtime.host.stop(0)
        more.set()
        async with app.running():
            assert [number async for number in items] == [2, 3]


async def test_retry_of_a_failed_stream_continues_after_the_end_that_was_read(app: App) -> None:
    @app.task
    async def numbers() -> AsyncIterator[int]:
        for number in range(current_task().streamed, 4):
            yield number
            if number == 1:
                raise ValueError("not now")

    async with app.running():
        handle = await numbers.enqueue()
        entries = [entry async for entry in handle.stream()]
        assert [(entry.number, entry.data) for entry in entries] == [(1, 0), (2, 1), (3, "failed")]
        assert await handle.retry()
        rest = [entry async for entry in handle.stream(after=entries[-1].cursor)]
        assert [(entry.number, entry.data) for entry in rest] == [(3, 2), (4, 3), (5, "succeeded")]
        assert await handle == [0, 1, 2, 3]


async def test_timeout_ends_a_stream_and_its_generator(app: App) -> None:
    ends: list[str] = []

    @app.task(timeout=0.2)
    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            ends.append("closed")

    async with app.running():
        items = aiter(await numbers.enqueue())
        assert await anext(items) == 1
        with pytest.raises(TaskTimeout):
            await anext(items)
    assert ends == ["closed"]


async def test_outage_of_the_store_delays_items_only(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    if app.runtime.store.traits.synchronous:
        pytest.skip("a memory store has no outages")
    store = app.runtime.store
    write = store.note
    failures = iter(range(2))

    async def note(notes: Sequence[Note]) -> Sequence[Lease]:
        if next(failures, None) is not None:
            raise StoreUnavailable("no answer")
        return await write(notes)

    monkeypatch.setattr(store, "note", note)

    @app.task
    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    async with app.running():
        assert [number async for number in await numbers.enqueue()] == [0, 1, 2]


async def test_error_of_a_write_fails_the_run(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    store = app.runtime.store
    closed: list[str] = []

    async def note(notes: Sequence[Note]) -> Sequence[Lease]:
        raise ValueError(f"the store cannot write {len(notes)} notes")

    monkeypatch.setattr(store, "note", note)

    @app.task
    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(10_000):
                yield number
        finally:
            closed.append("closed")

    async with app.running():
        with pytest.raises(TaskFailed, match="the store cannot write 1 notes"):
            await (await numbers.enqueue()).result(10)
    assert closed == ["closed"]


async def test_run_ends_when_its_lease_is_lost(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    store = app.runtime.store

    async def note(notes: Sequence[Note]) -> Sequence[Lease]:
        return [each.lease for each in notes]

    monkeypatch.setattr(store, "note", note)
    yielded: list[int] = []

    @app.task
    async def numbers() -> AsyncIterator[int]:
        for number in range(5000):
            yielded.append(number)
            yield number

    async with app.running():
        with pytest.raises(TaskCancelled, match="its lease is lost"):
            await (await numbers.enqueue()).result(10)
    assert len(yielded) <= 1000


async def test_items_that_a_failover_has_lost_are_yielded_again(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failover the store leases the running task again, without its last notes."""
    store = app.runtime.store
    read = store.notes
    lost = False
    runs: list[int] = []

    async def notes(uuid: str, after: int, limit: int, kind: Any = None) -> Any:
        if lost and kind == "item":
            return []
        return await read(uuid, after, limit, kind)

    monkeypatch.setattr(store, "notes", notes)

    @app.task
    async def numbers() -> AsyncIterator[int]:
        nonlocal lost
        runs.append(current_task().streamed)
        run = current_run()
        assert run is not None
        lease = run.lease
        try:
            for number in range(current_task().streamed, 4):
                yield number
                await every_chance()
                if number == 1 and len(runs) == 1:
                    await until(lambda: current_task().streamed == 2)
                    run.lease = replace(lease, fence=lease.fence + 1000)
                    lost = True
        finally:
            run.lease = lease
            lost = False

    async with app.running():
        assert await (await numbers.enqueue()).result(10) == [0, 1, 2, 3]
    assert runs == [0, 2]
