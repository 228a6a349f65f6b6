"""Batches on every store: parts, items, readers, keys and top-ups."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from onthedot import App, ArgumentError, Part, TaskFailed, TaskNotFound, current_task
from onthedot.model.flow_names import MemberUuids
from tests.support.app_stores import AppStore
from tests.support.waits import SOON, until
from tests.unit.batches.name_tasks import Name, NameTasks


@pytest.fixture
def tasks(app: App) -> NameTasks:
    return NameTasks(app)


async def test_batch_makes_as_many_items_as_it_was_asked_for(app: App, tasks: NameTasks) -> None:
    async with app.running():
        batch = await app.batch(tasks.names, count=50, type="character_name", args={"style": "old"}, priority=7)
        first = await batch.first(SOON)
        parts = [part async for part in batch.parts()]
        result = await batch.all(SOON)
    assert first.items
    assert parts[0] == first
    assert [part.number for part in parts] == [1, 2, 3]
    assert sorted(part.index for part in parts) == [0, 1, 2]
    assert sorted(tasks.sizes) == [10, 20, 20]
    assert len(set(result.items)) == 50
    assert result.items == [item for part in parts for item in part.items]
    assert (result.short_by, result.refused, result.failed_parts) == (0, {}, 0)
    assert all(type(item) is Name for item in result.items)


async def test_part_is_a_member_that_knows_its_batch(app: App, tasks: NameTasks) -> None:
    async with app.running():
        batch = await app.batch(tasks.names, count=21, type="item", priority=7, metadata={"command_id": "cmd-1"})
        await batch.all(SOON)
        infos = [await app.get(MemberUuids(batch.id).of(index)) for index in (0, 1)]
        coordinator = await app.get(batch.id)
    assert sorted(tasks.runs) == [f"{batch.id}:item:0", f"{batch.id}:item:1"]
    assert [info.metadata["batch"] for info in infos] == [batch.id] * 2
    assert [info.metadata["command_id"] for info in infos] == ["cmd-1"] * 2
    assert [info.priority for info in infos] == [7, 7]
    assert (coordinator.source, coordinator.priority) == ("names:batch", 10)


async def test_list_is_split_into_slices(app: App, tasks: NameTasks) -> None:
    async with app.running():
        batch = await app.batch(tasks.double, items=range(10), size=4)
        result = await batch.all(SOON)
        parts = {part.index: part.items async for part in batch.parts()}
    assert parts == {0: [0, 2, 4, 6], 1: [8, 10, 12, 14], 2: [16, 18]}
    assert sorted(result.items) == [number * 2 for number in range(10)]


async def test_failed_slice_is_reported_and_counted(app: App, tasks: NameTasks) -> None:
    tasks.fails = {1}
    async with app.running():
        batch = await app.batch(tasks.double, items=range(10), size=4)
        result = await batch.all(SOON)
        (failed,) = [part async for part in batch.parts() if part.error]
    assert (result.short_by, result.failed_parts, len(result.items)) == (4, 1, 6)
    assert failed.error is not None
    assert (failed.index, failed.error.type, failed.error.message) == (1, "ValueError", "no part 1")
    assert failed.error.uuid == MemberUuids(batch.id).of(1)


async def test_generator_that_repeats_itself_ends_after_two_top_ups(app: App, tasks: NameTasks) -> None:
    tasks.repeats = True
    async with app.running():
        batch = await app.batch(tasks.names, count=50, type="character_name")
        result = await batch.all(SOON)
        progress = await batch.progress()
    # Of 20, 20 and 10, 20 are new; then 45 for the 30 that are missing: 25 are new; then 8 for 5: none is.
    assert sorted(tasks.sizes) == [8, 10, 20, 20, 45]
    assert len(set(result.items)) == len(result.items) == 45
    assert result.short_by == 5
    assert result.refused == {"duplicate": 30 + 20 + 8}
    assert (progress.done, progress.total, progress.items, progress.count) == (5, 5, 45, 50)


async def test_failed_part_is_covered_by_a_top_up(app: App, tasks: NameTasks) -> None:
    tasks.fails = {1}
    async with app.running():
        result = await (await app.batch(tasks.names, count=50, type="character_name")).all(SOON)
    assert (len(result.items), result.short_by, result.failed_parts) == (50, 0, 1)
    assert tasks.sizes[-1] == 30
    assert result.refused == {"surplus": 10}


async def test_existing_items_and_names_win(app: App, tasks: NameTasks) -> None:
    tasks.repeats = True
    async with app.running():
        known = (await (await app.batch(tasks.names, count=5, type="item")).all(SOON)).items
        batch = await app.batch(tasks.names, count=5, type="item", existing=[*known[:3], known[3].name.upper()])
        result = await batch.all(SOON)
    # The same five names again, then six and five of the same: two of them are new.
    assert not {item.name for item in result.items} & {item.name for item in known[:4]}
    assert (len(result.items), result.short_by, result.refused) == (2, 3, {"duplicate": 14})


async def test_at_once_bounds_the_live_parts(app: App) -> None:
    tasks = NameTasks(app, at_once=2, split=lambda kind, count: [1] * count)
    async with app.running():
        result = await (await app.batch(tasks.names, count=7, type="item")).all(SOON)
    assert len(result.items) == 7
    assert tasks.most_live <= 2


async def test_batch_without_any_item_fails_and_names_the_last_error(app: App, tasks: NameTasks) -> None:
    tasks.fails = set(range(10))
    async with app.running():
        batch = await app.batch(tasks.names, count=5, type="item")
        for wait in (batch.all, batch.first):
            with pytest.raises(TaskFailed, match="no part of the batch gave an item; the last error is ValueError"):
                await wait(SOON)
        with pytest.raises(TaskFailed):
            [part async for part in batch.parts()]
        entries = [(entry.kind, entry.number) async for entry in batch.stream()]
    assert entries == [("part", 1), ("part", 2), ("part", 3), ("end", 4)]


@pytest.mark.parametrize("by", ["task", "flow"])
async def test_retry_of_a_failed_batch_runs_its_parts_again(app: App, tasks: NameTasks, by: str) -> None:
    tasks.fails = set(range(10))
    async with app.running():
        batch = await app.batch(tasks.names, count=30, type="item", deadline=60)
        with pytest.raises(TaskFailed):
            await batch.all(SOON)
        begun = len(tasks.runs)
        tasks.fails = {0}
        if by == "task":
            assert await app.retry(batch.id) == [batch.id]
        else:
            assert await app.aflow(batch.id).retry() == 5
        result = await batch.all(SOON)
        numbers = [part.number async for part in batch.parts()]
    assert len(set(result.items)) == 30
    assert result.failed_parts == 1
    assert numbers == list(range(1, len(numbers) + 1))
    again = tasks.runs[begun:]
    assert len(again) == len(set(again)), "a part ran twice in one retry"


async def test_retry_that_fails_again_ends_again(app: App, tasks: NameTasks) -> None:
    tasks.fails = set(range(100))
    async with app.running():
        batch = await app.batch(tasks.names, count=5, type="item")
        for _ in range(3):
            with pytest.raises(TaskFailed):
                await batch.all(SOON)
            await app.retry(batch.id)
        await until(lambda: _has_ended(app, batch.id))
    # One part and two top-ups; each retry runs all parts again, and may add two.
    assert [tasks.runs.count(f"{batch.id}:item:{index}") for index in range(9)] == [4, 4, 4, 3, 3, 2, 2, 1, 1]


async def _has_ended(app: App, uuid: str) -> bool:
    return (await app.get(uuid)).state.ended


async def test_same_key_is_one_batch(app: App, tasks: NameTasks) -> None:
    async with app.running():
        first = await app.batch(tasks.names, count=5, type="item", key="cmd-17", existing=["x"])
        second = await app.batch(tasks.names, count=5, type="item", key="cmd-17", existing=["x"])
        await first.all(SOON)
        third = await app.batch(tasks.names, count=5, type="item", key="cmd-17", existing=["x"])
        assert first.id == second.id == third.id
        assert (first.added, second.added, third.added) == (True, False, False)
        for other in ({"count": 6}, {"type": "character_name"}, {"existing": ["y"]}, {"args": {"style": "new"}}):
            with pytest.raises(ArgumentError, match="which has other arguments"):
                await app.batch(tasks.names, **{"count": 5, "type": "item", "existing": ["x"], "key": "cmd-17"} | other)
    assert len(tasks.runs) == 1


async def test_equal_requests_without_a_key_are_two_batches(app: App, tasks: NameTasks) -> None:
    async with app.running():
        one = await app.batch(tasks.names, count=5, type="item")
        other = await app.batch(tasks.names, count=5, type="item")
        assert one.id != other.id
        assert len((await one.all(SOON)).items) == len((await other.all(SOON)).items) == 5
    assert len(tasks.runs) == 2


async def test_stream_continues_after_its_cursor(app: App, tasks: NameTasks) -> None:
    async with app.running():
        batch = await app.batch(tasks.names, count=50, type="character_name")
        await batch.all(SOON)
        entries = [entry async for entry in batch.stream()]
        assert [entry.kind for entry in entries] == ["part", "part", "part", "end"]
        assert [entry.number for entry in entries] == [1, 2, 3, 4]
        assert entries[-1].data == "succeeded"
        assert all(isinstance(entry.data, Part) for entry in entries[:-1])
        for at, entry in enumerate(entries[:-1]):
            rest = [each async for each in app.batch_handle(batch.id).stream(after=entry.cursor)]
            assert rest == entries[at + 1 :]
        assert [part.number async for part in batch.parts(after=2)] == [3]


READER = """
import asyncio, json, sys
from onthedot import App

