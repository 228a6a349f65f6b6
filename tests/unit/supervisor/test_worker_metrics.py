"""Metrics of several processes are one page."""

from __future__ import annotations

import pytest

from onthedot.model.figures import Figures
from onthedot.observability.worker_metrics import TASKS, UP
from onthedot.supervisor.worker_metrics import WorkerMetrics

parser = pytest.importorskip("prometheus_client.parser")


class Process:
    def __init__(self, tasks: int) -> None:
        self.figures = Figures([], [])
        self.figures.add(TASKS, tasks, "email", "succeeded")
        self.figures.add(UP, 1, "r1")


def read(metrics: WorkerMetrics) -> dict[str, float]:
    found = parser.text_string_to_metric_families(metrics.text())
    return {sample.name: sample.value for family in found for sample in family.samples}


def test_counters_of_ended_processes_are_kept() -> None:
    metrics = WorkerMetrics()
    first = Process(3)
    second = Process(4)
    metrics.add(first)
    metrics.add(second)
    assert read(metrics)["onthedot_worker_tasks_total"] == 7
    assert read(metrics)["onthedot_worker_up"] == 2
    metrics.remove(first)
    metrics.remove(first)
    assert read(metrics)["onthedot_worker_tasks_total"] == 7
    assert read(metrics)["onthedot_worker_up"] == 1
    metrics.add(Process(1))
    assert read(metrics)["onthedot_worker_tasks_total"] == 8


def test_supervisor_has_metrics_of_its_own() -> None:
    found = read(WorkerMetrics())
    assert found["process_start_time_seconds"] > 1_700_000_000
    assert found["process_cpu_seconds_total"] > 0
