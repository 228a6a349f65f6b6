from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from onthedot.clock.epoch import from_ms, to_ms
from onthedot.errors import BadSchedule
from onthedot.schedules.rules import (
    CatchUp,
    CronSchedule,
    DailySchedule,
    IntervalSchedule,
    OnceSchedule,
    Rule,
    RuleSchedule,
    ScheduleRule,
    as_schedule,
    from_data,
    to_data,
)
from onthedot.schedules.windows import MAX_WINDOWS, due_windows, first_run, jitter_ms, nominal_uuid

NOW = datetime(2026, 8, 1, 10, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def moments(zone: tzinfo) -> st.SearchStrategy[datetime]:
    return st.datetimes(NAIVE, NAIVE.replace(year=2030), timezones=st.just(zone))


class Fridays:
    """A custom rule."""

    def next_after(self, moment: datetime) -> datetime | None:
        day = moment.astimezone(UTC).replace(hour=9, minute=0, second=0, microsecond=0)
        return next(d for i in range(9) if (d := day + timedelta(days=i)) > moment and d.weekday() == 4)


class Says:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def next_after(self, moment: datetime) -> datetime | None:
        return self.answer(moment) if callable(self.answer) else self.answer  # type: ignore[no-any-return]


ALL: list[ScheduleRule] = [
    IntervalSchedule(90, start=NOW),
    IntervalSchedule(0.25).with_anchor(NOW),
    IntervalSchedule(7, immediately=True, end=after(3600)).with_anchor(NOW),
    CronSchedule("*/5 * * * *", tz="Europe/Berlin"),
    CronSchedule("30 2 * * *", tz="Europe/Berlin", start=NOW, end=after(1e7)),
    DailySchedule("02:30", tz="Europe/Berlin"),
    DailySchedule("23:59:59", weekdays=["sat", "sun"]),
    OnceSchedule(after(5)),
    RuleSchedule(Fridays()),
]


@given(st.sampled_from(ALL), moments(BERLIN))
def test_the_next_window_is_aware_strictly_later_and_skips_none(schedule: ScheduleRule, moment: datetime) -> None:
    found = schedule.next_after(moment)
    if found is not None:
        assert found.tzinfo is UTC
        assert found > moment.astimezone(UTC)
        assert schedule.next_after(found - timedelta(microseconds=1)) == found


@pytest.mark.parametrize("schedule", ALL)
def test_naive_moments_are_refused(schedule: ScheduleRule) -> None:
    with pytest.raises(ValueError, match="time zone"):
        schedule.next_after(NAIVE)


def test_intervals_do_not_drift() -> None:
    every = IntervalSchedule(interval=0.1).with_anchor(NOW)
    assert every.with_anchor(after(5)) is every
    moment: datetime | None = NOW
    for _ in range(1000):
        assert moment is not None
        moment = every.next_after(moment)
    assert moment == after(100)
    assert every.next_after(after(-50)) == after(0.1)  # the first is one interval after it was stored
    assert every.next_after(after(10**9 + 0.05)) == after(10**9 + 0.1)


def test_an_interval_with_a_start_begins_there() -> None:
    every = IntervalSchedule(60, NOW, after(120), 5, True)
    assert every.with_anchor(after(7)) is every
    assert [every.next_after(after(s)) for s in (-100, 0, 60, 119, 120)] == [after(s) for s in (0, 60, 120, 120)] + [
        None
    ]
    assert (every.start, every.end, every.jitter, every.immediately) == (NOW, after(120), 5, True)


def test_an_interval_without_anchor_begins_at_the_moment() -> None:
    assert IntervalSchedule(timedelta(minutes=1)).next_after(NOW) == after(60)


def test_the_first_run_of_each_kind_of_schedule() -> None:
    every = IntervalSchedule(60)
    assert first_run(every.with_anchor(NOW), NOW) == after(60)
    assert first_run(IntervalSchedule(60, immediately=True).with_anchor(NOW), NOW) == NOW
    assert first_run(IntervalSchedule(60, start=after(5), immediately=True), NOW) == after(5)
    assert first_run(IntervalSchedule(60, start=after(-5), immediately=True), NOW) == NOW
    assert first_run(IntervalSchedule(60, end=after(-5), immediately=True), NOW) is None
    assert first_run(IntervalSchedule(60, start=after(-5)), NOW) == after(55)
    assert first_run(CronSchedule("@hourly"), NOW) == after(3600)
    assert first_run(OnceSchedule(NOW), NOW) == NOW
    assert first_run(OnceSchedule(after(-60)), NOW) == after(-60)
    assert first_run(OnceSchedule(after(-61)), NOW) is None


def test_immediately_is_the_first_window() -> None:
    every = IntervalSchedule(60, immediately=True).with_anchor(NOW)
    assert [every.next_after(after(s)) for s in (-1, 0)] == [NOW, after(60)]


def test_a_schedule_uses_the_zone_of_the_app_unless_it_names_one() -> None:
    assert CronSchedule("0 3 * * *").in_zone("Asia/Tokyo") == CronSchedule("0 3 * * *", "Asia/Tokyo")
    assert CronSchedule("0 3 * * *", BERLIN).in_zone("Asia/Tokyo").tz == "Europe/Berlin"
    assert DailySchedule("03:00").in_zone(BERLIN).tz == "Europe/Berlin"
    assert DailySchedule(time(3, tzinfo=BERLIN)).in_zone(UTC).tz == "Europe/Berlin"
    assert CronSchedule("0 3 * * *").next_after(NOW) == datetime(2026, 8, 2, 3, tzinfo=UTC)
    for schedule in (IntervalSchedule(5), OnceSchedule(NOW), RuleSchedule(Fridays())):
        assert schedule.in_zone("Asia/Tokyo") is schedule


def test_daily_schedules_follow_the_wall_clock() -> None:
    nightly = DailySchedule("02:30", tz="Europe/Berlin")
    assert nightly.next_after(datetime(2026, 3, 28, 12, tzinfo=UTC)) == datetime(2026, 3, 29, 1, tzinfo=UTC)  # the gap
    assert nightly.next_after(datetime(2026, 10, 25, 0, 30, tzinfo=UTC)) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


def test_start_and_end_are_inclusive() -> None:
    noon = datetime(2026, 8, 2, 12, tzinfo=UTC)
    for rule in (CronSchedule("0 12 * * *", start=noon, end=noon), DailySchedule("12:00", start=noon, end=noon)):
        assert rule.next_after(NOW) == noon
        assert rule.next_after(noon) is None


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("0 3 * * *", CronSchedule("0 3 * * *", "Europe/Berlin")),
        (timedelta(minutes=5), IntervalSchedule(300)),
        (time(3), DailySchedule("03:00", "Europe/Berlin")),
        (time(3, tzinfo=ZoneInfo("Asia/Tokyo")), DailySchedule("03:00", "Asia/Tokyo")),
        (NOW, OnceSchedule(NOW)),
        (IntervalSchedule(5), IntervalSchedule(5)),
        (CronSchedule("@daily"), CronSchedule("@daily", "Europe/Berlin")),
    ],
)
def test_every_form_becomes_a_schedule(value: object, wanted: ScheduleRule) -> None:
    assert as_schedule(value, "Europe/Berlin") == wanted


