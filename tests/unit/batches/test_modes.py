"""Freeze, drain and degrade on every store, deadlines, and code of another version."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from onthedot import App, Batch, BatchPolicy, SizeTable, SourceFrozen, StoreFull, TaskCancelled, TaskFailed
from onthedot.model.flow_names import MemberUuids
from onthedot.operations import modes as operations
from onthedot.stores.contract import Limit
from tests.support.app_stores import AppStore
from tests.support.waits import SOON, until
from tests.unit.batches.name_tasks import Name, NameTasks


@pytest.fixture
def tasks(app: App) -> NameTasks:
    return NameTasks(app)


@pytest.fixture(autouse=True)
def modes_are_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MODE_AGE", 0)


async def test_frozen_task_refuses_batches_while_running_ones_finish(app: App, tasks: NameTasks) -> None:
    tasks.gate = asyncio.Event()
    async with app.running():
        batch = await app.batch(tasks.names, count=5, type="item")
        await until(lambda: tasks.runs)
        await app.batches.freeze("names")
        with pytest.raises(SourceFrozen) as refused:
            await app.batch(tasks.names, count=5, type="item")
        assert refused.value.retry_after > 0
        assert refused.value.source == "names"
        assert isinstance(refused.value, StoreFull)
        tasks.gate.set()
        assert len((await batch.all(SOON)).items) == 5
        assert await app.batches.thaw("names")
        assert not await app.batches.thaw("names")
        assert len((await (await app.batch(tasks.names, count=5, type="item")).all(SOON)).items) == 5


async def test_drain_waits_for_the_last_batch_and_times_out(app: App, tasks: NameTasks) -> None:
    tasks.gate = asyncio.Event()
    async with app.running():
        batch = await app.batch(tasks.names, count=5, type="item")
        await until(lambda: tasks.runs)
        with pytest.raises(TimeoutError, match="names has 1 batch that has not ended"):
            await app.batches.drain("names", timeout=0.2)
        assert await app.batches.mode("names") == "frozen"
        draining = asyncio.create_task(app.batches.drain("names", timeout=SOON))
        await until(lambda: app.batches.mode("names"))
        assert not draining.done()
        tasks.gate.set()
        await draining
        assert (await app.get(batch.id)).state.ended
        await app.batches.drain("names", timeout=SOON)  # nothing is left


async def test_degraded_task_makes_one_part_by_its_fallback(app: App, tasks: NameTasks) -> None:
    async with app.running():
        await app.batches.degrade("names")
        batch = await app.batch(tasks.names, count=50, type="character_name")
        result = await batch.all(SOON)
        assert {item.by for item in result.items} == {"one_big_call"}
        assert len(result.items) == 50
        assert (await batch.progress()).total == 1
        part = await app.get(MemberUuids(batch.id).of(0))
        assert (part.source, part.metadata["subtask_id"]) == ("one_big_call", f"{batch.id}:character_name:0")
        assert await app.batches.restore("names")
        assert not await app.batches.restore("names")
        again = await (await app.batch(tasks.names, count=50, type="character_name")).all(SOON)
    assert {item.by for item in again.items} == {"names"}


async def test_degraded_task_without_fallback_makes_all_items_itself(app: App) -> None:
    tasks = NameTasks(app, fallback=None)
    async with app.running():
        await app.batches.degrade("names")
        result = await (await app.batch(tasks.names, count=50, type="character_name")).all(SOON)
    assert (tasks.sizes, len(result.items)) == ([50], 50)


async def test_mode_is_one_value_and_leaves_the_rest_of_the_limit(app: App, tasks: NameTasks) -> None:
    async with app.running():
        await app.pause("names:batch", reason="maintenance")
        await app.batches.degrade("names")
        await app.batches.freeze("names")
        assert not await app.batches.restore("names"), "freezing replaces degraded"
        limits = await app.runtime.store.limits()
        (limit,) = [each for each in limits if each.name == "names:batch"]
        assert limit.mode == "frozen"
        assert (limit.paused, limit.reason) == (True, "maintenance")
        await app.batches.thaw("names")
        await app.resume("names:batch")
        assert await app.batches.mode("names") == ""


async def test_mode_is_read_once_per_second(app: App, tasks: NameTasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MODE_AGE", 60_000)
    async with app.running():
        await app.batch(tasks.names, count=1, type="item")
        reads = 0
        limits = app.runtime.store.limits

        async def counted() -> list[Limit]:
            nonlocal reads
            reads += 1
            return list(await limits())

        monkeypatch.setattr(app.runtime.store, "limits", counted)
        for _ in range(5):
            await app.batch(tasks.names, count=1, type="item")
        assert reads == 0


async def test_deadline_answers_with_the_items_so_far(app: App, tasks: NameTasks) -> None:
    tasks.gate = asyncio.Event()
    tasks.gated = {1}
    async with app.running():
        batch = await app.batch(tasks.names, count=50, type="character_name", deadline=1)
        result = await batch.all(SOON)
        parts = {part.index: part async for part in batch.parts()}
        await until(lambda: _has_ended(app, MemberUuids(batch.id).of(1)))
        late = await app.get(MemberUuids(batch.id).of(1))
        info = await app.get(batch.id)
    assert (len(result.items), result.short_by, result.failed_parts) == (30, 20, 1)
    assert parts[1].error is not None
    assert (parts[1].error.state, parts[1].error.message) == ("cancelled", "the deadline of its batch is over")
    assert (late.state.value, late.reason) == ("cancelled", "the deadline of its batch is over")
    assert info.ended_at is not None
    assert (info.ended_at - info.added_at).total_seconds() >= 1, "it ended before its deadline"


async def _has_ended(app: App, uuid: str) -> bool:
    return (await app.get(uuid)).state.ended


async def test_deadline_without_any_item_fails_and_can_be_retried(app: App, tasks: NameTasks) -> None:
    tasks.gate = asyncio.Event()
    async with app.running():
        batch = await app.batch(tasks.names, count=5, type="item", deadline=0.2)
        with pytest.raises(TaskFailed, match="the last error is the deadline of its batch is over"):
            await batch.all(SOON)
        tasks.gate.set()
        await app.retry(batch.id)
        assert len((await batch.all(SOON)).items) == 5


@pytest.mark.parametrize("by", ["task", "flow"])
async def test_cancelled_batch_can_be_retried(app: App, tasks: NameTasks, by: str) -> None:
    tasks.gate = asyncio.Event()
    async with app.running():
        batch = await app.batch(tasks.names, count=50, type="character_name")
        await until(lambda: len(tasks.runs) == 3)
        await batch.cancel()
        with pytest.raises(TaskCancelled):
            await batch.all(SOON)
        tasks.gate.set()
        await _retry(app, batch.id, by)
        result = await batch.all(SOON)
    assert (len(result.items), result.failed_parts, result.short_by) == (50, 0, 0)
    assert len(tasks.runs) == 6, "a part ran more than once after the retry, or was topped up"


async def _retry(app: App, batch: str, by: str) -> None:
    if by == "task":
        assert await app.retry(batch) == [batch]
    else:
        assert await app.aflow(batch).retry() == 4


@pytest.mark.parametrize("by", ["task", "flow"])
async def test_retry_of_a_cancelled_list_runs_the_slices_that_failed_before_it(
    app: App, tasks: NameTasks, by: str
) -> None:
    tasks.gate = asyncio.Event()
    tasks.gated = {1, 2}
    tasks.fails = {0}
    async with app.running():
        batch = await app.batch(tasks.double, items=[1, 2, 3, 4, 5, 6, 7, 8], size=2)
        await until(lambda: _parts_done(batch, 2))  # parts 0, which failed, and 3
        await until(lambda: len(tasks.runs) == 4)
        await batch.cancel()
        tasks.gate.set()
        tasks.fails = set()
        await _retry(app, batch.id, by)
        result = await batch.all(SOON)
        numbers = [part.number async for part in batch.parts()]
    assert sorted(result.items) == [2, 4, 6, 8, 10, 12, 14, 16]
    assert result.failed_parts == 0
    assert numbers == [1, 2, 3, 4, 5], "part 0 is reported again, and the others once"
    assert sorted(run.rpartition(":")[2] for run in tasks.runs) == ["0", "0", "1", "1", "2", "2", "3"]


async def _parts_done(batch: Batch[int], count: int) -> bool:
    return (await batch.progress()).done == count


@pytest.mark.parametrize("flow_store", ["memory"], indirect=True)
async def test_retry_of_a_cancelled_batch_has_no_deadline(app: App, tasks: NameTasks) -> None:
    tasks.gate = asyncio.Event()
    async with app.running():
        batch = await app.batch(tasks.names, count=5, type="item", deadline=3)
        await until(lambda: tasks.runs)
        await batch.cancel()
        over = (await app.get(batch.id)).added_at + timedelta(seconds=3)
        await until(lambda: datetime.now(UTC) > over)
        await app.retry(batch.id)
        await until(lambda: len(tasks.runs) == 2)
        tasks.gate.set()
        result = await batch.all(SOON)
    assert (len(result.items), result.failed_parts) == (5, 0)


@pytest.mark.parametrize("flow_store", ["sqlite", "redis", "postgres"], indirect=True)
async def test_worker_of_older_code_coordinates_a_fallback_that_it_does_not_know(
    app: App, tasks: NameTasks, flow_store: AppStore
) -> None:
    """During a deploy: the caller and another worker know the fallback, the worker of the coordinator does not."""
    old = App(flow_store.name, store=flow_store.url, stop_timeout=0)

    @old.task(batch=BatchPolicy(split=SizeTable({}, other=10)))
    async def names(type: str, count: int, style: str = "") -> list[Name]:  # noqa: A002 - as the parameter is called
        raise AssertionError("the fallback runs instead")

    await app.batches.degrade("names")
    batch = await app.batch(tasks.names, count=5, type="item")
    async with old.running():
        await until(lambda: _is_waiting(old, batch.id))
    async with app.running():
        result = await batch.all(SOON)
    old.shutdown()
    assert [item.by for item in result.items] == ["one_big_call"] * 5
    assert all(type(item) is Name for item in result.items)


async def _is_waiting(app: App, uuid: str) -> bool:
    return (await app.get(uuid)).state.value == "waiting"
