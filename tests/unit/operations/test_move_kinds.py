"""Which tasks are moved, what they keep, and which stay."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreRefused
from onthedot.operations import Operations
from onthedot.operations.move import Move, MoveResult, movable
from onthedot.stores.contract import CLIENT_LEASE, Limit
from onthedot.stores.sqlite import SqliteStore
from tests.contract.steps import add, limit, look, task
from tests.support.waits import every_chance
from tests.unit.operations.move_steps import DIRECTIONS, Killed, Life, World, fill, world


@pytest.mark.parametrize("direction", DIRECTIONS, indirect=True)
async def test_moved_task_keeps_its_history_and_order(direction: str, tmp_path: Path) -> None:
    async with world(direction, tmp_path) as made:
        uuids = await fill(made)
        before = {uuid: await look(made.source, uuid) for uuid in uuids}
        assert (await movable(made.source)).tasks == {"a": 13, "b": 2}
        moved = await made.move()
        assert (moved.tasks, moved.schedules, moved.running, moved.stopped) == (15, ["tick"], 0, False)
        for uuid in uuids:
            here = await look(made.source, uuid)
            there = await look(made.target, uuid)
            was = before[uuid]
            assert here.state == "cancelled"
            assert b"moved to there" in (here.history.error or b"")
            assert there == replace(was, seq=there.seq, state=there.state, history=there.history)
            assert (there.attempt, there.history.started, there.history.error) == (
                was.attempt,
                was.history.started,
                was.history.error,
            )
        assert (await look(made.target, "retried0")).attempt == 2
        assert await made.move() == MoveResult(schedules=[]), "and nothing is left to do"


async def test_running_task_is_moved_when_it_is_requeued(tmp_path: Path) -> None:
    async with world("memory-memory", tmp_path) as made:
        worker = made.workers[0]
        stays, comes_back = await add(made.source, task("a", "stays"), task("a", "back"))
        assert await worker.runs("a") == [stays, comes_back]
        moved = await made.move()
        assert (moved.tasks, moved.running) == (0, 2)
        moving = asyncio.create_task(made.move(wait=True))
        await every_chance()
        assert not moving.done()
        assert await worker.settle(worker.done(stays), worker.retry(comes_back)) == ["ok", "ok"]
        moved = await moving
        assert (moved.tasks, moved.running) == (1, 0)
        assert await made.workers[1].runs("a") == [comes_back]


async def test_task_whose_unique_key_is_taken_in_the_target_stays(tmp_path: Path) -> None:
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "mine", unique="k", on_conflict="replace"), task("a", "other"))
        await add(made.target, task("a", "theirs", b"body", unique="k"))
        moved = await made.move()
        assert (moved.tasks, moved.kept) == (1, {"mine": "theirs"})
        assert (await look(made.target, "theirs")).body == b"body"
        await made.work()
        assert made.where == {"mine": "source", "other": "target", "theirs": "target"}


async def test_task_that_the_target_has_already_is_not_doubled(tmp_path: Path) -> None:
    """The task that the target has stays as it is."""
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "same", b"2"))
        await add(made.target, task("a", "same", b"1"))
        assert (await made.move()).tasks == 1
        await made.work()
        assert (made.ran, made.where) == ({"same": 1}, {"same": "target"})


async def test_limits_of_the_operator_are_moved_before_tasks(tmp_path: Path) -> None:
    async with world("memory-memory", tmp_path) as made:
        await limit(made.source, "a", paused=True, reason="stock", owner="operator")
        await limit(made.source, "b", cap=3, owner="operator")
        await limit(made.source, "c", cap=3)
        await limit(made.target, "b", cap=7, owner="operator")
        await add(made.source, task("a", "held"))
        moved = await made.move()
        assert (moved.limits, moved.tasks) == (["a"], 1)
        limits = {each.name: each for each in (await made.target.limits())}
        assert limits == {
            "a": Limit("a", paused=True, reason="stock", owner="operator"),
            "b": Limit("b", cap=7, owner="operator"),
        }
        await made.work()
        assert made.ran == {}


async def test_cancel_during_a_move_is_kept(tmp_path: Path) -> None:
    """The cancel is requested in the old store, between any two calls."""
    both_ways: set[bool] = set()
    for number in range(1, 25):
        async with world("memory-memory", tmp_path) as made:
            await add(made.source, task("a", "t1", after=500))
            life = Life()

            async def cancel(life: Life = life, number: int = number, made: World = made) -> None:
                if life.calls == number:
                    await Operations(made.source, "somebody").cancel("t1")

            life.meanwhile = cancel
            await made.move(life)
            made.clock.advance(500)
            await made.work()
            requested = (await look(made.source, "t1")).history.cancel_requested
            both_ways.add(requested)
            assert made.ran == ({} if requested else {"t1": 1}), f"at call {number}"
    assert both_ways == {True, False}


async def test_store_is_not_moved_to_itself(tmp_path: Path) -> None:
    clock = ManualClock()
    one = SqliteStore(tmp_path / "a.db", clock)
    alias = SqliteStore(tmp_path / "a.db", clock)
    await one.open()
    await alias.open()
    try:
        (uuid,) = await add(one, task())
        with pytest.raises(StoreRefused, match="a move from a store to itself"):
            await Move(one, alias, "there").run()
        assert (await look(one, uuid)).state == "ready"
        assert (await one.sessions()) == {}, "and no trace of the question"
    finally:
        await one.close()
        await alias.close()


async def test_leftovers_of_a_move_to_another_store_are_not_touched(tmp_path: Path) -> None:
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "t1"), task("a", "t2"))
        with pytest.raises(Killed):  # before the copies are requeued
            await made.move(Life("target.lift"))
        made.clock.advance(CLIENT_LEASE)
        elsewhere = Move(made.source, made.target, "the same store, by another name")
        assert sorted((await elsewhere.run()).unclear) == ["t1", "t2"]
        await made.work()
        assert made.ran == {}
        elsewhere = Move(made.source, made.target, "the same store, by another name")
        moved = await elsewhere.run(release=True)
        assert (moved.tasks, moved.unclear) == (2, [])
        await made.work()
        assert made.ran == {"t1": 1, "t2": 1}
