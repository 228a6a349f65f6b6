"""Schedules between stores: every window fires in one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from onthedot import App, IntervalSchedule
from onthedot.clock.manual import ManualClock
from onthedot.operations.move import Move
from onthedot.operations.move_schedules import move_schedules
from onthedot.stores.contract import Schedule, Store
from onthedot.stores.memory import MemoryStore
from tests.support.waits import every_chance, until
from tests.unit.operations.move_steps import Killed, Life


def schedule(**fields: Any) -> Schedule:
    return replace(Schedule("tick", b'{"every": 1}', "digest", 5_000, last_at=4_000, runs=4), **fields)


async def both(*schedules: Schedule | None) -> tuple[Store, Store]:
    stores = [MemoryStore(ManualClock()), MemoryStore(ManualClock())]
    for store, each in zip(stores, schedules, strict=True):
        if each is not None:
            await store.put_schedules([each])
    return stores[0], stores[1]


async def the(store: Store) -> Schedule:
    (found,) = await store.schedules()
    return replace(found, rev=0)


@pytest.mark.parametrize("definition_digest", ["", "digest"])
@pytest.mark.parametrize("paused", [True, False])
async def test_a_schedule_goes_on_there_as_it_was(definition_digest: str, paused: bool) -> None:
    source, target = await both(schedule(definition_digest=definition_digest, paused=paused), None)
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(definition_digest=definition_digest, paused=paused)
    assert await the(source) == schedule(definition_digest=definition_digest, paused=True, next_at=None)
    assert await move_schedules(source, target) == ([], [])
    await source.put_schedules([schedule(definition_digest=definition_digest, next_at=9_000)])
    assert (await the(source)).paused


async def test_one_that_is_there_already_goes_on_from_where_either_has_come_to() -> None:
    source, target = await both(schedule(next_at=7_000, last_at=6_000, runs=6), schedule())
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(next_at=7_000, last_at=6_000, runs=6)
    source, target = await both(schedule(), schedule(next_at=9_000, paused=True))
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(next_at=9_000), "it runs here, so it runs there"


async def test_what_comes_back_is_newer_than_what_is_left_there() -> None:
    """Its rule may have changed where it was."""
    source, target = await both(
        schedule(rule=b"new", definition_digest="new", runs=7), schedule(next_at=None, paused=True)
    )
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(rule=b"new", definition_digest="new", runs=7)


async def test_one_that_was_only_laid_is_not_moved_back() -> None:
    """Its pause is not an operator's, and the other one goes on."""
    source, target = await both(schedule(), None)
    life = Life("source.put_schedules")
    with pytest.raises(Killed):
        await move_schedules(life.watched(source, "source"), target)
    assert await move_schedules(target, source) == ([], ["tick"])
    assert await the(source) == schedule()
    third = MemoryStore(ManualClock())
    assert await move_schedules(target, third, release=True) == (["tick"], [])
    assert await the(third) == schedule(), "if the source is lost"
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule()


async def test_a_pause_by_an_operator_there_stays() -> None:
    """Killed before the one here is paused, too."""
    source, target = await both(schedule(), None)
    with pytest.raises(Killed):
        await move_schedules(Life(5).watched(source, "source"), target)
    assert ((await the(source)).paused, await the(target)) == (False, schedule())
    (found,) = await target.schedules()
    await target.put_schedules([replace(found, paused=True)])
    assert await move_schedules(source, target) == (["tick"], [])
    assert ((await the(source)).paused, (await the(target)).paused) == (True, True)


async def test_another_rule_under_the_same_name_stands() -> None:
    source, target = await both(schedule(), schedule(rule=b"new", definition_digest="new", next_at=6_000))
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(rule=b"new", definition_digest="new", next_at=6_000)
    assert (await the(source)).paused


async def test_one_that_never_fires_again_moves_too() -> None:
    source, target = await both(schedule(next_at=None), None)
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(next_at=None)
    assert await move_schedules(source, target) == ([], [])


@pytest.mark.parametrize("to", ["memory", "sqlite"])
async def test_a_declared_schedule_fires_where_it_was_moved_to(to: str, tmp_path: Path) -> None:
    """With the engine itself: the same code at work on both sides, before and after."""
    clock, fired = ManualClock(), list[tuple[str, float]]()
    begin = clock.now()
    apps: list[App] = []
    for name, url in (
        ("here", "memory://"),
        ("there", "memory://" if to == "memory" else f"sqlite:///{tmp_path}/b.db"),
    ):
        app = App("shop", store=url, stop_timeout=0)

        @app.schedule(IntervalSchedule(10))
        async def tick(name: str = name) -> None:
            fired.append((name, clock.now() - begin))

        apps.append(app)
    here, there = apps
    with here.override(clock=clock), there.override(clock=clock):
        async with there, here.running():
            for n in range(1, 3):
                clock.advance(10_000)
                await until(lambda n=n: len(fired) == n)
            clock.advance(5_000)
            moved = await Move(here.runtime.store, there.runtime.store, "there").run()
            assert moved.schedules == ["tick"]
            async with there.running():
                for n in range(3, 6):
                    await until(lambda: all(app.runtime.worker and app.runtime.worker.idle.is_set() for app in apps))
                    clock.advance(10_000 if n > 3 else 5_000)
                    await until(lambda n=n: len(fired) == n)
                await every_chance()
    assert fired == [("here", 10_000), ("here", 20_000), ("there", 30_000), ("there", 40_000), ("there", 50_000)]
