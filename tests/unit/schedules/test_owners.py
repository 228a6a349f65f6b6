"""Schedules owned by code, matched by name at every start, or by data; and orphans, whose code is gone."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from onthedot import App, BadSchedule, CronSchedule, IntervalSchedule, StoreBusy, current_task
from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Schedule
from tests.support.consumers import Work, scheduler_of
from tests.support.waits import every_chance, until
from tests.unit.schedules.conftest import Shop
from tests.unit.schedules.test_api import BEGIN, HOUR, Odd


def declare(app: App, schedule: object, name: str = "tick", **options: Any) -> list[datetime]:
    ran: list[datetime] = []

    @app.task(name=name, schedule=schedule, **options)
    async def tick() -> None:
        ran.append(app.runtime.clock.moment())

    return ran


async def start_and_stop(app: App) -> None:
    async with app.running():
        pass


async def test_unchanged_code_changes_nothing(shop: Shop) -> None:
    for minutes in (0, 20, 20):
        await shop.turn(minutes=minutes)
        app = shop.app()
        declare(app, IntervalSchedule(3600))
        await start_and_stop(app)
        assert (await app.schedules.get("tick")).next_run == BEGIN + HOUR


@pytest.mark.parametrize("now", [IntervalSchedule(7200), CronSchedule("30 2 * * *"), IntervalSchedule(3600, grace=5)])
async def test_changed_code_replaces_the_rule_with_a_fresh_next_run(shop: Shop, now: Any) -> None:
    first = shop.app()
    declare(first, IntervalSchedule(3600))
    async with first.running():
        await shop.turn(hours=1)
        await until(lambda: first.sync.schedules.get("tick").run_count == 1)
        await first.schedules.pause("tick", "let me think")
    await shop.turn(minutes=1)
    second = shop.app()
    declare(second, now)
    await start_and_stop(second)
    info = await second.schedules.get("tick")
    assert info.next_run == now.next_after(shop.clock.moment())
    assert (info.run_count, info.last_run) == (1, BEGIN + HOUR), "it is the same schedule"
    assert not info.enabled, "an operator's pause stays"
    assert info.reason.startswith("let me think")


@pytest.mark.parametrize(
    ("options", "shown"),
    [({"priority": 9}, ("priority", 9)), ({"tags": ("eu",)}, ("tags", ["eu"])), ({"expires": 9}, ("expires", 9))],
)
async def test_changed_options_are_stored_and_keep_the_next_run(
    shop: Shop, options: Any, shown: tuple[str, Any]
) -> None:
    first = shop.app()
    declare(first, IntervalSchedule(3600))
    await start_and_stop(first)
    await shop.turn(minutes=10)
    second = shop.app()
    declare(second, IntervalSchedule(3600), **options)
    async with second.running():
        info = await second.schedules.get("tick")
        assert (info.options[shown[0]], info.next_run) == (shown[1], BEGIN + HOUR)
        await shop.turn(minutes=50)
        await until(lambda: second.sync.schedules.get("tick").run_count == 1)
        (task,) = (await second.find(source="tick")).tasks
        assert (task.priority, list(task.tags)) == (options.get("priority", 5), [*options.get("tags", ())])


async def test_a_start_with_unchanged_code_writes_nothing(shop: Shop) -> None:
    app = shop.app()
    declare(app, IntervalSchedule(3600))
    await start_and_stop(app)
    before = await app.runtime.portal.run(lambda client: client.store.schedules())
    await start_and_stop(app)
    assert (await app.runtime.portal.run(lambda client: client.store.schedules())) == before, "its rev has not grown"


async def test_a_grid_of_thirds_does_not_drift(app: App, shop: Shop) -> None:
    nominal: list[datetime] = []

    @app.schedule(IntervalSchedule(timedelta(microseconds=333_333), overlap="allow"))
    async def tick() -> None:
        nominal.append(current_task().scheduled_for)

    async with app.running():
        for number in range(1, 31):
            await shop.turn(milliseconds=334)
            await until(lambda number=number: len(nominal) == number)
    drift = [at - BEGIN - number * timedelta(microseconds=333_333) for number, at in enumerate(nominal, 1)]
    assert timedelta(0) <= min(drift) <= max(drift) < timedelta(milliseconds=1)


# -- orphans


async def test_removed_code_leaves_an_orphaned_schedule(shop: Shop) -> None:
    old = shop.app()
    new = shop.app()
    ran = declare(old, IntervalSchedule(3600))
    declare(new, IntervalSchedule(1800), name="other")
    async with new.running():
        async with old.running():
            assert not (await new.schedules.get("tick")).orphan
        info = await new.schedules.get("tick")
        assert (info.orphan, info.reason) == (True, "no worker that runs declares it any more")
        assert (await new.schedules.get("other")).reason == ""
        await shop.turn(milliseconds=3600001)
        await until(lambda: new.sync.schedules.get("other").run_count)
        assert (await new.schedules.get("tick")).next_run == BEGIN + HOUR, "not fired, and kept"
        assert [run.name for run in await new.schedules.plan(hours=0.5)] == ["other"]
        async with old.running():  # the code is back: catch_up applies to the missed windows
            await until(lambda: len(ran) == 1)
            assert not (await new.schedules.get("tick")).orphan
    info = await new.schedules.get("tick")
    assert (info.orphan, info.reason) == (True, "no worker is running")


async def test_an_orphan_can_be_deleted(shop: Shop) -> None:
    old = shop.app()
    new = shop.app()
    declare(old, IntervalSchedule(3600))
    by_code = "schedule 'tick' is declared by code and would come back .*: take it out of the code, or pause it"
    async with old.running():
        for app in (old, new):
            with pytest.raises(BadSchedule, match=by_code):
                await app.schedules.delete("tick")
    with pytest.raises(BadSchedule, match=by_code):
        await old.schedules.delete("tick")  # no worker runs, but this code would declare it again
    await new.schedules.delete("tick")
    assert await new.schedules.list() == []


async def test_a_schedule_declared_while_running_becomes_an_orphan_when_removed(clock: ManualClock) -> None:
    """A consumer registered while running fires; after it is unregistered it does not."""

    class Ticks(Work):
        schedule = IntervalSchedule(3600)

    scheduler = scheduler_of()
    ticks = Ticks("ticks")

    async def shown() -> bool | None:
        """Whether it is an orphan; None if it does not exist."""
        return next((info.orphan for info in await scheduler.schedules.list()), None)

    async def becomes(orphan: bool) -> None:
        async def so() -> bool:
            return await shown() is orphan

        await until(so)

    with scheduler.runtime.override(dataclasses.replace(scheduler.runtime.config, clock=clock)):
        await scheduler.start()
        scheduler.registry.register(ticks)
        await becomes(False)
        clock.advance(3_600_000)
        await until(lambda: len(ticks.started) == 1)
        scheduler.registry.unregister("ticks")
        await becomes(True)
        clock.advance(3_600_000)
        await every_chance()
        await scheduler.stop()
    assert len(ticks.started) == 1


# -- another process, without the code


async def test_a_process_without_the_code_can_pause_resume_and_run(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    worker = shop.app()
    operator = shop.app()
    ran = declare(worker, IntervalSchedule(3600))
    async with worker.running():
        await operator.schedules.pause("tick", "by hand")
        await shop.turn(milliseconds=7200001)
        await shop.looked()
        assert ran == []
        assert (await operator.schedules.resume("tick")).next_run == BEGIN + 3 * HOUR
        handle = await operator.schedules.run("tick")
        await until(lambda: len(ran) == 1)
        await handle
        await shop.turn(hours=1)
        await until(lambda: len(ran) == 2)
    assert caplog.messages == ["[skipped] schedule tick: paused (2 windows)"]


async def test_a_pause_survives_restarts(shop: Shop) -> None:
    for _ in range(3):
        app = shop.app()
        ran = declare(app, IntervalSchedule(3600))
        async with app.running():
            await app.schedules.pause("tick")
            await shop.turn(hours=1)
            await shop.looked()
        assert ran == []


async def test_a_custom_rule_fires_where_its_code_is_known(shop: Shop) -> None:
    """A process without the code can pause and run it, and reports what it cannot do."""
    worker = shop.app()
    operator = shop.app()
    ran = declare(worker, Odd())
    elsewhere = "schedule 'tick' has a rule of its own, and its code is not here.*app.schedules."
    async with worker.running():
        info = await operator.schedules.get("tick")
        assert (info.rule, info.next_run) == (
            "<tests.unit.schedules.test_api.Odd object>",
            BEGIN + timedelta(minutes=65),
        )
        assert [run.at.hour for run in await worker.schedules.plan("tick")] == [
            1,
            3,
            5,
            7,
            9,
            11,
            13,
            15,
            17,
            19,
            21,
            23,
        ]
        assert [run.at.hour for run in await operator.schedules.plan()] == [1], "the next one is stored"
        with pytest.raises(BadSchedule, match=elsewhere + r"plan\('tick'\)"):
            await operator.schedules.plan("tick")
        await operator.schedules.pause("tick")
        assert (await operator.schedules.resume("tick")).enabled, "nothing has passed, so nothing is computed"
        await operator.schedules.pause("tick")
        await (await operator.schedules.run("tick"))
        assert len(ran) == 1
        await shop.turn(hours=2)
        with pytest.raises(BadSchedule, match=elsewhere + r"resume\('tick'\)"):
            await operator.schedules.resume("tick")
        assert (await worker.schedules.resume("tick")).next_run == BEGIN + timedelta(hours=3, minutes=5)
        await shop.turn(hours=2)
        await until(lambda: len(ran) == 2)


async def test_a_custom_rule_is_unchanged_after_a_restart(shop: Shop) -> None:
    """Its address differs after a restart, but it is the same rule, so missed windows are caught up."""
    first = shop.app()
    second = shop.app()
    declare(first, Odd())
    await start_and_stop(first)
    await shop.turn(hours=4)
    ran = declare(second, Odd())
    async with second.running():
        await until(lambda: len(ran) == 1)
        info = await second.schedules.get("tick")
        assert (info.last_run, info.run_count) == (BEGIN + timedelta(hours=3, minutes=5), 1)
        assert dict(info.skipped) == {"missed": 1}


# -- code and data


async def test_put_refuses_the_name_of_a_declared_schedule(shop: Shop, send: Any) -> None:
    old = shop.app()
    new = shop.app()
    declare(old, IntervalSchedule(3600))
    declared = "schedule 'tick' is declared by code: change it there, or take another name"
    with pytest.raises(BadSchedule, match=declared):
        await old.schedules.put("tick", send.s("ann"), "@daily")
    await start_and_stop(old)
    with pytest.raises(BadSchedule, match=declared):
        await new.schedules.put("tick", send.s("ann"), "@daily")


async def test_a_declaration_replaces_a_schedule_put_as_data(
    shop: Shop, send: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = shop.app()
    await app.schedules.put("tick", send.s("ann"), "@daily")
    caplog.set_level(logging.WARNING)
    declare(app, IntervalSchedule(3600))
    async with app.running():
        info = await app.schedules.get("tick")
    assert (info.owner, info.source, info.rule) == ("code", "tick", "every 1 h")
    assert caplog.messages == ["schedule tick was put at run time; code declares it now"]


async def test_a_schedule_put_as_data_is_fired_by_any_worker(shop: Shop) -> None:
    """The task waits for a worker that knows its source; `reason` says so."""
    knows = shop.app()
    fires = shop.app()
    ran: list[str] = []

    @knows.task
    async def send(to: str) -> None:
        ran.append(to)

    await knows.schedules.put("mail", send.s("ann"), timedelta(hours=1))
    async with fires.running():
        info = await fires.schedules.get("mail")
        assert (info.orphan, info.reason) == (False, "no worker that runs knows its source 'send'")
        await shop.turn(hours=1)
        await until(lambda: fires.sync.schedules.get("mail").run_count == 1)
        assert ran == []
        async with knows.running():
            await until(lambda: ran == ["ann"])
            assert (await fires.schedules.get("mail")).reason == ""


async def test_two_code_versions_fire_each_window_once(shop: Shop) -> None:
    """During a rolling deploy, the rule declared last applies, whichever version fires."""
    old = shop.app()
    new = shop.app()
    declare(old, IntervalSchedule(3600))
    declare(new, CronSchedule("30 * * * *"))
    async with old.running():
        await start_and_stop(new)
        await shop.turn(minutes=30)
        await until(lambda: old.sync.schedules.get("tick").run_count == 1)
        info = await old.schedules.get("tick")
        assert (info.last_run, info.next_run) == (BEGIN + 0.5 * HOUR, BEGIN + 1.5 * HOUR)


async def test_a_declaration_repairs_an_unreadable_schedule(shop: Shop) -> None:
    app = shop.app()
    declare(app, IntervalSchedule(3600))
    await start_and_stop(app)

    async def spoil(link: Any) -> None:
        (record,) = await link.store.schedules()
        assert list(await link.store.put_schedules([replace(record, rule=b"{}", runs=7)])) == [True]

    await app.runtime.portal.run(spoil)
    await shop.turn(minutes=30)
    async with app.running():
        info = await app.schedules.get("tick")
    assert (info.rule, info.next_run, info.run_count) == ("every 1 h", BEGIN + 1.5 * HOUR, 7)


async def test_an_edit_that_always_loses_raises_store_busy(shop: Shop) -> None:
    app = shop.app()
    declare(app, IntervalSchedule(3600))
    await start_and_stop(app)
    store = app.runtime.store
    put_schedules = store.put_schedules

    async def too_late(schedules: Sequence[Schedule]) -> Sequence[bool]:
        return await put_schedules([replace(each, rev=each.rev + 100) for each in schedules])

    store.put_schedules = too_late  # type: ignore[method-assign]
    with pytest.raises(StoreBusy, match="schedule 'tick' was changed by others 10 times in a row; try again"):
        await app.schedules.pause("tick")


def test_a_manual_clock_starts_in_2026() -> None:
    assert datetime(2026, 1, 1, tzinfo=UTC) == BEGIN == ManualClock().moment()
