"""Which windows run and which are skipped and reported, across restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from onthedot import App, AtMost, CronSchedule, IntervalSchedule, OnceSchedule, Retry, current_task
from onthedot.clock.epoch import from_ms
from onthedot.clock.manual import ManualClock
from onthedot.schedules.definition import ScheduleDefinition, resolve_rule
from onthedot.schedules.stored_rule import decode_rule
from onthedot.schedules.windows import MAX_WINDOWS
from onthedot.stores.contract import NewTask, Store
from tests.support.waits import until
from tests.unit.schedules.conftest import Shop
from tests.unit.schedules.test_api import BEGIN, HOUR
from tests.unit.schedules.ticks import hours, ticking, watch

# -- downtime


@pytest.mark.parametrize(
    ("catch_up", "ran", "skipped"),
    [("latest", [3], {"missed": 2}), ("all", [1, 2, 3], {}), ("none", [], {"missed": 3})],
)
async def test_catch_up_after_three_hours_and_ten_minutes_of_downtime(
    shop: Shop, app: App, catch_up: Any, ran: list[int], skipped: dict[str, int]
) -> None:
    nominal = ticking(app, CronSchedule("0 * * * *", catch_up=catch_up))
    async with app.running():
        pass
    await shop.turn(hours=3, minutes=10)
    async with app.running():
        await until(lambda: len(nominal) == len(ran))
        await shop.looked()
        info = await app.schedules.get("tick")
        assert info.next_run == BEGIN + 4 * HOUR
        assert (info.run_count, dict(info.skipped)) == (len(ran), skipped)
        await shop.turn(minutes=50)
        await until(lambda: len(nominal) == len(ran) + 1)
    assert nominal == hours(*ran, 4)


async def test_missed_windows_run_one_at_a_time(shop: Shop, app: App) -> None:
    """Also with overlap="skip": missed windows do not overlap a run."""
    inside = 0
    most = 0
    gate = asyncio.Event()

    async def wait() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await gate.wait()
        inside -= 1

    nominal = ticking(app, CronSchedule("0 * * * *", catch_up="all"), wait)
    async with app.running():
        pass
    await shop.turn(hours=3, seconds=10)
    async with app.running():
        await until(lambda: len(nominal) == 1)
        await shop.turn(hours=1)  # while the first three are alive
        await until(lambda: (app.sync.schedules.get("tick").next_run) == BEGIN + 5 * HOUR)
        await until(lambda: dict(app.sync.schedules.get("tick").skipped) == {"overlap": 1})
        gate.set()
        await until(lambda: len(nominal) == 3 and not inside)
    assert (nominal, most) == (hours(1, 2, 3), 1)


async def test_a_task_with_a_lane_of_its_own_keeps_it(shop: Shop, app: App) -> None:
    nominal = ticking(app, CronSchedule("0 * * * *", catch_up="all"), limits=[AtMost(2, name="bank")])
    async with app.running():
        pass
    await shop.turn(hours=3, minutes=10)
    async with app.running():
        await until(lambda: len(nominal) == 3)
    assert {task.lane for task in (await app.find(source="tick")).tasks} == {"@bank"}


async def test_thousands_of_missed_windows_all_run(shop: Shop, app: App) -> None:
    """In bounded portions, in order, none twice and none left out."""
    nominal = ticking(app, IntervalSchedule(60, catch_up="all", overlap="allow", grace=0))
    async with app.running():
        pass
    fired: list[int] = []
    watch(app.runtime.store, lambda fire: fired.append(len(fire.tasks)))
    await shop.turn(minutes=2 * MAX_WINDOWS + 500)
    async with app.running():
        await until(lambda: len(nominal) == 2 * MAX_WINDOWS + 500, 30)
        info = await app.schedules.get("tick")
    assert sorted(nominal) == [BEGIN + timedelta(minutes=number) for number in range(1, 2 * MAX_WINDOWS + 501)]
    assert (fired, max(fired)) == ([MAX_WINDOWS, MAX_WINDOWS, 500], MAX_WINDOWS)
    assert (info.run_count, info.next_run) == (2500, BEGIN + timedelta(minutes=2501))


async def test_years_of_missed_windows_are_skipped_quickly(shop: Shop, app: App) -> None:
    nominal = ticking(app, IntervalSchedule(0.001))
    async with app.running():
        pass
    await shop.turn(days=3650)
    async with app.running():
        await until(lambda: nominal)
        info = await app.schedules.get("tick")
    assert shop.clock.moment() - info.next_run < timedelta(minutes=1)
    assert info.skipped["missed"] > 10**11


@pytest.mark.parametrize(("late", "ran"), [(60, 1), (60.001, 0)])
async def test_a_window_within_its_grace_runs(shop: Shop, app: App, late: float, ran: int) -> None:
    ticking(app, CronSchedule("0 * * * *", catch_up="none", grace=60))
    async with app.running():
        pass
    await shop.turn(hours=1, seconds=late)
    async with app.running():
        await until(lambda: app.sync.schedules.get("tick").next_run == BEGIN + 2 * HOUR)
        await until(lambda: dict(app.sync.schedules.get("tick").skipped) == ({} if ran else {"missed": 1}))
        assert (await app.schedules.get("tick")).run_count == ran


# -- bounds


async def test_a_schedule_fires_from_start_to_end(shop: Shop, app: App) -> None:
    start = BEGIN + 2 * HOUR
    end = BEGIN + 4 * HOUR
    nominal = ticking(app, CronSchedule("0 * * * *", start=start, end=end, overlap="allow"))
    async with app.running():
        for _ in range(6):
            await shop.turn(hours=1)
            await shop.looked()
        await until(lambda: len(nominal) == 3)
        info = await app.schedules.get("tick")
        assert (info.enabled, info.next_run, info.last_run, info.run_count) == (True, None, end, 3)
        assert await app.schedules.plan() == []
    assert nominal == hours(2, 3, 4)


async def test_a_once_schedule_fires_once(shop: Shop) -> None:
    """A worker that starts later and declares it again does not fire it again."""
    nominal: list[datetime] = []
    for _ in range(3):
        app = shop.app()
        mine = ticking(app, OnceSchedule(BEGIN + HOUR))
        async with app.running():
            await shop.turn(hours=1)
            await shop.looked()
            info = await app.schedules.get("tick")
            assert (info.enabled, info.next_run, info.last_run, info.run_count) == (True, None, BEGIN + HOUR, 1)
        nominal += mine
    assert nominal == hours(1)


async def test_a_once_schedule_missed_during_downtime_is_caught_up(shop: Shop, app: App) -> None:
    nominal = ticking(app, OnceSchedule(BEGIN + HOUR))
    async with app.running():
        pass
    await shop.turn(days=9)
    async with app.running():
        await until(lambda: nominal == hours(1))


async def test_immediately_fires_when_first_stored(shop: Shop) -> None:
    nominal: list[datetime] = []
    for number in range(3):
        app = shop.app()
        mine = ticking(app, IntervalSchedule(3600, immediately=True))
        async with app.running():
            await until(lambda mine=mine, number=number: number or mine)
            await shop.turn(minutes=10)
            await shop.looked()
        nominal += mine
    assert nominal == hours(0), "when it is first stored, not with every start"
    async with app.running():
        await shop.turn(minutes=30)
        await until(lambda: mine == hours(1))


async def test_jitter_delays_each_window(shop: Shop, app: App) -> None:
    """The delay of a window is the same in every process; nominal times do not move."""
    began: list[datetime] = []
    nominal = ticking(app, IntervalSchedule(3600, jitter=600), lambda: _note(began, shop.clock))
    async with app.running():
        wanted = await app.schedules.plan("tick", hours=5)
        for number, run in enumerate(wanted):
            await shop.turn_to(run.due - timedelta(milliseconds=1))
            await shop.looked()
            assert len(began) == number
            await shop.turn(milliseconds=1)
            await until(lambda number=number: len(began) == number + 1)
    assert nominal == hours(1, 2, 3, 4, 5)
    assert began == [run.due for run in wanted]
    assert len({run.due - run.at for run in wanted}) == 5


async def _note(moments: list[datetime], clock: ManualClock) -> None:
    moments.append(clock.moment())


# -- overlap


async def test_skipped_windows_are_counted(shop: Shop, app: App) -> None:
    gate = asyncio.Event()
    nominal = ticking(app, IntervalSchedule(3600), gate.wait)
    async with app.running():
        for number in range(1, 4):
            await shop.turn(hours=1)
            await until(lambda number=number: app.sync.schedules.get("tick").next_run == BEGIN + (number + 1) * HOUR)
        await until(lambda: dict(app.sync.schedules.get("tick").skipped) == {"overlap": 2})
        info = await app.schedules.get("tick")
        assert (info.run_count, info.last_run) == (1, BEGIN + HOUR), "those that did not run are not among them"
        gate.set()
    assert nominal == hours(1)


async def test_a_run_without_retention_is_not_counted_as_skipped(
    shop: Shop, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    """With keep=0 the task may be gone before the firer checks whether it was added."""
    nominal = ticking(app, IntervalSchedule(3600), keep=0)
    gone_at_once(app.runtime.store, nominal)
    async with app.running():
        await shop.turn(hours=1)
        await until(lambda: app.sync.schedules.get("tick").run_count == 1)
        await until(lambda: nominal)
        await shop.looked()
        info = await app.schedules.get("tick")
    assert (dict(info.skipped), caplog.messages) == ({}, [])


def gone_at_once(store: Store, nominal: list[datetime]) -> None:
    """Simulates another process that ends the task before the firer checks."""
    get = store.get

    async def nothing(uuids: Sequence[str]) -> Any:
        return [None for _ in uuids] if not nominal else await get(uuids)

    store.get = nothing  # type: ignore[method-assign]


async def test_a_run_that_waits_for_its_retry_does_not_block_the_next(shop: Shop, app: App) -> None:
    """overlap="queue" means never two running at once; a task that waits for its retry does not run."""
    inside = 0
    most = 0
    ran: list[tuple[float, int]] = []

    @app.schedule(IntervalSchedule(3600, overlap="queue"), max_retries=1)
    async def tick() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        task = current_task()
        ran.append(((task.scheduled_for - BEGIN) / HOUR, task.attempt))
        await asyncio.sleep(0)
        inside -= 1
        if task.attempt == 1 and len(ran) == 1:
            raise Retry(after=5400)

    async with app.running():
        await shop.turn(hours=1)
        await until(lambda: ran == [(1, 1)])
        await until(lambda: app.status()["delayed_count"] == 1)
        await shop.turn(hours=1)
        await until(lambda: ran[1:] == [(2, 1)])
        await shop.looked()
        await shop.turn(minutes=30)
        await until(lambda: ran[2:] == [(1, 2)])
    assert most == 1


@pytest.mark.parametrize("fraction", [0, 0.0002, 0.0004, 0.0007, 0.3, 0.5, 0.9996, 0.9999])
def test_first_run_and_anchor_of_an_interval_are_of_one_moment(fraction: float) -> None:
    """The store's time has fractions that a datetime cannot have."""
    now = 1_767_226_601_148 + fraction
    definition = ScheduleDefinition("tick", IntervalSchedule(1), NewTask("u", "tick", b"{}"))
    stored = definition.merged_with(None, now)
    assert stored is not None
    assert stored.next_at is not None
    assert stored.next_at >= now + 1000
    rule = resolve_rule("tick", decode_rule(stored), {})
    assert rule is not None
    following = rule.next_after(from_ms(stored.next_at))
    assert following == from_ms(stored.next_at + 1000)
