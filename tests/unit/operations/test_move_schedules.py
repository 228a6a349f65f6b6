"""Moved schedules: every window fires in one of the stores."""

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
async def test_moved_schedule_continues_in_the_target(definition_digest: str, paused: bool) -> None:
    source, target = await both(schedule(definition_digest=definition_digest, paused=paused), None)
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(definition_digest=definition_digest, paused=paused)
    assert await the(source) == schedule(definition_digest=definition_digest, paused=True, next_at=None)
    assert await move_schedules(source, target) == ([], [])
    await source.put_schedules([schedule(definition_digest=definition_digest, next_at=9_000)])
    assert (await the(source)).paused


async def test_schedule_in_both_stores_continues_from_the_later_state() -> None:
    source, target = await both(schedule(next_at=7_000, last_at=6_000, runs=6), schedule())
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(next_at=7_000, last_at=6_000, runs=6)
    source, target = await both(schedule(), schedule(next_at=9_000, paused=True))
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(next_at=9_000), "it runs here, so it runs there"


async def test_schedule_moved_back_replaces_the_old_one() -> None:
    """Its rule may have changed in the other store."""
    source, target = await both(
        schedule(rule=b"new", definition_digest="new", runs=7), schedule(next_at=None, paused=True)
    )
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(rule=b"new", definition_digest="new", runs=7)


async def test_incoming_schedule_is_not_moved_back() -> None:
    """The pause of an incoming copy is not one of an operator, and the original continues."""
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


async def test_pause_by_an_operator_in_the_target_stays() -> None:
    """The move was killed before it paused the original."""
    source, target = await both(schedule(), None)
    with pytest.raises(Killed):
        await move_schedules(Life(5).watched(source, "source"), target)
    assert ((await the(source)).paused, await the(target)) == (False, schedule())
    (found,) = await target.schedules()
    await target.put_schedules([replace(found, paused=True)])
    assert await move_schedules(source, target) == (["tick"], [])
    assert ((await the(source)).paused, (await the(target)).paused) == (True, True)


async def test_other_rule_of_the_same_name_in_the_target_stays() -> None:
    source, target = await both(schedule(), schedule(rule=b"new", definition_digest="new", next_at=6_000))
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(rule=b"new", definition_digest="new", next_at=6_000)
    assert (await the(source)).paused


async def test_schedule_that_never_fires_again_is_moved_once() -> None:
    source, target = await both(schedule(next_at=None), None)
    assert await move_schedules(source, target) == (["tick"], [])
    assert await the(target) == schedule(next_at=None)
    assert await move_schedules(source, target) == ([], [])


@pytest.mark.parametrize("to", ["memory", "sqlite"])
async def test_declared_schedule_fires_in_the_store_it_was_moved_to(to: str, tmp_path: Path) -> None:
    """With the engine: workers with the same code on both stores, before and after the move."""
    clock = ManualClock()
    fired = list[tuple[str, float]]()
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
