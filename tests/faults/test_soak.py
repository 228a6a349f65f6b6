"""The short form of the soak run: upper limits only. The long form is ``./dev soak --hours 1``."""

from __future__ import annotations

import pytest

from tests.soak.plot import soak_svg
from tests.soak.run import sample_for, started_together

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]

LIMITS = {"memory": 150, "descriptors": 60, "threads": 20, "keys": 200, "rows": 60_000, "wal": 200}


def test_figures_of_a_minute_stay_below_their_limits() -> None:
    with started_together(["sqlite", "redis", "postgres"]) as runs:
        sample_for(runs, 60, 1)
        for run in runs:
            print(f"\n{run}", flush=True)
    for run in runs:
        assert run.series["rows"][-1][1] > 500, "there was hardly any load"
        most = {name: max(value for _, value in samples) for name, samples in run.series.items()}
        assert {name: value for name, value in most.items() if value > LIMITS[name.split()[0]]} == {}
    svg = soak_svg({run.store.name: run.series for run in runs})
    assert svg.count("<polyline") == sum(len(run.series) for run in runs)