@pytest.mark.parametrize("value", [5, 2.5, None, True, object(), Fridays, date(2026, 1, 1), ["@daily"], b"@daily"])
def test_other_types_are_not_schedules(value: object) -> None:
    with pytest.raises(BadSchedule, match=r"cron str, a timedelta, a time of day, an aware datetime, .*next_after"):
        as_schedule(value)


def test_a_naive_datetime_is_also_a_value_error() -> None:
    for make in (as_schedule, OnceSchedule, lambda naive: IntervalSchedule(5, start=naive)):
        for error in (ValueError, BadSchedule):
            with pytest.raises(error, match="time zone"):
                make(NAIVE)


def test_a_custom_rule_brings_its_options() -> None:
    class Busy(Fridays):
        overlap = "queue"
        args = {"x": 1}  # noqa: RUF012
        grace = 5
        start = "a word of its own"

    schedule = as_schedule(Busy())
    assert isinstance(schedule, RuleSchedule)
    assert (schedule.overlap, schedule.args, schedule.grace, schedule.catch_up) == ("queue", {"x": 1}, 5, "latest")
    assert schedule.next_after(NOW) == datetime(2026, 8, 7, 9, tzinfo=UTC)
    bounded = RuleSchedule(Fridays(), start=after(1e6), end=after(1e6))
    assert bounded.next_after(NOW) is None


