"""There and back, and moves that meet: each task once, wherever it has been."""

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
from tests.unit.operations.move_steps import WAYS, Killed, Life, World, fill, world


async def to_and_fro(way: str, folder: Path, leg: int, life: Life) -> int:
    """There, back and there again, killed in one of them. Answers how many calls that one made."""
    async with world(way, folder) as made:
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
async def test_to_and_fro_killed_at_every_call(leg: int, when: str, tmp_path: Path) -> None:
    calls = await to_and_fro("memory-memory", tmp_path, leg, Life())
    for number in range(1, calls + 1):
        await to_and_fro("memory-memory", tmp_path, leg, Life(number, when))


@pytest.mark.parametrize("way", WAYS[1:], indirect=True)
async def test_to_and_fro(way: str, tmp_path: Path) -> None:
    await to_and_fro(way, tmp_path, 1, Life("target.adopt", "after"))


async def test_what_waits_goes_to_and_fro_as_it_is(tmp_path: Path) -> None:
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "t1", b"body", after=100))
        before = await look(made.source, "t1")
        for move, store in ((made.move, made.target), (made.back, made.source)) * 3:
            assert (await move()).tasks == 1
            found = await look(store, "t1")
            assert found == replace(before, seq=found.seq, history=found.history)
        assert found.history.hops == 6
        assert {state: n for (_, state), n in (await made.source.tally()).items() if n} == {"scheduled": 1}


async def test_two_moves_against_each_other(tmp_path: Path) -> None:
    """The one has its whole life between two calls of the other."""
    for number in range(1, 40):
        async with world("memory-memory", tmp_path) as made:
            uuids, life = await fill(made), Life()

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
    """So that nobody waits for long for what another mover has, which stands still meanwhile."""
    passed = count(step=step)
    return lambda: next(passed)


async def test_what_is_not_put_down_yet_is_not_moved_on(tmp_path: Path) -> None:
    """A → B was killed; B → C leaves what A still has, until A → B is finished."""
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


async def test_what_a_lost_store_has_left_is_released(tmp_path: Path) -> None:
    """And if that store is found again after all, it gives nothing a second time."""
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


async def test_a_mover_that_was_stopped_for_longer_than_its_lease(tmp_path: Path) -> None:
    """Another one has moved all, it has run, and nothing is known of it any more."""
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "t1"))
        life = Life()

        class Stopped:
            """After its lift."""

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
async def test_what_a_dead_mover_has_there_is_waited_for(patient: bool, tmp_path: Path) -> None:
    """It was killed between taking and putting down there; its lease is not over yet."""
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "t1"), task("a", "t2"))
        with pytest.raises(Killed):
            await made.move(Life("target.lift", "after"))
        life, said = Life(), list[str]()

        async def second() -> None:
            made.clock.advance(1_000 if patient else 0)

        life.meanwhile = second
        there = life.watched(made.target, "target")
        moving = Move(made.source, there, "there", seconds=_fast(0.1 if patient else 8))
        moving.say = said.append
        moved = await moving.run()
        assert (moved.tasks, moved.busy) == ((2, 0) if patient else (0, 2))
        assert said == ["waiting for 2 tasks that another move has, 15 s at most"]
        await made.work()
        assert made.ran == ({"t1": 1, "t2": 1} if patient else {})


async def test_revived_where_it_was_cancelled_on_its_way(tmp_path: Path) -> None:
    """The copy was dropped there: it may come again."""
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "t1"))
        with pytest.raises(Killed):
            await made.move(Life("target.adopt", "after"))
        made.clock.advance(CLIENT_LEASE)
        assert await made.workers[0].runs() == []  # and the dead mover is noticed
        await Operations(made.source, "somebody").cancel("t1")
        await made.move()
        assert list(await made.target.get(["t1"])) == [None]
        assert list(await made.source.revive(["t1"])) == ["t1"]
        assert (await made.move()).tasks == 1
        await made.work()
        assert (made.ran, made.where) == ({"t1": 1}, {"t1": "target"})


async def test_what_was_moved_is_not_retried_where_it_was(tmp_path: Path) -> None:
    """It would run twice. What was cancelled there may be."""
    async with world("memory-memory", tmp_path) as made:
        await add(made.source, task("a", "t1"), task("a", "t2"))
        here = Operations(made.source, "somebody")
        await here.cancel("t2")
        await made.move()
        assert list(await here.retry("t1", "t2", "nobody")) == ["t2"]
        await made.work()
        assert (made.ran, made.where) == ({"t1": 1, "t2": 1}, {"t1": "target", "t2": "source"})
