"""Series of charts: counts, percentiles and depth per span, with gaps where no worker lived."""

from __future__ import annotations

from datetime import timedelta

import pytest

from onthedot import App
from onthedot.clock.epoch import from_ms
from onthedot.clock.manual import ManualClock
from onthedot.errors import ArgumentError
from onthedot.model.source_figures import FLEET, Depth, FigureRecord, Histogram, SourceFigures, encode_record
from onthedot.operations.operations import Operations
from onthedot.operations.series import SERIES_NAMES
from onthedot.stores.contract import SeriesEntry
from onthedot.stores.memory import MemoryStore
from tests.support.app_stores import AppStore
from tests.support.waits import SOON

MINUTE = 60_000
HOUR = 60 * MINUTE


class Charts:
    """A store whose series a test fills, and its operations."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.clock.advance(24 * HOUR - self.clock.now() % (24 * HOUR))
        self.now = int(self.clock.now())
        self.store = MemoryStore(self.clock)
        self.operations = Operations(self.store, "test", self.clock)

    async def write(self, series: str, ago: int, record: FigureRecord, writer: str = FLEET) -> None:
        await self.store.write_series([SeriesEntry(series, self.now - ago, writer, encode_record(record, 10**5))])


@pytest.fixture
def charts() -> Charts:
    return Charts()


def timed(*ms: float) -> Histogram:
    histogram = Histogram()
    for each in ms:
        histogram.observe(each)
    return histogram


async def test_minutes_have_counts_and_gaps(charts: Charts) -> None:
    await charts.write("minutes", 3 * MINUTE, FigureRecord({"a": SourceFigures(5, 4, 1), "b": SourceFigures(2, 2)}))
    await charts.write("minutes", MINUTE, FigureRecord())
    since = from_ms(charts.now - 4 * MINUTE)
    found = await charts.operations.series(["done", "failed"], since=since)
    assert found.step == 60
    assert found.at == tuple(from_ms(charts.now - ago * MINUTE) for ago in (4, 3, 2, 1))
    assert found.series == {"done": (None, 6.0, None, 0.0), "failed": (None, 1.0, None, 0.0)}
    of_a = await charts.operations.series(["done"], "a", since=since)
    assert of_a.series == {"done": (None, 4.0, None, 0.0)}


async def test_percentiles_are_merged_and_not_averaged(charts: Charts) -> None:
    await charts.write("minutes", MINUTE, FigureRecord({"a": SourceFigures(99, latency=timed(*[10.0] * 99))}))
    row = FigureRecord({"a": SourceFigures(1, latency=timed(5000.0))})
    await charts.write("minutes", MINUTE, row, writer="w1")
    found = await charts.operations.series(
        ["latency_p50", "latency_p99", "duration_p95"], since=from_ms(charts.now - MINUTE)
    )
    (median,), (p99,), (duration,) = (found.series[name] for name in ("latency_p50", "latency_p99", "duration_p95"))
    assert median == pytest.approx(10, rel=0.2)
    assert p99 == pytest.approx(10, rel=0.2)
    assert duration is None


async def test_depth_and_arrivals_come_from_samples(charts: Charts) -> None:
    await charts.write("minutes", 2 * MINUTE, FigureRecord({"a": SourceFigures()}, {"a": Depth(5, 2, 1, 1)}))
    await charts.write("minutes", MINUTE, FigureRecord({"a": SourceFigures(9, 8, 1)}, {"a": Depth(1, 2, 3, 0)}))
    found = await charts.operations.series(
        ["depth", "ready", "running", "arrived"], since=from_ms(charts.now - 2 * MINUTE)
    )
    assert found.series == {"depth": (8.0, 3.0), "ready": (5.0, 1.0), "running": (1.0, 3.0), "arrived": (None, 6.0)}


async def test_longer_spans_are_read_from_longer_steps_and_the_last_one_from_minutes(charts: Charts) -> None:
    await charts.write("ten_minutes", 20 * MINUTE, FigureRecord({"a": SourceFigures(7, 7)}))
    await charts.write("minutes", 3 * MINUTE, FigureRecord({"a": SourceFigures(1, 1)}))
    await charts.write("minutes", 2 * MINUTE, FigureRecord({"a": SourceFigures(1, 1)}))
    found = await charts.operations.series(["done"], since=from_ms(charts.now - 24 * HOUR))
    assert found.step == 600
    assert found.series["done"][-2:] == (7.0, 2.0)
    month = await charts.operations.series(["done"], since=from_ms(charts.now - 30 * 24 * HOUR))
    assert (month.step, len(month.at)) == (3600, 720)


async def test_points_are_bounded(charts: Charts) -> None:
    found = await charts.operations.series(["done"], since=from_ms(charts.now - 60 * 24 * HOUR), step=60)
    assert len(found.at) == 1500


@pytest.mark.parametrize(
    ("names", "options"),
    [(["dnoe"], {}), (["done"], {"step": 61}), (["done"], {"since": from_ms(10**13)})],
)
async def test_wrong_questions_are_refused(charts: Charts, names: list[str], options: dict[str, object]) -> None:
    with pytest.raises(ArgumentError):
        await charts.operations.series(names, **options)  # type: ignore[arg-type]


async def test_every_name_has_values(charts: Charts) -> None:
    await charts.write("minutes", MINUTE, FigureRecord({"a": SourceFigures(1, 1)}, {"a": Depth(1)}))
    found = await charts.operations.series(SERIES_NAMES, since=from_ms(charts.now - MINUTE))
    assert set(found.series) == set(SERIES_NAMES)


async def test_figures_of_a_worker_that_stops_are_in_the_series(app_store: AppStore) -> None:
    app = App(app_store.name, store=app_store.url)

    @app.task
    async def work() -> None: ...

    async with app:
        async with app.running():
            handle = await work.enqueue()
            await handle.result(SOON)
        found = await app.operations.series("done", "started")
        assert sum(value or 0 for value in found.series["done"]) == 1
        assert sum(value or 0 for value in found.series["started"]) == 1
        assert found.at[-1] - found.at[0] <= timedelta(hours=1)
