"""Schedules when the wall clock is set ahead or back."""

from __future__ import annotations

import pytest

from onthedot import App, CronSchedule
from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import StoreTraits
from tests.support.waits import until
from tests.unit.schedules.conftest import Shop
from tests.unit.schedules.test_api import BEGIN, HOUR
from tests.unit.schedules.ticks import hours, ticking


class Jumping(ManualClock):
    """A clock whose wall clock may have jumped, unlike its monotonic one."""

    jumped = 0.0

    def wall_clock_jump(self) -> float:
        return self.jumped


@pytest.fixture
def clock() -> Jumping:
    return Jumping()


async def test_windows_are_due_by_the_clock_of_the_store(
    shop: Shop, clock: Jumping, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLite uses the wall clock, which jumps ahead; a memory store the monotonic one."""
    nominal = ticking(app, CronSchedule("0 * * * *"))
    async with app.running():
        await shop.looked()  # a turn before and one after the jump, so that the worker notices it
        clock.jumped = 3 * 3_600_000.0 + 600_000
        await shop.looked()
        if app.runtime.store.traits.synchronous:  # by the monotonic clock nothing is due
            assert nominal == []
            return
        await until(lambda: nominal == hours(3))
        worker = app.runtime.worker
        assert worker is not None
        turns = worker.turns
        await shop.looked()
        assert worker.turns - turns < 10, "the worker does not turn in a loop"
        info = await app.schedules.get("tick")
        assert (info.next_run, dict(info.skipped)) == (BEGIN + 4 * HOUR, {"missed": 2})
    steps = [message for message in caplog.messages if message.startswith("[clock]")]
    assert len(steps) == 1
    assert "was set ahead by 11400.0 s" in steps[0]


@pytest.mark.parametrize("jumped", [-3_600_000.0, 3_600_000.0])
async def test_a_clock_jump_moves_no_window_in_a_memory_store(
    shop: Shop, clock: Jumping, app: App, jumped: float
) -> None:
    if not app.runtime.store.traits.synchronous:
        pytest.skip("a file uses the wall clock, which its processes share")
    nominal = ticking(app, CronSchedule("0 * * * *"))
    async with app.running():
        clock.jumped = jumped
        app.runtime.store.traits = StoreTraits(shared=False, synchronous=True)
        await shop.turn(hours=1, milliseconds=-1)
        await shop.looked()
        assert nominal == []
        await shop.turn(milliseconds=1)
        await until(lambda: nominal == hours(1))


async def test_a_clock_that_is_put_back_fires_nothing_twice(shop: Shop, app: App) -> None:
    nominal = ticking(app, CronSchedule("0 * * * *", overlap="allow"))
    async with app.running():
        for _ in range(3):
            await shop.turn(hours=1)
            await shop.looked()
        await until(lambda: len(nominal) == 3)
        await shop.turn(hours=-2)
        await shop.looked()
        assert (await app.schedules.get("tick")).next_run == BEGIN + 4 * HOUR
        for _ in range(2):
            await shop.turn(hours=1)
            await shop.looked()
        assert len(nominal) == 3
        await shop.turn(hours=1)
        await until(lambda: len(nominal) == 4)
    assert nominal == hours(1, 2, 3, 4)


async def test_a_clock_put_back_during_downtime_fires_nothing_twice(shop: Shop, app: App) -> None:
    nominal = ticking(app, CronSchedule("0 * * * *"))
    async with app.running():
        await shop.turn(hours=1)
        await until(lambda: len(nominal) == 1)
    await shop.turn(hours=-1, minutes=30)
    async with app.running():
        await shop.looked()
        await shop.turn(minutes=30)
        await shop.looked()
    assert nominal == hours(1)
