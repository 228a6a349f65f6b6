"""Some comparisons of ``python -m tests.unit.schedules.cron``: new ones every day, the same ones during a day."""

from __future__ import annotations

import os
import random
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from onthedot.errors import BadSchedule
from onthedot.schedules.cron import Cron
from tests.unit.schedules.cron import drawing, oracle, sweep
from tests.unit.schedules.cron.sweep import around, samples

TODAY = os.environ.get("ONTHEDOT_CRON_DAY") or date.today().isoformat()  # noqa: DTZ011 - any day will do
YEAR = int(TODAY[:4])
AGAIN = f"ONTHEDOT_CRON_DAY={TODAY} draws it again"


@pytest.mark.parametrize("number", range(3))
def test_cron_agrees_with_the_oracle_around_clock_changes(number: int) -> None:
    dice = random.Random(f"{TODAY} {number}")
    found: list[tuple[str, datetime]] = []
    while not found:
        zone = dice.choice(drawing.zones())
        found = [(zone, change) for change in drawing.changes(zone, YEAR)]
    print(AGAIN)
    assert around((*dice.choice(found), dice.sample(drawing.TELLING, 2))) == 2 * 5761


def test_cron_agrees_with_the_oracle_on_random_samples() -> None:
    print(AGAIN)
    kinds = samples((TODAY, YEAR, 150))
    assert kinds.total() == 150
    assert kinds["fired"] > 75, "most of them say something"


# -- the oracle itself


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "after", "wanted"),
    [
        ("30 2 * * *", "2026-03-28T12:00+01:00", "2026-03-29T03:00+02:00"),  # missing: right after the gap
        ("30 * * * *", "2026-03-29T01:30+01:00", "2026-03-29T03:30+02:00"),  # as usual
        ("30 2 * * *", "2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"),  # it fired in the first hour
        ("30 * * * *", "2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00"),  # in both
        ("0 0 13 * 5", "2026-08-01T12:00+02:00", "2026-08-07T00:00+02:00"),  # either
        ("0 0 */2 * 1", "2026-08-01T12:00+02:00", "2026-08-03T00:00+02:00"),  # a star first: both
        ("0 0 LW 10 ?", "2026-08-01T12:00+02:00", "2026-10-30T00:00+01:00"),
        ("0 0 16W 8 *", "2026-08-01T12:00+02:00", "2026-08-17T00:00+02:00"),
        ("30 0 0 * * FRIL", "2026-08-01T12:00+02:00", "2026-08-28T00:00:30+02:00"),
    ],
)
def test_the_oracle_is_right_in_berlin(text: str, after: str, wanted: str) -> None:
    found = oracle.next_after(text, BERLIN, datetime.fromisoformat(after), timedelta(days=100))
    assert found == datetime.fromisoformat(wanted)


def test_the_oracle_detects_planted_bugs() -> None:
    """A cron that compares wall times only, as early daemons did."""

    class Naive:
        def __init__(self, text: str, zone: str) -> None:
            self.real = Cron(text)
            self.zone = ZoneInfo(zone)

        def next_after(self, moment: datetime) -> datetime | None:
            wall = moment.astimezone(self.zone).replace(tzinfo=UTC)
            found = self.real.next_after(wall)
            return None if found is None else found.replace(tzinfo=self.zone).astimezone(UTC)

    right = sweep.Cron
    sweep.Cron = Naive  # type: ignore[assignment,misc]
    try:
        for change in (datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)):
            with pytest.raises(AssertionError, match="but the oracle says"):
                sweep.every_minute("Europe/Berlin", change, ["30 2 * * *"])
    finally:
        sweep.Cron = right  # type: ignore[misc]


# -- next_run only grows


@settings(deadline=None, max_examples=60)
@given(st.randoms(use_true_random=False), st.sampled_from(drawing.zones()))
def test_the_next_run_is_always_later(dice: random.Random, zone: str) -> None:
    """Going from run to run never reaches the same time twice: otherwise a daily task fires 32,000 times."""
    try:
        cron = Cron(drawing.expression(dice), zone)
    except BadSchedule:
        return
    moment = drawing.moment(dice, zone, YEAR)
    runs = [moment]
    for _ in range(20):
        found = cron.next_after(runs[-1])
        assert found is not None
        assert found.utcoffset() == timedelta(0)
        runs.append(found)
    assert all(before < after for before, after in pairwise(runs))
    for before, after in pairwise(runs):
        between = before + (after - before) * dice.random()
        assert between == after or cron.next_after(between) == after, "whenever one looks, it is the same one"
