"""Moves there and back, and moves at the same time: each task runs once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from onthedot.operations import Operations
from onthedot.operations.move import Move
from onthedot.stores.contract import CLIENT_LEASE
from onthedot.stores.memory import MemoryStore
from tests.contract.steps import LEASE, Worker, add, look, task
from tests.unit.operations.move_steps import DIRECTIONS, Killed, Life, World, fill, world


async def to_and_fro(direction: str, folder: Path, leg: int, life: Life) -> int:
    """Move there, back and there again, and kill one of the moves. Return the number of its calls."""
    async with world(direction, folder) as made:
        uuids = await fill(made)
        life.meanwhile = made.meanwhile
        for number, move in enumerate((made.move, made.back, made.move)):
            try:
                moved = await move(life if number == leg else None)
            except Killed:
                made.clock.advance(CLIENT_LEASE)
                moved = await move()
            assert (moved.unclear, moved.kept, moved.busy, moved.arriving) == ([], {}, 0, 0)
        made.clock.advance(10_000)
        await made.work()
        assert {uuid: made.ran[uuid] for uuid in uuids} == dict.fromkeys(uuids, 1)
        assert set(made.ran.values()) == set(made.windows.values()) == {1}
        assert {state for (_, state), count in (await made.source.tally()).items() if count} <= {"cancelled"}
        return life.calls


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("leg", [0, 1, 2])
async def test_move_there_and_back_may_be_killed_at_any_call(leg: int, when: str, tmp_path: Path) -> None:
    calls = await to_and_fro("memory-memory", tmp_path, leg, Life())
    for number in range(1, calls + 1):
        await to_and_fro("memory-memory", tmp_path, leg, Life(number, when))


@pytest.mark.parametrize("direction", DIRECTIONS[1:], indirect=True)
async def test_tasks_moved_there_and_back_run_once(direction: str, tmp_path: Path) -> None:
    await to_and_fro(direction, tmp_path, 1, Life("target.adopt", "after"))


async def test_pending_task_is_unchanged_after_moving_there_and_back(tmp_path: Path) -> None:
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "t1", b"body", after=100))
        before = await look(made.source, "t1")
        for move, store in ((made.move, made.target), (made.back, made.source)) * 3:
            assert (await move()).tasks == 1
            found = await look(store, "t1")
            assert found == replace(before, seq=found.seq, history=found.history)
        assert found.history.hops == 6
        assert {state: n for (_, state), n in (await made.source.tally()).items() if n} == {"scheduled": 1}


async def test_two_opposite_moves_at_a_time_lose_nothing(tmp_path: Path) -> None:
    """One move runs completely between two calls of the other."""
    for number in range(1, 40):
        async with world("memory-memory", tmp_path) as made:
            uuids = await fill(made)
            life = Life()

            async def against(life: Life = life, number: int = number, made: World = made) -> None:
                if life.calls == number:
                    await Move(made.target, made.source, "here", seconds=_fast()).run()

            life.meanwhile = against
            await made.move(life)
            made.clock.advance(CLIENT_LEASE)
            await made.move()
            made.clock.advance(10_000)
            await made.work()
            assert {uuid: made.ran[uuid] for uuid in uuids} == dict.fromkeys(uuids, 1), f"at call {number}"
            assert set(made.windows.values()) == {1}


def _fast(step: float = 8) -> Callable[[], float]:
    """A clock that advances with every call, so that a test does not wait for the lease of another move."""
    passed = count(step=step)
    return lambda: next(passed)


async def test_arriving_task_is_not_moved_on(tmp_path: Path) -> None:
    """A → B was killed. B → C leaves tasks that A still has, until A → B is finished."""
    async with world("memory-memory", tmp_path) as made:
        third = MemoryStore(made.clock)
        uuids = await add(made.source, *(task("a", f"t{n}", after=100) for n in range(3)))
        await add(made.target, task("a", "own", after=100))
        with pytest.raises(Killed):
            await made.move(Life("target.adopt", "after"))
        made.clock.advance(CLIENT_LEASE)
        moved = await Move(made.target, third, "third").run()
        assert (moved.tasks, moved.arriving) == (1, 3)
        assert (await made.move()).tasks == 3
        moved = await Move(made.target, third, "third").run()
        assert (moved.tasks, moved.arriving) == (3, 0)
        made.workers.append(Worker(third, "third"))
        await made.workers[-1].heartbeat(LEASE)
        made.clock.advance(100)
        await made.work()
        assert made.where == dict.fromkeys([*uuids, "own"], "third")


async def test_release_moves_what_a_lost_store_has_left(tmp_path: Path) -> None:
    """If the lost store comes back, it moves nothing a second time."""
    async with world("memory-memory", tmp_path) as made:
        third = MemoryStore(made.clock)
        await add(made.source, task("a", "t1", after=100))
        with pytest.raises(Killed):
            await made.move(Life("target.adopt", "after"))
        made.clock.advance(CLIENT_LEASE)
        moved = await Move(made.target, third, "third").run(release=True)
        assert (moved.tasks, moved.arriving) == (1, 0)
        await made.move()
        made.workers.append(Worker(third, "third"))
        await made.workers[-1].heartbeat(LEASE)
        made.clock.advance(100)
        await made.work()
        assert (made.ran, made.where) == ({"t1": 1}, {"t1": "third"})


async def test_move_that_was_stopped_longer_than_its_lease_runs_nothing_twice(tmp_path: Path) -> None:
    """Another move has moved the tasks, they have run, and their records are purged."""
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "t1"))
        life = Life()

        class Stopped:
            """Stop the move after its lift."""

            def __getattr__(self, verb: str) -> Any:
                async def call(*args: Any) -> Any:
                    answer = await getattr(made.source, verb)(*args)
                    if verb == "lift":
                        made.clock.advance(CLIENT_LEASE)
                        await made.move()
                        await made.work()
                    return answer

                return call

        slow: Any = Stopped()
        await Move(slow, life.watched(made.target, "target"), "there", seconds=lambda: made.clock.now() / 1000).run()
        await made.move()
        await made.work()
        assert made.ran == {"t1": 1}


@pytest.mark.parametrize("patient", [True, False])
async def test_move_waits_for_tasks_that_a_dead_move_has_lifted(patient: bool, tmp_path: Path) -> None:
    """The move was killed between adopting and requeueing, and its lease is not over."""
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "t1"), task("a", "t2"))
        with pytest.raises(Killed):
            await made.move(Life("target.lift", "after"))
        life = Life()
        waits: list[str] = []

        async def second() -> None:
            made.clock.advance(1_000 if patient else 0)

        life.meanwhile = second
        there = life.watched(made.target, "target")
        seconds = _fast(0.1 if patient else 8)
        moved = await Move(made.source, there, "there", on_wait=waits.append, seconds=seconds).run()
        assert (moved.tasks, moved.busy) == ((2, 0) if patient else (0, 2))
        assert waits == ["waiting for 2 tasks that another move has, 15 s at most"]
        await made.work()
        assert made.ran == ({"t1": 1, "t2": 1} if patient else {})


async def test_task_cancelled_during_a_move_can_be_revived(tmp_path: Path) -> None:
    """The copy in the target was deleted, so the task may be moved again."""
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "t1"))
        with pytest.raises(Killed):
            await made.move(Life("target.adopt", "after"))
        made.clock.advance(CLIENT_LEASE)
        assert await made.workers[0].runs() == []  # and the dead move is noticed
        await Operations(made.source, "somebody").cancel("t1")
        await made.move()
        assert list(await made.target.get(["t1"])) == [None]
        assert list(await made.source.revive(["t1"])) == ["t1"]
        assert (await made.move()).tasks == 1
        await made.work()
        assert (made.ran, made.where) == ({"t1": 1}, {"t1": "target"})


async def test_moved_task_is_not_retried_in_its_old_store(tmp_path: Path) -> None:
    """It would run twice. A task that was cancelled may be retried."""
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "t1"), task("a", "t2"))
        here = Operations(made.source, "somebody")
        await here.cancel("t2")
        await made.move()
        assert list(await here.retry("t1", "t2", "nobody")) == ["t2"]
        await made.work()
        assert (made.ran, made.where) == ({"t1": 1, "t2": 1}, {"t1": "target", "t2": "source"})
