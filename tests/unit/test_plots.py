"""The plots in the documentation are those that the scripts draw."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("benchmarks", reason="not in a source distribution")

from benchmarks import page_figures
from benchmarks.limits import aging_waits
from benchmarks.page_drain import Drained, ServerTime, server_figure
from benchmarks.plots import AGING as PLOT, DRAIN, DRAINED, aging_svg, drain_svg
from benchmarks.worker_table import BEGIN, END, PAGE, WORKER, worker_table
from onthedot.definitions.new_task import AGING
from tests.soak.__main__ import FIGURES, PLOT as SOAK
from tests.soak.plot import soak_svg


def test_plot_of_aging_is_up_to_date() -> None:
    waits = aging_waits()
    assert waits == {priority: (10 - priority) * AGING for priority in range(1, 11)}
    assert PLOT.read_text() == aging_svg(waits), "./dev bench limits --only aging draws it"


def test_plot_of_draining_is_up_to_date() -> None:
    """It is drawn from the stored figures of full rounds."""
    report = json.loads(DRAINED.read_text())
    assert (report["scale"], report["rounds"] >= 3) == (1, True)
    assert DRAIN.read_text() == drain_svg(report["rows"]), "./dev bench drain draws it"


def test_plot_of_the_soak_run_is_up_to_date() -> None:
    report = json.loads(FIGURES.read_text())
    assert set(report["runs"]) == {"sqlite", "redis", "postgres"}
    assert SOAK.read_text() == soak_svg(report["runs"]), "./dev soak --docs draws it"


def test_table_of_the_worker_is_up_to_date() -> None:
    shown = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    if not WORKER.exists():
        assert shown == "Not measured yet.\n"
        return
    report = json.loads(WORKER.read_text())
    assert (report["scale"], report["rounds"] >= 5) == (1, True)
    assert shown == worker_table(report["rows"]), "./dev bench worker writes it"


def test_table_of_the_page_is_up_to_date() -> None:
    shown = PAGE.read_text().partition(page_figures.BEGIN)[2].partition(page_figures.END)[0]
    rows = json.loads(page_figures.FIGURES.read_text())["rows"]
    assert rows
    assert shown == page_figures.page_table(rows), "./dev bench page writes it"


@pytest.mark.parametrize(("used", "is_met"), [(1_600.0, True), (1_700.0, False)])
def test_tabs_may_cost_the_redis_server_counts_and_a_hundred_uuids_per_read(used: float, is_met: bool) -> None:
    """0.05 µs for each of 3,000 transitions, and 10 reads of 100 uuids at 1.5 µs."""
    without = [Drained(1.0, ServerTime(2_000.0, 0))] * 3
    beside = [Drained(1.0, ServerTime(2_000.0 + used, 10))] * 3
    figure = server_figure({0: without, 1: without, 20: beside}, 1_000, resolving=1.5)
    assert figure.other == 0.55
    assert figure.met(figure.value) == is_met
