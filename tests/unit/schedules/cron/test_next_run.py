"""`next_run` only grows, whatever the expression, the clock and other schedulers do."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime

from hypothesis import given, settings, strategies as st

from onthedot.clock.manual import ManualClock
from onthedot.definitions.sources import Sources
from onthedot.engine.schedule_firer import ScheduleFirer
from onthedot.errors import BadSchedule
from onthedot.observability.logs import LogObserver
from onthedot.schedules.definition import ScheduleDefinition
from onthedot.schedules.rules import CatchUp, CronSchedule
from onthedot.stores.contract import FireRequest, NewTask, Schedule
from onthedot.stores.memory import MemoryStore
from tests.unit.schedules.cron import drawing

START = datetime(2026, 3, 27, tzinfo=UTC)  # two days later clocks change in Europe


class Watched(MemoryStore):
    """Records the fired windows, and each change of `next_run`."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.moves: list[tuple[int, int | None]] = []
        self.windows: list[str] = []

    async def fire(self, fires: list[FireRequest]) -> list[bool]:
        before = {record.name: record for record in (await self.schedules())}
        answers = list(await super().fire(fires))
        for fire, stood in zip(fires, answers, strict=True):
            if stood:
                at = before[fire.name].next_at
                assert at is not None
                self.moves.append((at, fire.next_at))
                self.windows += [task.uuid for task in fire.tasks]
        return answers


@settings(deadline=None, max_examples=40)
@given(
    st.randoms(use_true_random=False),
    st.sampled_from(["Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "UTC"]),
    st.sampled_from(["latest", "all", "none"]),
    st.lists(st.integers(-7_200, 36_000), max_size=25),
)
def test_the_next_run_only_grows(dice: random.Random, zone: str, catch_up: CatchUp, steps: list[int]) -> None:
    """Two schedulers, one of which always acts on an outdated record, and a clock that also goes back."""
    try:
        rule = CronSchedule(drawing.expression(dice), zone, catch_up=catch_up, overlap="allow")
    except BadSchedule:
        return
    asyncio.run(fire_all(rule, steps))


def test_every_due_window_fires() -> None:
    store = asyncio.run(fire_all(CronSchedule("*/10 * * * *", catch_up="all"), [600, -600, 600, 1200, 59, 541]))
    assert len(store.windows) == 4
    assert len(store.moves) == 3


async def fire_all(rule: CronSchedule, steps: list[int]) -> Watched:
    clock = ManualClock(START)
    store = Watched(clock)
    plans = {"plan": ScheduleDefinition("plan", rule, NewTask("u", "work", b"{}"))}
    trouble: list[Exception] = []
    first, second = (ScheduleFirer(store, Sources(), plans, clock, LogObserver(None), trouble.append) for _ in range(2))
    await first.declare()
    for seconds in steps:
        clock.advance(seconds * 1000)
        due = await due_now(store, clock)
        await first.fire(due, clock.now())
        fired = len(store.windows)
        await second.fire(due, clock.now())
        assert len(store.windows) == fired, "who comes second fires nothing"
    assert all(after is None or before < after for before, after in store.moves)
    assert [after for _, after in store.moves[:-1]] == [before for before, _ in store.moves[1:]], "one after the other"
    assert len(store.windows) == len(set(store.windows)), "no window twice"
    assert trouble == []
    return store


async def due_now(store: MemoryStore, clock: ManualClock) -> list[Schedule]:
    records = await store.schedules()
    return [record for record in records if record.next_at is not None and record.next_at <= clock.now()]