async def main():
    async with App(sys.argv[1], store=sys.argv[2]) as app:
        entries = [entry async for entry in app.batch_handle(sys.argv[3]).stream()]
        rows = [[e.cursor, e.number, e.kind, e.data if e.kind == "end" else e.data.to_dict()] for e in entries]
        print(json.dumps(rows))

asyncio.run(main())
"""


@pytest.mark.parametrize("flow_store", ["sqlite", "redis", "postgres"], indirect=True)
async def test_another_process_reads_the_same_parts_and_cursors(
    app: App, tasks: NameTasks, flow_store: AppStore
) -> None:
    async with app.running():
        batch = await app.batch(tasks.names, count=50, type="character_name")
        await batch.all(SOON)
        entries = [entry async for entry in batch.stream()]
    command = [sys.executable, "-c", READER, flow_store.name, flow_store.url, batch.id]
    read = json.loads(await asyncio.to_thread(subprocess.check_output, command, text=True, timeout=60))
    assert [row[:3] for row in read] == [[entry.cursor, entry.number, entry.kind] for entry in entries]
    for row, entry in zip(read[:-1], entries, strict=False):
        assert [item["name"] for item in row[3]["items"]] == [item.name for item in entry.data.items]


async def test_sync_code_has_the_same_methods(app: App, tasks: NameTasks) -> None:
    def use() -> None:
        batch = app.sync.batch(tasks.names, count=50, type="character_name", key="sync")
        assert batch.first(SOON).items
        assert len(batch.all(SOON).items) == 50
        assert [part.number for part in batch.parts(after=1)] == [2, 3]
        reopened = app.sync.batch_handle(batch.id)
        assert [entry.kind for entry in reopened.stream()] == ["part", "part", "part", "end"]
        assert reopened.progress().items == 50
        assert reopened.cancel() == 0

    with app.background():
        await asyncio.to_thread(use)


async def test_cancel_ends_the_batch_and_its_parts(app: App) -> None:
    tasks = NameTasks(app, at_once=2)
    tasks.gate = asyncio.Event()
    async with app.running():
        batch = await app.batch(tasks.names, count=50, type="character_name")
        await until(lambda: len(tasks.runs) == 2)
        assert await batch.cancel("not needed") == 3
        assert [(await app.get(each)).state.value for each in (batch.id, *_members(batch.id, 2))] == ["cancelled"] * 3
        assert (await app.find(flow=batch.id, state="ready")).cursor is None
    assert len(tasks.runs) == 2


async def test_cancel_of_the_coordinator_alone_ends_its_parts(app: App, tasks: NameTasks) -> None:
    tasks.gate = asyncio.Event()
    async with app.running():
        batch = await app.batch(tasks.names, count=50, type="character_name")
        await until(lambda: len(tasks.runs) == 3)
        assert await app.cancel(batch.id) == 1
        for uuid in (batch.id, *_members(batch.id, 3)):
            await until(lambda uuid=uuid: _has_ended(app, uuid))  # type: ignore[misc]
            assert (await app.get(uuid)).state.value == "cancelled"


def _members(batch: str, count: int) -> list[str]:
    return [MemberUuids(batch).of(index) for index in range(count)]


async def test_flow_list_has_no_batches_and_children_are_no_parts(app: App) -> None:
    @app.task
    async def note(text: str) -> None: ...

    tasks = NameTasks(app)
    begin = tasks._begin

    def begin_and_spawn() -> int:
        current_task().spawn(note.s("made"))
        return begin()

    tasks._begin = begin_and_spawn  # type: ignore[method-assign]
    async with app.running():
        batch = await app.batch(tasks.names, count=50, type="character_name")
        assert len((await batch.all(SOON)).items) == 50
        progress = await batch.progress()
        flows = await app.runtime.portal.run(lambda client: client.operations.list_flows(10))
        assert [flow for flow in flows if flow.uuid == batch.id or flow.source.startswith("names")] == []
    assert (progress.done, progress.total) == (3, 3)


async def test_handle_of_another_task_is_no_batch(app: App, tasks: NameTasks) -> None:
    async with app.running():
        handle = await tasks.one_big_call.enqueue("item", 1)
        for uuid in (handle.uuid, "no-such-batch"):
            with pytest.raises(TaskNotFound):
                await app.batch_handle(uuid).all(SOON)
            with pytest.raises(TaskNotFound):
                await app.batch_handle(uuid).progress()
