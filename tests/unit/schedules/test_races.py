"""Schedules that cannot be fired, and changes between due and fire."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from onthedot import App, CronSchedule
from onthedot.stores.contract import FireRequest, Schedule as Record
from tests.support.waits import until
from tests.unit.schedules.conftest import Shop
from tests.unit.schedules.test_api import BEGIN, HOUR
from tests.unit.schedules.ticks import hours, ticking, watch


async def start(app: App) -> None:
    async with app.running():
        pass


# -- schedules that cannot be fired


class Broken:
    """A custom rule whose second answer raises."""

    def next_after(self, moment: datetime) -> datetime:
        if moment > BEGIN:
            raise RuntimeError("the moon is not in the almanac")
        return BEGIN + HOUR


async def test_an_unreadable_schedule_does_not_stop_the_others(
    shop: Shop, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.schedule(Broken())
    async def moon() -> None: ...

    nominal = ticking(app, CronSchedule("0 * * * *", overlap="allow"))
    send = app.named("tick")
    await app.schedules.put("bytes", send.s(), timedelta(hours=1))
    await app.schedules.put("zone", send.s(), "0 * * * *")
    async with app.running():

        async def spoil(link: Any) -> None:
            records = {each.name: each for each in (await link.store.schedules())}
            zone = records["zone"].rule.replace(b'"UTC"', b'"Mars/Base"')
            await link.store.put_schedules(
                [replace(records["bytes"], rule=b"\xff"), replace(records["zone"], rule=zone)]
            )

        await app.runtime.portal.run(spoil)
        for number in range(1, 4):
            await shop.turn(hours=1)
            await until(lambda number=number: len(nominal) == number)
            await shop.looked()
        assert app.status()["last_error"] is not None
    assert nominal == hours(1, 2, 3)
    errors = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert sorted(each.getMessage() for each in errors) == [
        "schedule bytes cannot be fired: schedule 'bytes': what is stored of it cannot be read: "
        + cause_of(errors, "bytes"),
        "schedule moon cannot be fired: the moon is not in the almanac",
        "schedule zone cannot be fired: " + cause_of(errors, "zone"),
    ], "one line each"
    assert all(each.exc_info for each in errors)


async def test_a_rule_that_raises_fails_a_start_but_not_a_running_worker(
    shop: Shop, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    class Never:
        def next_after(self, moment: datetime) -> datetime:
            raise RuntimeError("no almanac")

    async with app.running():
        nominal = ticking(app, CronSchedule("0 * * * *"))

        @app.schedule(Never())
        async def moon() -> None: ...

        await until(lambda: caplog.messages)
        await shop.turn(hours=1)
        await until(lambda: nominal == hours(1))
        await shop.looked()
    assert caplog.messages == ["schedule moon cannot be fired: no almanac"]
    with pytest.raises(RuntimeError, match="no almanac"):
        await start(app)


def cause_of(records: Sequence[logging.LogRecord], name: str) -> str:
    (message,) = (each.getMessage() for each in records if each.getMessage().startswith(f"schedule {name}"))
    return message.rpartition("read: ")[2] if name == "bytes" else message.partition("fired: ")[2]


# -- between due and fire


async def test_a_pause_between_due_and_fire_prevents_the_run(shop: Shop, app: App) -> None:
    refused: list[str] = []

    async def pause(fire: FireRequest) -> None:
        if not refused:
            refused.append(fire.name)
            await app.schedules.pause("tick")

    nominal = ticking(app, CronSchedule("0 * * * *"))
    watch(app.runtime.store, pause)
    async with app.running():
        await shop.turn(hours=1)
        await until(lambda: refused)
        await shop.looked()
        assert (nominal, len((await app.find()).tasks)) == ([], 0)
        info = await app.schedules.get("tick")
        assert (info.enabled, info.run_count, info.next_run) == (False, 0, BEGIN + HOUR)


async def test_an_edit_between_due_and_fire_takes_effect(shop: Shop, app: App) -> None:
    edited: list[str] = []

    @app.task
    async def send(to: str) -> None:
        edited.append(to)

    async def edit(_: FireRequest) -> None:
        if not edited:
            edited.append("once")
            await app.schedules.put("mail", send.s("bob"), "30 * * * *")

    watch(app.runtime.store, edit)
    async with app.running():
        await app.schedules.put("mail", send.s("ann"), "0 * * * *")
        await shop.turn(hours=1)
        await until(lambda: edited)
        await shop.looked()
        assert edited == ["once"], "the window was the old rule's"
        await shop.turn(minutes=30)
        await until(lambda: edited == ["once", "bob"])


async def test_an_edit_that_loses_the_race_is_tried_again(shop: Shop, app: App) -> None:
    """A pause that was read before a firing and written after it must not undo that firing."""
    nominal = ticking(app, CronSchedule("0 * * * *"))
    store = app.runtime.store
    late = [True]
    put_schedules = store.put_schedules

    async def slow(schedules: Sequence[Record]) -> Sequence[bool]:
        if late and any(each.paused for each in schedules):
            late.clear()
            await shop.turn(hours=1)
            await until(lambda: nominal)
        return await put_schedules(schedules)

    async with app.running():
        if store.traits.synchronous:
            pytest.skip("a store that never suspends has no such moment")
        store.put_schedules = slow  # type: ignore[method-assign]
        info = await app.schedules.pause("tick")
        assert (info.enabled, info.run_count, info.next_run) == (False, 1, BEGIN + 2 * HOUR)