@pytest.mark.parametrize("answer", [lambda m: m, lambda m: m - timedelta(1), NAIVE, "soon"])
def test_the_answers_of_a_custom_rule_are_checked(answer: object) -> None:
    with pytest.raises(BadSchedule, match="next_after"):
        RuleSchedule(Says(answer)).next_after(NOW)


Call = tuple[tuple[object, ...], dict[str, object]]


def call(*args: object, **keywords: object) -> Call:
    return args, keywords


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (IntervalSchedule, call(0), "interval 0.0 is out of range: at least 0.001"),
        (IntervalSchedule, call(-5), "interval: -5 is out of range"),
        (IntervalSchedule, call(float("nan")), "interval"),
        (IntervalSchedule, call(1e15), "interval"),
        (IntervalSchedule, call("5"), "interval: '5' is of type str"),
        (IntervalSchedule, call(True), "interval: True is of type bool"),
        (IntervalSchedule, call(5, immediately=1), "immediately=1"),
        (IntervalSchedule, call(5, start=NOW, end=after(-1)), "end .* is before start"),
        (IntervalSchedule, call(5, start="2026"), "start: '2026' is of type str"),
        (IntervalSchedule, call(5, jitter=-1), "jitter: -1 is out of range"),
        (CronSchedule, call("@daily", grace=-1), "grace: -1 is out of range"),
        (CronSchedule, call("@daily", overlap="no"), "overlap='no' is not one of skip, allow, queue"),
        (CronSchedule, call("@daily", catch_up=True), "catch_up=True is not one of latest, all, none"),
        (CronSchedule, call("@daily", args=[1]), "args"),
        (CronSchedule, call("@daily", args={1: 2}), "args"),
        (CronSchedule, call("@daily", tz="Mars"), "tz: no time zone 'Mars'"),
        (CronSchedule, call("@daily", tz=timezone(timedelta(hours=1))), "tz"),
        (CronSchedule, call("61 * * * *"), "minute '61'"),
        (CronSchedule, call("@yearly", "UTC", start=NOW, end=after(60)), "never fires between"),
        (DailySchedule, call("25:00"), "at '25:00' is out of range"),
        (DailySchedule, call("03:00", weekdays=()), "never fires"),
        (DailySchedule, call("03:00", weekdays=[9]), "weekday 9"),
        (OnceSchedule, call("tomorrow"), "at: 'tomorrow' is of type str"),
        (OnceSchedule, call(NOW, start=after(1)), "never comes"),
        (OnceSchedule, call(NOW, end=after(-1)), "never comes"),
    ],
)
def test_wrong_schedules_are_refused_when_created(kind: Any, given: Call, message: str) -> None:
    with pytest.raises(BadSchedule, match=message):
        kind(*given[0], **given[1])


