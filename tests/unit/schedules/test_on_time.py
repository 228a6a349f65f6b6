"""In real time: a schedule with an interval of 0.2 s, and runs of similar length, does not drift."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from onthedot import App, IntervalSchedule, current_task
from tests.faults import LONG, scaled
from tests.support.waits import until

EVERY = timedelta(seconds=0.2)
RUNS = scaled(10, 100)
ON_TIME = timedelta(milliseconds=10)


@pytest.mark.long
@pytest.mark.timed
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_an_interval_does_not_drift(kind: str, tmp_path: Path) -> None:
    """Run 100 is within 10 ms of its time: that takes a quiet machine, and ONTHEDOT_FAULTS=long.

    On a busy one a store is late by what the machine takes for its writes, but the tenth run not more than the first.
    """
    app = App("shop", store="memory://" if kind == "memory" else f"sqlite:///{tmp_path}/shop.db")
    began: list[tuple[datetime, datetime]] = []
    chance = random.Random(5)

    @app.schedule(IntervalSchedule(EVERY, overlap="allow"))
    async def tick() -> None:
        began.append((current_task().scheduled_for, datetime.fromtimestamp(time.time(), UTC)))
        await asyncio.sleep(chance.uniform(0.05, 0.15))

    async with app.running():
        await until(lambda: len(began) >= RUNS, 20 * RUNS * EVERY.total_seconds())
        nominal = [at for at, _ in began[:RUNS]]
        late = [at - due for due, at in began[:RUNS]]
        started = {info.schedule_at: info.started_at for info in (await app.find(source="tick", limit=RUNS * 30)).tasks}
    assert nominal == [nominal[0] + number * EVERY for number in range(RUNS)], "the grid, in order, without a hole"
    assert min(late) >= timedelta(0), "nothing is early"
    assert all(at is not None and at >= due for due, at in started.items()), "nor by the store's clock"
    shown = sorted(each / timedelta(milliseconds=1) for each in late)
    print(f"\n{kind}: {RUNS} runs, late by p50 {shown[RUNS // 2]:.1f} ms, max {shown[-1]:.1f} ms")
    if LONG:
        assert late[-1] <= ON_TIME
    else:
        assert min(late[-5:]) <= max(ON_TIME, *late[:5])
