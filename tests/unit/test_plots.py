"""The plots in the documentation are those that the scripts draw."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("benchmarks", reason="not in a source distribution")

from benchmarks import page_figures
from benchmarks.limits import aging_waits
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