def test_equal_schedules_compare_and_hash_equal() -> None:
    args = {"a": [1]}
    one = CronSchedule("@daily", args=args, grace=timedelta(minutes=1))
    args["b"] = [2]
    assert one.args == {"a": [1]}
    assert one == CronSchedule("@daily", args={"a": [1]})
    assert len({one, CronSchedule("@daily", args={"a": [1]})}) == 1
    with pytest.raises(FrozenInstanceError):
        one.expr = "@hourly"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize("schedule", ALL[:-1])
def test_a_schedule_survives_conversion_to_data(schedule: ScheduleRule) -> None:
    data = json.loads(json.dumps(to_data(schedule)))
    assert from_data(data) == schedule
    assert to_data(from_data(data)) == data


def test_data_leaves_out_defaults() -> None:
    assert to_data(IntervalSchedule(5, grace=60)) == {"type": "interval", "interval": 5}
    assert to_data(DailySchedule("3:00", weekdays=[0])) == {"type": "daily", "at": "03:00", "weekdays": ["mon"]}
    assert from_data({"type": "cron", "expr": "@daily"}, {"x": 1}) == CronSchedule("@daily", args={"x": 1})


def test_malformed_data_is_refused() -> None:
    for bad in ({}, {"type": "lunar"}, {"type": "cron"}, {"type": "cron", "expr": "x"}, {"type": "interval", "new": 1}):
        with pytest.raises(BadSchedule, match="stored schedule"):
            from_data(bad)
    with pytest.raises(BadSchedule, match="only the code"):
        to_data(RuleSchedule(Fridays()))


HOURLY = CronSchedule("@hourly")


