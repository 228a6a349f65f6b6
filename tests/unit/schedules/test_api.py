"""``app.schedules``: schedules created, inspected and changed at run time."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from onthedot import (
    App,
    BadSchedule,
    BaseTaskConsumer,
    CronSchedule,
    DailySchedule,
    IntervalSchedule,
    OnceSchedule,
    Task,
    TaskNotFound,
    current_task,
)
from onthedot.clock.manual import ManualClock
from tests.support.consumers import Work, running
from tests.support.waits import until
from tests.unit.schedules.conftest import Shop

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)  # the first moment of a test's clock
HOUR = timedelta(hours=1)


class Odd:
    """A custom rule: five past every odd hour."""

    def next_after(self, moment: datetime) -> datetime:
        found = moment.replace(minute=5, second=0, microsecond=0)
        while found <= moment or not found.hour % 2:
            found += HOUR
        return found


FORMS: list[tuple[object, str, datetime]] = [
    ("0 8 * * *", "0 8 * * * (UTC)", BEGIN + 8 * HOUR),
    ("*/15 * * * * *", "*/15 * * * * * (UTC)", BEGIN + timedelta(seconds=15)),
    ("@daily", "@daily (UTC)", BEGIN + 24 * HOUR),
    (timedelta(minutes=90), "every 90 min", BEGIN + timedelta(minutes=90)),
    (timedelta(days=2), "every 2 days", BEGIN + timedelta(days=2)),
    (time(7, 30), "daily 07:30 (UTC)", BEGIN + 7.5 * HOUR),
    (datetime(2026, 2, 3, 4, tzinfo=UTC), "once 2026-02-03T04:00:00+00:00", datetime(2026, 2, 3, 4, tzinfo=UTC)),
    (IntervalSchedule(0.2, jitter=5), "every 0.2 s, up to 5 s later", BEGIN + timedelta(seconds=0.2)),
    (IntervalSchedule(60, immediately=True), "every 1 min", BEGIN),
    (
        IntervalSchedule(60, start=BEGIN + HOUR, end=BEGIN + 2 * HOUR),
        "every 1 min, from 2026-01-01T01:00:00+00:00, until 2026-01-01T02:00:00+00:00",
        BEGIN + HOUR,
    ),
    (CronSchedule("0 8 * * *", tz="Europe/Berlin"), "0 8 * * * (Europe/Berlin)", BEGIN + 7 * HOUR),
    (
        DailySchedule("03:00", tz="Europe/Berlin", weekdays="sat-sun"),
        "daily 03:00 sat, sun (Europe/Berlin)",
        BEGIN + 50 * HOUR,
    ),
    (OnceSchedule(BEGIN + HOUR), "once 2026-01-01T01:00:00+00:00", BEGIN + HOUR),
]


@pytest.mark.parametrize(("form", "rule", "first"), FORMS, ids=lambda each: str(each)[:40])
async def test_put_takes_every_form_of_a_schedule(
    app: App, send: Any, form: object, rule: str, first: datetime
) -> None:
    info = await app.schedules.put("mail", send.s("ann"), form)
    assert (info.rule, info.next_run) == (rule, first)
    assert (info.name, info.source, dict(info.args), info.owner) == ("mail", "send", {"to": "ann"}, "data")
    assert (info.enabled, info.last_run, info.run_count) == (True, None, 0)
    assert await app.schedules.get("mail") == info
    assert await app.schedules.list() == [info]
    assert (await app.schedules.plan("mail", until=first))[0].at == first


async def test_a_schedule_put_at_run_time_fires(app: App, shop: Shop) -> None:
    ran: list[tuple[str, datetime]] = []

    @app.task
    async def send(to: str) -> None:
        ran.append((to, current_task().scheduled_for))

    async with app.running():
        await app.schedules.put("mail", send.s("ann"), timedelta(hours=1))
        await shop.turn(milliseconds=3600100)
        await until(lambda: ran == [("ann", BEGIN + HOUR)])
        info = await app.schedules.get("mail")
        assert (info.last_run, info.run_count, info.next_run) == (BEGIN + HOUR, 1, BEGIN + 2 * HOUR)
        assert info.reason == ""


async def test_options_of_put_replace_those_of_the_rule(app: App, send: Any) -> None:
    rule = CronSchedule("0 8 * * *", tz="Europe/Berlin", grace=5, overlap="allow")
    call = send.options(priority=9, tags=["eu"], expires=60, label="mail to ann", metadata={"n": 1}).s("ann")
    end = BEGIN + timedelta(days=3)
    info = await app.schedules.put("mail", call, rule, tz="Asia/Tokyo", grace=7, catch_up="none", jitter=3, end=end)
    assert dict(info.options) == {
        "overlap": "allow", "catch_up": "none", "grace": 7.0, "jitter": 3.0, "end": end.isoformat(),
        "tz": "Asia/Tokyo", "priority": 9, "expires": 60, "tags": ["eu"], "label": "mail to ann", "metadata": {"n": 1},
    }  # fmt: skip
    assert info.next_run == BEGIN + 23 * HOUR


async def test_the_zone_of_the_app_is_the_default(clock: ManualClock) -> None:
    app = App("shop", store="memory://", tz="Europe/Berlin")
    with app.override(clock=clock):
        info = await app.schedules.put("mail", app.named("send").s(), "0 8 * * *")
    assert info.next_run == BEGIN + 7 * HOUR


async def test_putting_the_same_schedule_again_keeps_its_next_run(app: App, send: Any, shop: Shop) -> None:
    """Otherwise a program that puts its schedules at every start would postpone an hourly one for ever."""
    first = await app.schedules.put("mail", send.s("ann"), timedelta(hours=1))
    await shop.turn(minutes=30)
    assert await app.schedules.put("mail", send.s("ann"), timedelta(hours=1)) == first
    louder = await app.schedules.put("mail", send.options(priority=9).s("ann"), timedelta(hours=1))
    assert (louder.options["priority"], louder.next_run) == (9, first.next_run)
    moved = BEGIN + 1.5 * HOUR
    assert (await app.schedules.put("mail", send.s("bob"), timedelta(hours=1))).next_run == moved
    assert (await app.schedules.put("mail", send.s("bob"), timedelta(hours=2))).next_run == moved + HOUR


async def test_put_keeps_runs_and_pause(app: App, send: Any, shop: Shop) -> None:
    async with app.running():
        await app.schedules.put("mail", send.s("ann"), timedelta(hours=1))
        await shop.turn(hours=1)
        await until(lambda: app.sync.schedules.get("mail").run_count == 1)
        await app.schedules.pause("mail", "holidays")
        info = await app.schedules.put("mail", send.s("ann"), timedelta(hours=3))
    assert (info.run_count, info.last_run, info.enabled, info.reason) == (1, BEGIN + HOUR, False, "holidays")


# -- pause, resume, run, delete


async def test_a_paused_schedule_does_not_fire_until_resumed(
    app: App, send: Any, ran: list[Any], shop: Shop, caplog: Any
) -> None:
    async with app.running():
        await app.schedules.put("mail", send.s("ann"), timedelta(hours=1), catch_up="all")
        paused = await app.schedules.pause("mail", "no mails today")
        assert (paused.enabled, paused.reason) == (False, "no mails today")
        await shop.turn(minutes=190)
        await shop.looked()
        assert ran == []
        info = await app.schedules.resume("mail")
        assert (info.enabled, info.reason, info.next_run) == (True, "", BEGIN + 4 * HOUR)
        assert (dict(info.skipped), info.run_count) == ({"paused": 3}, 0)
        assert caplog.messages == ["[skipped] schedule mail: paused (3 windows)"]
        assert await app.schedules.resume("mail") == info, "a second resume changes nothing"
        await shop.turn(minutes=50)
        await until(lambda: ran == ["ann"])
        assert (await app.schedules.get("mail")).run_count == 1


async def test_pausing_again_replaces_the_reason(app: App, send: Any) -> None:
    await app.schedules.put("mail", send.s("ann"), timedelta(hours=1))
    await app.schedules.pause("mail")
    assert (await app.schedules.pause("mail", "on second thoughts")).reason.startswith("on second thoughts")


@pytest.mark.parametrize(
    ("reason", "shown"), [("\ud800 \x00 ü", "\\ud800 \x00 ü"), (5, "5"), ("x" * 100_000, "x" * 100_000)]
)
async def test_a_pause_keeps_any_reason(app: App, send: Any, reason: Any, shown: str) -> None:
    await app.schedules.put("mail", send.s("ann"), timedelta(hours=1))
    await app.schedules.pause("mail", reason)
    assert (await app.schedules.get("mail")).reason == f"{shown}; no worker is running"
    assert (await app.schedules.resume("mail")).enabled


async def test_run_adds_a_task_now(app: App, send: Any, ran: list[Any], shop: Shop) -> None:
    async with app.running():
        before = await app.schedules.put("mail", send.s("ann"), timedelta(hours=1))
        handle = await app.schedules.run("mail")
        assert handle.added
        assert await handle == "hello, ann"
        assert await app.schedules.get("mail") == before, "its next run, last run and count are those of its windows"
        await app.schedules.pause("mail")
        assert await (await app.schedules.run("mail")) == "hello, ann"
    assert ran == ["ann", "ann"]


@pytest.mark.parametrize(("overlap", "fresh"), [("skip", False), ("allow", True), ("queue", True)])
async def test_run_now_obeys_overlap(app: App, send: Any, overlap: Any, fresh: bool) -> None:
    await app.schedules.put("mail", send.s("ann"), timedelta(hours=1), overlap=overlap)
    first = await app.schedules.run("mail")
    second = await app.schedules.run("mail")
    assert (first.added, second.added) == (True, fresh)
    assert (first.uuid == second.uuid) is not fresh


async def test_a_deleted_schedule_is_gone_but_its_tasks_remain(app: App, send: Any, shop: Shop) -> None:
    await app.schedules.put("mail", send.s("ann"), timedelta(hours=1))
    handle = await app.schedules.run("mail")
    await app.schedules.delete("mail")
    assert await app.schedules.list() == []
    assert (await handle.info()).state == "ready", "its task remains"
    with pytest.raises(TaskNotFound, match="no schedule 'mail'; there are: none"):
        await app.schedules.delete("mail")
    fresh = await app.schedules.put("mail", send.s("ann"), timedelta(hours=1))
    assert fresh.run_count == 0


async def test_operations_on_an_unknown_schedule_raise(app: App, send: Any) -> None:
    await app.schedules.put("mail", send.s("ann"), timedelta(hours=1))
    schedules = app.schedules
    for verb in (schedules.get, schedules.pause, schedules.resume, schedules.run, schedules.delete, schedules.plan):
        with pytest.raises(TaskNotFound, match="no schedule 'male'; there are: mail"):
            await verb("male")


def test_sync_code_has_the_same_operations(app: App, send: Any, ran: list[Any]) -> None:
    schedules = app.sync.schedules
    info = schedules.put("mail", send.s("ann"), "0 8 * * *", tz="Europe/Berlin")
    assert schedules.get("mail") == info
    assert schedules.list() == [info]
    assert not schedules.pause("mail", "why not").enabled
    assert schedules.resume("mail").enabled
    assert [run.at for run in schedules.plan("mail", hours=48)] == [BEGIN + 7 * HOUR, BEGIN + 31 * HOUR]
    handle = schedules.run("mail")
    assert handle.info().source == "send"
    schedules.delete("mail")
    assert schedules.list() == []


async def test_a_scheduler_has_schedules_for_its_consumers(clock: ManualClock) -> None:
    work = Work()
    async with running(work, clock=clock) as scheduler:
        info = await scheduler.schedules.put("mail", work.produce({"n": 1}), timedelta(hours=1), overlap="allow")
        assert (info.source, dict(info.args), info.owner) == ("work", {"n": 1}, "data")
        clock.advance(3_600_000)
        await until(lambda: work.done() == [1])
        await (await scheduler.schedules.run("mail"))
        assert work.done() == [1, 1]
        assert scheduler.status()["scheduled_count"] == 1
        await scheduler.schedules.put("far", Task("elsewhere", {"n": 1}), timedelta(hours=9))
        assert (await scheduler.schedules.get("far")).reason == "no worker that runs knows its source 'elsewhere'"


async def test_a_consumer_of_an_app_can_be_scheduled(app: App) -> None:
    class Loud(BaseTaskConsumer):
        name = "loud"
        priority = 9

        async def consume(self, task: Task) -> None: ...

    app.register(Loud())
    info = await app.schedules.put("shout", Loud().produce({"n": 1}), timedelta(hours=1))
    assert (info.source, info.options["priority"]) == ("loud", 9)


# -- refused schedules


@pytest.mark.parametrize(
    ("call", "schedule", "options", "message"),
    [
        ("s", Odd(), {}, r"schedule 'mail': <.*Odd.*> is a rule of one's own, .* @app.schedule"),
        ("function", "@daily", {}, r"schedule 'mail': <task send> is of type TaskFunction; pass .* send.s\('ann'\)"),
        ("text", "@daily", {}, "schedule 'mail': 'send' is of type str"),
        ("late", "@daily", {}, r"schedule 'mail': options\(after=…\) is for one call"),
        ("s", "61 * * * *", {}, "schedule 'mail': cron '61 .*minute '61'"),
        ("s", "@reboot", {}, "schedule 'mail': cron '@reboot'"),
        ("s", 5, {}, "schedule 'mail': .*5 is of type int"),
        ("s", date(2026, 1, 2), {}, "schedule 'mail': .* is of type date; pass a cron str"),
        ("s", datetime(2026, 1, 2), {}, "schedule 'mail': .*no time zone"),  # noqa: DTZ001
        ("s", datetime(2025, 1, 2, tzinfo=UTC), {}, "schedule 'mail' would never run: OnceSchedule.*no moment to come"),
        ("s", "@daily", {"end": datetime(2025, 1, 2, tzinfo=UTC)}, "schedule 'mail' would never run"),
        ("s", "@daily", {"tz": "Mars/Base"}, "schedule 'mail': .*no time zone 'Mars/Base'"),
        ("s", "@daily", {"overlap": "never"}, "schedule 'mail': .*overlap='never' is not one of skip, allow, queue"),
        ("s", "@daily", {"catch_up": 1}, "schedule 'mail': .*catch_up=1 is not one of"),
        ("s", "@daily", {"grace": -1}, "schedule 'mail': .*grace"),
        ("s", "@daily", {"jitter": "1h"}, "schedule 'mail': .*jitter"),
        ("s", "@daily", {"start": datetime(2026, 1, 2)}, "schedule 'mail': .*start.*no time zone"),  # noqa: DTZ001
        ("s", "@daily", {"crace": 1}, "schedule 'mail': no option crace; there are: tz, overlap"),
        ("s", "@daily", {"misfire_grace_time": 1}, "schedule 'mail': no option misfire_grace_time; it is grace=… here"),
        ("s", timedelta(0), {}, "schedule 'mail': .*interval .* out of range"),
        ("s", CronSchedule("@daily", args={"to": "x"}), {}, r"schedule 'mail': the arguments are those of the call"),
    ],
)
async def test_wrong_schedules_are_refused_by_put(
    app: App, send: Any, call: str, schedule: object, options: Any, message: str
) -> None:
    calls: dict[str, Any] = {"s": send.s("ann"), "function": send, "text": "send", "late": send.options(after=1).s("a")}
    with pytest.raises(BadSchedule, match=message):
        await app.schedules.put("mail", calls[call], schedule, **options)
    assert await app.schedules.list() == []


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 201, 5])
async def test_wrong_schedule_names_are_refused(app: App, send: Any, name: Any) -> None:
    with pytest.raises(BadSchedule, match="name of the schedule"):
        await app.schedules.put(name, send.s("ann"), "@daily")


# -- plan


async def test_plan_lists_the_windows_of_all_schedules(app: App, send: Any) -> None:
    await app.schedules.put("a", send.s("ann"), timedelta(hours=8))
    await app.schedules.put("b", send.s("bob"), "0 8,20 * * *")
    await app.schedules.put("c", send.s("cy"), "@hourly")
    await app.schedules.pause("c")
    runs = [(run.name, run.at.hour) for run in await app.schedules.plan()]
    assert runs == [("a", 8), ("b", 8), ("a", 16), ("b", 20), ("a", 0)]
    assert len(await app.schedules.plan(hours=12)) == 2
    assert len(await app.schedules.plan(until=BEGIN + 16 * HOUR)) == 3
    assert len(await app.schedules.plan(limit=4)) == 4
    assert [run.at.hour for run in await app.schedules.plan("c", hours=2)] == [1, 2], "as if it went on"


async def test_plan_begins_with_late_windows(app: App, send: Any, shop: Shop) -> None:
    await app.schedules.put("latest", send.s("ann"), timedelta(hours=1))
    await app.schedules.put("all", send.s("ann"), timedelta(hours=1), catch_up="all")
    await shop.turn(minutes=190)
    assert [run.at.hour for run in await app.schedules.plan("latest", hours=1)] == [3, 4]
    assert [run.at.hour for run in await app.schedules.plan("all", hours=1)] == [1, 2, 3, 4]
    await app.schedules.pause("all")
    assert [run.at.hour for run in await app.schedules.plan("all", hours=1)] == [4]


async def test_plan_marks_windows_at_clock_changes(app: App, send: Any, shop: Shop) -> None:
    async def marks(name: str, hours: float) -> list[tuple[str, str]]:
        return [(f"{run.wall:%d %H:%M %Z}", run.mark) for run in await app.schedules.plan(name, hours=hours)]

    await shop.turn_to(datetime(2026, 3, 28, 12, tzinfo=UTC))
    for name, rule in (("fixed", "30 2 * * *"), ("each", "30 * * * *")):
        await app.schedules.put(name, send.s("ann"), rule, tz="Europe/Berlin")
    assert await marks("fixed", 40) == [("29 03:00 CEST", "gap"), ("30 02:30 CEST", "")]
    assert (await marks("each", 14))[-2:] == [("29 01:30 CET", ""), ("29 03:30 CEST", "")]
    await shop.turn_to(datetime(2026, 10, 24, 12, tzinfo=UTC))
    for name in ("fixed", "each"):
        await app.schedules.pause(name)
        await app.schedules.resume(name)
    assert await marks("fixed", 40) == [("25 02:30 CEST", "first"), ("26 02:30 CET", "")]
    assert (await marks("each", 14))[-2:] == [("25 02:30 CEST", "first"), ("25 02:30 CET", "second")]


async def test_plan_shows_the_jitter(app: App, send: Any, shop: Shop) -> None:
    await app.schedules.put("mail", send.s("ann"), timedelta(hours=1), jitter=600)
    (run,) = await app.schedules.plan("mail", hours=1)
    assert BEGIN + HOUR == run.at <= run.due <= run.at + timedelta(minutes=10)
    async with app.running():
        await shop.turn(hours=1)
        await until(lambda: app.status()["delayed_count"] + app.status()["queue_count"])
        (info,) = (await app.find(source="send")).tasks
    assert info.schedule_at == run.due


async def test_load_counts_windows_per_hour(app: App, send: Any, shop: Shop) -> None:
    await shop.turn(minutes=10)  # ten past midnight
    await app.schedules.put("fast", send.s("ann"), IntervalSchedule(0.001, end=BEGIN + 2 * HOUR))
    await app.schedules.put("half", send.s("ann"), "*/30 * * * *")
    await app.schedules.put("nine", send.s("ann"), "0 9 * * *")

    async def load(name: str | None = None) -> list[int]:
        found = await app.runtime.portal.run(lambda client: client.operations.schedules.load(name))
        assert [hour for hour, _ in found] == [BEGIN + hour * HOUR for hour in range(24)]
        return [count for _, count in found]

    assert await load("half") == [1, *[2] * 23]
    assert await load("nine") == [*[0] * 9, 1, *[0] * 14]
    assert await load("fast") == [3_000_000 - 1, 3_600_000, 1, *[0] * 21], "both ends belong to it"
    assert (await load())[8:11] == [2, 3, 2]


# -- unreadable schedules


async def test_an_unreadable_schedule_can_be_listed_paused_and_deleted(app: App, send: Any) -> None:
    await app.schedules.put("good", send.s("ann"), timedelta(hours=1))
    await app.schedules.put("bad", send.s("ann"), timedelta(hours=1))
    await app.schedules.put("odd", send.s("ann"), timedelta(hours=1))

    async def spoil(link: Any) -> None:
        records = {each.name: each for each in (await link.store.schedules())}
        odd = records["odd"].rule.replace(b'"interval"', b'"lunar"')
        await link.store.put_schedules([replace(records["bad"], rule=b"\xff{"), replace(records["odd"], rule=odd)])

    await app.runtime.portal.run(spoil)
    bad, good, odd = await app.schedules.list()
    assert (bad.rule, odd.rule, good.rule) == ("?", "?", "every 1 h")
    assert "schedule 'bad': what is stored of it cannot be read" in bad.reason
    assert "lunar" in odd.reason
    assert [run.name for run in await app.schedules.plan(hours=1)] == ["bad", "good", "odd"]
    with pytest.raises(BadSchedule, match="cannot be read"):
        await app.schedules.run("bad")
    assert not (await app.schedules.pause("bad")).enabled
    await app.schedules.delete("bad")
    assert len(await app.schedules.list()) == 2