@pytest.mark.parametrize(
    ("late", "catch_up", "run", "skipped"),
    [
        (-1, "latest", [], 0),
        (0, "none", [0], 0),
        (60, "none", [0], 0),  # within the grace
        (61, "none", [], 1),
        (61, "latest", [0], 0),
        (61, "all", [0], 0),
        (3 * 3600 + 61, "latest", [3], 3),
        (3 * 3600 + 61, "none", [], 4),
        (3 * 3600 + 61, "all", [0, 1, 2, 3], 0),
        (3 * 3600 + 60, "latest", [3], 3),
        (3 * 3600 + 60, "none", [3], 3),
        (3 * 3600 + 60, "all", [0, 1, 2, 3], 0),
    ],
)
def test_catch_up_and_grace_choose_the_windows(late: float, catch_up: CatchUp, run: list[int], skipped: int) -> None:
    plan = due_windows(HOURLY, NOW, after(late), catch_up, 60)
    assert [window.hour - NOW.hour for window in plan.run] == run
    assert plan.skipped == skipped
    assert plan.next_at == NOW.replace(minute=0) + timedelta(hours=max(late, -1) // 3600 + 1)


@pytest.mark.parametrize(("catch_up", "run"), [("latest", [5]), ("none", [5]), ("all", [1, 2, 3, 4, 5])])
def test_of_several_windows_within_their_grace_the_newest_is_the_current_one(catch_up: CatchUp, run: list[int]) -> None:
    plan = due_windows(IntervalSchedule(1).with_anchor(NOW), after(1), after(5.5), catch_up, 60)
    assert plan.run == [after(s) for s in run]
    assert (plan.skipped, plan.next_at) == (5 - len(run), after(6))


def test_catch_up_all_runs_in_bounded_portions() -> None:
    every = IntervalSchedule(1).with_anchor(NOW)
    next_at = after(1)
    seen = list[datetime]()
    while True:
        plan = due_windows(every, next_at, after(2500.5), "all")
        assert len(plan.run) <= MAX_WINDOWS
        seen += plan.run
        assert plan.next_at is not None
        if not plan.run:
            break
        assert plan.next_at > next_at
        next_at = plan.next_at
    assert seen == [after(s) for s in range(1, 2501)]


@pytest.mark.parametrize("rule", [IntervalSchedule(0.001).with_anchor(NOW), CronSchedule("* * * * * *")])
@pytest.mark.parametrize("catch_up", ["latest", "none"])
def test_a_year_of_windows_is_decided_quickly(rule: ScheduleRule, catch_up: CatchUp) -> None:
    steps = 0

    class Counted:
        def next_after(self, moment: datetime) -> datetime | None:
            nonlocal steps
            steps += 1
            return rule.next_after(moment)

    now = after(366 * 86_400 + 0.0005)
    plan = due_windows(Counted(), after(1), now, catch_up, 0)
    assert steps < MAX_WINDOWS + 250
    assert plan.run == ([plan.run[-1]] if catch_up == "latest" else [])
    assert plan.next_at == rule.next_after(now)
    assert all(rule.next_after(window) == plan.next_at for window in plan.run)
    exact = due_windows(rule, after(1), now, catch_up, 0)
    assert (exact.run, exact.next_at) == (plan.run, plan.next_at)
    if isinstance(rule, IntervalSchedule):
        assert exact.skipped + len(exact.run) == 366 * 86_400_000 - 999


def test_no_window_comes_after_the_end() -> None:
    every = IntervalSchedule(60, end=after(150)).with_anchor(NOW)
    assert due_windows(every, after(60), after(1000), "latest") == ([after(120)], 1, None)
    assert due_windows(every, after(60), after(1000), "none") == ([], 2, None)
    assert due_windows(OnceSchedule(NOW), NOW, after(1000), "none") == ([], 1, None)
    assert due_windows(OnceSchedule(NOW), NOW, after(1000), "latest") == ([NOW], 0, None)


@settings(deadline=None)
@given(
    rule=st.sampled_from([*ALL, CronSchedule("*/7 1-4 * * *", "Europe/Berlin")]),
    begin=moments(UTC),
    late=st.integers(0, 5000),
    catch_up=st.sampled_from(["latest", "all", "none"]),
    grace=st.integers(0, 600),
)
def test_windows_agree_with_a_naive_walk(rule: Rule, begin: datetime, late: int, catch_up: CatchUp, grace: int) -> None:
    next_at = rule.next_after(begin)
    if next_at is None:
        return
    next_at = from_ms(to_ms(next_at))  # rounded, as a store returns it
    now = next_at + timedelta(seconds=late)
    windows: list[datetime] = []
    at: datetime | None = next_at
    while at is not None and at <= now:
        windows.append(at)
        at = rule.next_after(at)
    on_time = [window for window in windows[-1:] if now - window <= timedelta(seconds=grace)]
    run = {"all": windows, "none": on_time, "latest": windows[-1:]}[catch_up]
    plan = due_windows(rule, next_at, now, catch_up, grace)
    assert plan.run == run[:MAX_WINDOWS]
    assert plan.next_at is None or plan.next_at > next_at
    if len(run) <= MAX_WINDOWS:
        assert plan.next_at == at
    if len(windows) < MAX_WINDOWS:
        assert plan.skipped == len(windows) - len(run)


def test_jitter_is_deterministic_and_spread() -> None:
    found = [jitter_ms("report", ms, 30) for ms in range(1000)]
    assert found == [jitter_ms("report", ms, timedelta(seconds=30)) for ms in range(1000)]
    assert 0 <= min(found) < 500
    assert 29_500 < max(found) <= 30_000
    assert jitter_ms("report", 5, 30) != jitter_ms("other", 5, 30)
    assert jitter_ms("report", 5, 0) == 0


def test_the_uuid_of_a_window_is_deterministic_and_ordered() -> None:
    made = {nominal_uuid(name, ms) for name in ("a", "b", "ä/\udcff") for ms in range(0, 10**6, 1000)}
    assert len(made) == 3000
    one = nominal_uuid("a", to_ms(NOW))
    assert one == nominal_uuid("a", to_ms(NOW))
    assert str(UUID(one)) == one
    assert UUID(one).version == 8
    assert one < nominal_uuid("a", to_ms(NOW) + 1)
